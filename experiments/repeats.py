"""Repeat less general text more often, on development scores.

    python experiments/repeats.py                                                        # embedded data
    python experiments/repeats.py --scale mini --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/repeats.py --dry-run

All rows take equally many steps of one retrieval and one tokenizer. A row trains on a share of the selected blocks, at
equal distances in the order of their ranks. Below the table: how often stage one passed over its text, and its losses.

T5's paper (Raffel et al. 2020) reports for GLUE 83.28 without a repeat, then 82.87, 82.62, 79.55 and 76.34 for
64, 256, 1,024 and 4,096 passes; its training loss falls as text is repeated more often.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import ray

from tlm_ray import Outcome, Recipe, Stages, Table, main

ALL = "all blocks"


@dataclass(frozen=True, kw_only=True)
class Repeats(Table):
    """Options of the table of repeated text."""

    name, needs_general = "repeats", True

    shares: list[float] = field(default_factory=lambda: [0.25, 0.0625, 0.015625])
    """shares of the blocks to train on, a row each, beside all"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shares or not all(0 < share < 1 for share in self.shares):
            raise ValueError(f"--shares {' '.join(map(str, self.shares))}: give one or more, each between 0 and 1")

    def vary(self, recipe: Recipe) -> Mapping[str, Recipe]:
        """Return a recipe per share."""
        less = {f"{share:g} of the blocks": replace(recipe, general_share=share) for share in self.shares}
        return {ALL: recipe} | less

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect all text above repeated text."""
        return [(ALL, row) for row in rows if row != ALL]

    def notes(self, outcome: Outcome) -> list[str]:
        """Return the passes over general text and the last losses of stage one, means over tasks and seeds."""
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for training, stages in outcome.stages.items():
            if isinstance(stages, Stages) and stages.stage_one is not None:
                rows.setdefault(training.row, []).append(outcome.records.facts(stages.stage_one))
        return [
            f"{row}: {passes_of(facts)} passes over general text, last losses: "
            + ", ".join(f"{name} {fmean(last(one, name) for one in facts):.2f}" for name in losses_of(facts))
            for row, facts in rows.items()
        ]


def passes_of(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean passes over general text; earlier versions did not record them."""
    passes = [one.get("passes", {}).get("general") for one in facts]
    return "unknown" if None in passes else f"{fmean(passes):,.1f}"


def last(facts: Mapping[str, Any], name: str) -> float:
    """Return the last value of a loss."""
    return next(entry[name] for entry in reversed(facts["history"]) if name in entry)


def losses_of(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the losses of general text."""
    names = dict.fromkeys(name for entry in facts[0]["history"] for name in entry)
    return [name for name in names if name.startswith("general_")]


if __name__ == "__main__":
    main(Repeats, __doc__, ray.init)
