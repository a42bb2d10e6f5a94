"""Let several tasks share one stage one, on development scores: a variant that the paper names as further work.

    python experiments/mixing.py --scale mini --tasks sciie chemprot --task-root data/tasks --corpus data/corpus
    python experiments/mixing.py --share 0.4 ...
    python experiments/mixing.py --dry-run ...

What was retrieved for the tasks is united, one tokenizer is trained on all their text, and stage one gives each task
batches at its rate, with a head of its own (Raffel et al. 2020, section 3.5.2). Each task has a stage two for itself.

    each alone       a stage one per task
    mixed            one for all, rates by the numbers of examples, none counted above --limit
    mixed, T = 2     rates to the power 1/2
    mixed, equal     equal rates
    without its own  one for all others: the task is new in stage two

The shared stage one takes --share of the steps that all stages one of the first row take together; each task bears an
equal part of its FLOPs. With --marks the classifiers of stage two read the spans that texts mark, and those of the
shared stage one do not. T5's paper reports for GLUE: each alone 83.28; mixed and then fine-tuned 83.11, without the
task's own 81.98, mixed alone 81.42; mixed alone with equal rates 76.13.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Flow, Recipe, Table, main
from tlm_ray.runs.cli.table import chosen
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.sampler.mixers import Rates

ALONE, MIXED, WITHOUT = "each alone", "mixed", "without its own"


@dataclass(frozen=True, kw_only=True)
class Mixing(Table):
    """Options of the table of mixed tasks."""

    name = "mixing"

    share: float = 0.6
    """steps of the shared stage one, as a share of those of all tasks' own"""
    limit: int = 0
    """most examples of a task that count for its rate; 0 for all"""
    rows: list[str] = field(default_factory=list)
    """rows to train, such as "each alone" mixed (default: all)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.data.tasks) < 2:
            raise ValueError("--tasks: give two or more, which share a stage one")
        if not 0 < self.share <= 1:
            raise ValueError(f"--share {self.share:g}: must be above 0 and at most 1")

    def vary(self, recipe: Recipe) -> Mapping[str, Recipe]:
        """Return the row of each task alone."""
        return {ALONE: recipe}

    def recipes(self, task: str, flow: Flow) -> Mapping[str, Recipe]:
        """Return the rows of a task; the shared stage one has the first task's settings, and the longest one's rows."""
        own = self.recipe(task, flow, self.mixture)
        each = [self.recipe(name, flow, self.mixture) for name in self.data.tasks]
        start = each[0].start
        if isinstance(start, Scratch):  # with positions for the longest rows
            positions = max(one.start.geometry.positions for one in each if isinstance(one.start, Scratch))
            start = Scratch(replace(start.geometry, positions=positions))
        first = replace(each[0], task_tokens=max(one.task_tokens for one in each), start=start)
        steps = sum(one.stage_one.steps for one in each if one.stage_one)

        def shared(names: list[str], rates: Rates) -> Recipe:
            assert first.stage_one is not None, "the recipes of scales have a stage one"
            length = round(self.share * steps * len(names) / len(self.data.tasks))
            return replace(
                first,
                stage_one=first.stage_one.of_steps(length),
                stage_two=own.stage_two,
                labels=own.labels,
                tasks=tuple(names),
                rates=rates,
            )

        names, others = self.data.tasks, [name for name in self.data.tasks if name != task]
        rows = dict(super().recipes(task, flow)) | {
            MIXED: shared(names, Rates(limit=self.limit)),
            f"{MIXED}, T = 2": shared(names, Rates(limit=self.limit, temperature=2.0)),
            f"{MIXED}, equal": shared(names, Rates(equal=True)),
            WITHOUT: shared(others, Rates(limit=self.limit)),
        }
        return chosen(rows, self.rows)

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect each alone above mixed ones, and those above the row without the task."""
        pairs = [(ALONE, MIXED), (MIXED, f"{MIXED}, T = 2"), (MIXED, f"{MIXED}, equal"), (MIXED, WITHOUT)]
        return [pair for pair in pairs if set(pair) <= set(rows)]


if __name__ == "__main__":
    main(Mixing, __doc__, ray.init)
