"""What rho2 and stage two are worth, on development scores (Yao et al. 2022, tables 6 and 7).

    python experiments/ablations.py                                     # embedded data
    python experiments/ablations.py --rho2s 0 20 100 1000 --scale small --tasks sciie chemprot --corpus s3://... ...
    python experiments/ablations.py --dry-run

Expected before running: stage two adds most where stage one sees few labels; rho2 of 0 is below any of 20 to 1000.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
import tyro

from tlm_ray import Options, Training, markdown_rows, plain_errors, ray_options, run, show_plan, storage

SCORES = {"stage one alone": "stage_one_dev", "both stages": "dev"}


@dataclass(frozen=True, kw_only=True)
class Ablations(Options):
    """Options of the ablations."""

    rho2s: list[float] = field(default_factory=lambda: [0.0, 20.0])
    """values of rho2: weight of the MLM loss in task batches"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rho2 is not None:
            raise ValueError(f"--rho2 {self.rho2:g}: give --rho2s, the values to compare")
        if self.external_only:
            raise ValueError("--external-only: without task batches there is no rho2, and no score of stage one")


def trainings(options: Ablations) -> list[Training]:
    """One training a rho2, task and seed."""
    return [
        Training(row=f"rho2 = {rho2:g}", task=task, recipe=replace(options.recipe(task), rho2=rho2), seed=seed)
        for rho2 in options.rho2s
        for task in options.tasks
        for seed in range(options.seeds)
    ]


def table(facts: Mapping[Training, Mapping[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table: a line a rho2, two columns a task."""
    rows, tasks = (list(dict.fromkeys(getattr(training, name) for training in facts)) for name in ("row", "task"))
    header = ["", *(f"{task.rstrip('/').rpartition('/')[2]}, {name}" for task in tasks for name in SCORES)]
    lines = [
        [row]
        + [
            _mean([facts[t][score] for t in facts if (t.row, t.task) == (row, task)])
            for task in tasks
            for score in SCORES.values()
        ]
        for row in rows
    ]
    return markdown_rows(header, lines, right=range(1, len(header)))


def _mean(scores: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):.2f}{spread}"


def main() -> None:
    options = tyro.cli(Ablations, description=__doc__)
    if options.dry_run:
        show_plan(trainings(options), options)
        return
    ray.init(**ray_options())
    outcome = run(trainings(options), options, name="ablations")
    lines = table({training: outcome.facts(training) for training in outcome.stages})
    print("\n".join(lines))
    uri = storage.join(storage.absolute(options.out), "ablations.md")
    storage.write_bytes(uri, ("\n".join(lines) + "\n").encode())
    outcome.tracker.attach([uri])
    print(uri)


if __name__ == "__main__":
    with plain_errors():
        main()
