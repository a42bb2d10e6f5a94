"""Let a student of half the layers learn from a teacher in stage one, on development scores.

    python experiments/distillation.py                                                   # embedded data
    python experiments/distillation.py --scale mini --tasks sciie chemprot --task-root data/tasks --corpus data/corpus
    python experiments/distillation.py --dry-run

The teacher has twice the recipe's layers, the students have the recipe's. All share one retrieval and one tokenizer,
and take equally many steps. Stage two learns the task's labels alone.

    teacher            twice the layers, the recipe's own objectives
    no teacher         the recipe as it is
    DistilBERT         masks, the teacher's predictions and its last states (weights 2, 5 and 1), from its layers
    without ...        the same without one of them: Sanh et al. 2019, table 4, report for GLUE, in points,
                       predictions -2.96, states -1.46, masks -0.31, the teacher's layers -3.69
    TinyBERT           the states of every second layer alone, from random weights (Jiao et al. 2020)

Below the table: parameters, texts per second and the share of the teacher's score of each student. DistilBERT reports
60 % of the parameters and 97 % of BERT's GLUE score; it is 60 % faster. A student's FLOPs leave out the teacher's
training; its counted ones include the teacher's passes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

import ray

from tlm_ray import Outcome, Recipe, Table, main
from tlm_ray.runs.cli.table import chosen
from tlm_ray.training.encoders.starts import FewerLayers, Scratch
from tlm_ray.training.objectives import Cosine, LayersOfTeacher, Mlm, SoftTokens

TEACHER, NONE, TRIPLE, TINY = "teacher", "no teacher", "DistilBERT", "TinyBERT"
PARTS = {"predictions": SoftTokens(), "states": Cosine(), "masks": Mlm(times=2.0)}


@dataclass(frozen=True, kw_only=True)
class Distillation(Table):
    """Options of the table of students."""

    name = "distillation"

    rows: list[str] = field(default_factory=list)
    """rows to train, teacher among them, such as teacher "no teacher" DistilBERT (default: all)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget.minutes is not None:
            raise ValueError(f"--minutes {self.budget.minutes:g}: the teacher takes longer; give --steps or --tokens")

    def vary(self, recipe: Recipe) -> Mapping[str, Recipe]:
        """Return the teacher, then the students; their sizes come from a geometry, which `--architecture` has not."""
        if not isinstance(recipe.start, Scratch):
            raise ValueError("--architecture: has no geometry to halve; leave it out")
        geometry = recipe.start.geometry
        teacher = replace(recipe, start=Scratch(replace(geometry, layers=2 * geometry.layers)))
        student = replace(recipe, start=FewerLayers(geometry), counts=None, teacher=teacher)
        masks, states = PARTS["masks"], LayersOfTeacher(scores=False)
        rows = {TEACHER: teacher, NONE: recipe, TRIPLE: replace(student, objectives=(masks, SoftTokens(), Cosine()))}
        for part in PARTS:
            kept = tuple(one for name, one in PARTS.items() if name not in (part, "masks"))
            head = Mlm(times=0.0) if part == "masks" else masks
            rows[f"without {part}"] = replace(student, objectives=(head, *kept))
        rows["without its layers"] = replace(rows[TRIPLE], start=recipe.start, counts=recipe.counts)
        rows[TINY] = replace(rows["without its layers"], objectives=(states, Mlm(times=0.0)), exported=Mlm.name)
        return chosen(rows, self.rows)

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect the teacher above the student, and the student above those that lack something."""
        pairs = [(TEACHER, TRIPLE), *((TRIPLE, row) for row in rows if row not in (TEACHER, TRIPLE, TINY))]
        return [pair for pair in pairs if set(pair) <= set(rows)]

    def notes(self, outcome: Outcome) -> list[str]:
        """Return each student's size, speed and score beside its teacher's, means over tasks and seeds."""
        facts: dict[str, list[dict[str, float]]] = {}
        for training in outcome.stages:
            facts.setdefault(training.row, []).append(outcome.facts(training))
        means = {row: {name: fmean(one[name] for one in own) for name in MEASURED} for row, own in facts.items()}
        teacher = means.get(TEACHER, {}).get(self.split)
        return [
            f"{row}: {own['parameters'] / 1e6:.2f} million parameters, {own['texts_per_s']:,.0f} texts per second, "
            f"{own['flops_counted']:.2e} counted FLOPs, {own[self.split] / teacher:.1%} of the teacher's "
            f"{self.split} score"
            for row, own in means.items()
            if own["parameters"] and own["texts_per_s"] and teacher
        ]


MEASURED = ("parameters", "texts_per_s", "flops_counted", "dev", "test")

if __name__ == "__main__":
    main(Distillation, __doc__, ray.init)
