"""Adapt a pretrained encoder to each task before it is fine-tuned, by different texts, on test scores.

    python experiments/adapted.py --start FOLDER --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/adapted.py --start FOLDER --rows "fine-tuned" "BM25 text" --seeds 5 ...
    python experiments/adapted.py --start FOLDER --layers 2 ...                        # a smaller encoder cut from it
    python experiments/adapted.py --start FOLDER --new-words 2000 ...                  # with words of each row's texts
    python experiments/adapted.py --start FOLDER --dry-run

All rows but the first take about as many counted operations, planned from the mean length of the task's texts.
All share the encoder's own tokenizer; with `--new-words` each counts the words of its own texts.
The first and the last one, and students, also have rows for ensembles of their
seeds and the linear model.
With `--student-of` small models learn from the predictions of a row's seeds.
`--student-layers` cuts these from the encoder.

    fine-tuned           the encoder on the task's labels alone
    fine-tuned, longer   the same with more passes
    TAPT                 masks in the task's own text, then fine-tuned (Gururangan et al. 2020)
    random text          masks in random passages, and the task's labels among them, then fine-tuned
    BM25 text            the same with the passages that BM25 retrieves for the task's texts (TLM)

Expected before running: BM25 text above all others. The paper reports this for its own checkpoints.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Flow, Recipe, main, storage
from tlm_ray.retrieval.methods import Random
from tlm_ray.runs.cli.equal_cost_table import planned_sizes
from tlm_ray.runs.cli.options import settle
from tlm_ray.runs.cli.recipe_options import EncoderSize
from tlm_ray.runs.cli.table import chosen
from tlm_ray.runs.cli.taught_table import TaughtTable
from tlm_ray.runs.recipes.adaptation import RATE, adapted
from tlm_ray.runs.recipes.equal_cost import of_equal_cost

PLAIN, LONGER, TAPT, RANDOM, OURS = "fine-tuned", "fine-tuned, longer", "TAPT", "random text", "BM25 text"


@dataclass(frozen=True, kw_only=True)
class Adapted(TaughtTable):
    """Options of the table of adaptations."""

    name, split, ensembles, pooled, needs_general = "adapted", "test", (PLAIN, OURS), True, True

    start: str
    """hub name or local folder of the encoder, with its tokenizer"""
    size: EncoderSize = field(default_factory=EncoderSize)
    rate: float = RATE
    """peak learning rate of the adaptation"""
    rows: list[str] = field(default_factory=list)
    """rows to train, such as fine-tuned "BM25 text" (default: all); those of --student-of must be among them"""

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, storage.absolute_if_there, "start")
        if self.changes.architecture:
            raise ValueError(f"--architecture {self.changes.architecture}: --start is the encoder; leave it out")
        if self.changes.batch_rows is not None:
            raise ValueError("--batch-rows: is for trainings from random weights; leave it out")
        if self.budget.given:
            raise ValueError(f"{self.budget.given}: rows of equal operations set their own steps; give --steps")

    def recipes(self, task: str, flow: Flow) -> Mapping[str, Recipe]:
        """Return the rows of a task, all but the first of equal cost."""
        ours, tapt = (self.adapted(kind, task, flow) for kind in ("tlm", "tapt"))
        plain = self.plain(task, flow)
        wanted = chosen({PLAIN: plain, LONGER: plain, TAPT: tapt} | self.vary(ours), self.rows)
        sizes = planned_sizes(task, flow, longest=ours.task_tokens)
        return {  # of the chosen rows alone, because the operations of one take 8 s to count
            row: of_equal_cost(one, ours, **sizes) if row in (LONGER, TAPT) else one for row, one in wanted.items()
        }

    def adapted(self, kind: str, task: str, flow: Flow) -> Recipe:
        """Return the recipe that adapts the encoder by the task's own text (tapt) or the retrieved one (tlm)."""
        recipe, rows = self.recipe(task, flow, self.mixture), flow.train_rows(task)
        made = adapted(recipe, self.start, kind, train_rows=rows, steps=self.changes.steps, rate=self.rate)
        return replace(self.size.change(made), stage_two=self.plain(task, flow).stage_two)

    def plain(self, task: str, flow: Flow) -> Recipe:
        """Return the recipe that fine-tunes the encoder alone."""
        return self.fine_tuned(self.start, "plain", task, flow, self.mixture, size=self.size)

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return the rows that differ in their general text."""
        return {RANDOM: replace(recipe, method=Random()), OURS: recipe}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect the retrieved text above all others."""
        return [(OURS, row) for row in rows if row != OURS and OURS in rows]


if __name__ == "__main__":
    main(Adapted, __doc__, ray.init)
