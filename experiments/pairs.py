"""Fine-tune a pretrained encoder twice for half as long, and let one model learn from both, on test scores.

    python experiments/pairs.py --start FOLDER --tasks sciie --task-root data/tasks --marks
    python experiments/pairs.py --start FOLDER --rows "fine-tuned, longer" --seeds 5 ...
    python experiments/pairs.py --start FOLDER --dry-run

    fine-tuned           the encoder on the task's labels
    fine-tuned, longer   twice the steps: as many as a pair and its student together
    fine-tuned, half     half of the steps, on twice as many seeds: the teachers
    student of a pair    the encoder on what two teachers predict for four times the rows, in as many steps as the first

Students share no teacher: that of seed s learns from seeds 2s and 2s + 1. Below the table: the means of the pairs. One
training of one's own is `train.py --seeds 2 --student` with half of the steps.

Expected before running: a student of a pair above all other rows.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import ray

from tlm_ray import Flow, Outcome, Recipe, Table, Training, main, storage
from tlm_ray.report.formats import score_text
from tlm_ray.runs.cli.options import settle
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.groups import Group, Mean

Row = Literal["fine-tuned", "fine-tuned, longer"]
PLAIN: Row = "fine-tuned"
LONGER: Row = "fine-tuned, longer"
HALF, STUDENT = "fine-tuned, half", "student of a pair"


@dataclass(frozen=True, kw_only=True)
class Pairs(Table):
    """Options of the table of pairs."""

    name, split = "pairs", "test"

    start: str
    """hub name or local folder of the encoder, with its tokenizer"""
    rows: list[Row] = field(default_factory=lambda: [PLAIN, LONGER])
    """rows beside the halves and their students"""

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, storage.absolute_if_there, "start")
        if self.changes.architecture:
            raise ValueError(f"--architecture {self.changes.architecture}: --start is the encoder; leave it out")
        if self.changes.batch_rows is not None:
            raise ValueError("--batch-rows: is for trainings from random weights; leave it out")

    def recipes(self, task: str, flow: Flow) -> dict[str, Recipe]:
        """Return the rows that learn labels."""
        return self.vary(self.fine_tuned(self.start, "plain", task, flow, self.mixture))

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return the asked lengths of the fine-tuning, then the half; ValueError for one of a single step."""
        two = recipe.stage_two
        if two.steps < 2:
            raise ValueError(f"--steps-two {two.steps}: has no half; give 2 or more")
        longer, half = (replace(recipe, stage_two=two.of_steps(steps)) for steps in (2 * two.steps, two.steps // 2))
        asked = {row: own for row, own in ((PLAIN, recipe), (LONGER, longer)) if row in self.rows}
        return asked | {HALF: half}

    def trainings(self, flow: Flow) -> list[Training]:
        """Return the trainings of all rows, those of halves on twice the seeds, then their students."""
        halves = {task: self.recipes(task, flow)[HALF] for task in self.data.tasks}
        further = [
            Training(row=HALF, task=task, recipe=half, seed=seed)
            for task, half in halves.items()
            for seed in range(self.seeds, 2 * self.seeds)
        ]
        students = [
            Training(row=STUDENT, task=task, recipe=half, seed=seed, teaching=Teaching(seeds=(2 * seed, 2 * seed + 1)))
            for task, half in halves.items()
            for seed in range(self.seeds)
        ]
        return super().trainings(flow) + further + students

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect students above everything that learns labels."""
        return [(STUDENT, row) for row in (LONGER, PLAIN, HALF) if row in rows]

    def notes(self, outcome: Outcome) -> list[str]:
        """Return the scores of the pairs' means."""
        return [scores_of_pairs(group) for group in outcome.groups if group.row == HALF]


def scores_of_pairs(group: Group) -> str:
    """Return the scores on dev and test of the ensembles of seeds 0 and 1, 2 and 3, ..., in words."""
    pairs = [slice(at, at + 2) for at in range(0, len(group.facts), 2)]
    parts = [replace(group, facts=group.facts[pair], folders=group.folders[pair]) for pair in pairs]
    means = [Mean(**vars(part), of_seeds=True) for part in parts]
    told = (f"{split} {score_text([mean.cell(split).mean for mean in means])}" for split in ("dev", "test"))
    return f"{group.task}: mean of each pair: {', '.join(told)}"


if __name__ == "__main__":
    main(Pairs, __doc__, ray.init)
