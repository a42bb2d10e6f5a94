"""Run an experiment whose rows take as many counted operations as its first row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tlm_ray.runs.cli.table import Table, chosen
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.equal_cost import of_equal_cost
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.tokens.estimated import mean_tokens

EMBEDDED_TOKENS, GENERAL_TOKENS = (37, 45), 84  # as the facts of blocks say, the latter of chemprot at mini


@dataclass(frozen=True, kw_only=True)
class EqualCostTable(Table):
    """The command line of an experiment with rows of equal cost; derive yours from it."""

    row_tokens: tuple[int, int] = (0, 0)
    """mean tokens of general and task rows, for equal operations (default: 37 45 for the embedded data, else 84 and
    an estimate from the task's texts)"""
    rows: list[str] = field(default_factory=list)
    """rows to train, each name in quotes (default: all)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(self.row_tokens) and min(self.row_tokens) < 1:
            given = " ".join(map(str, self.row_tokens))
            raise ValueError(f"--row-tokens {given}: give both means, of general and of task rows, from 1 on")

    def recipes(self, task: str, flow: Flow) -> Mapping[str, Recipe]:
        """Return the rows of a task, with the steps of equal cost in both stages.

        The encoder of `--architecture` has no sizes to plan with, so all its rows take equally many steps.
        """
        every = super().recipes(task, flow)
        rows, first = chosen(every, self.rows), next(iter(every.values()))
        if not all(isinstance(recipe.start, Scratch) for recipe in rows.values()):
            return rows
        sizes = planned_sizes(task, flow, longest=first.task_tokens)
        sizes |= {"row_tokens": self.row_tokens} if all(self.row_tokens) else {}
        return {
            row: recipe if self.keeps_steps(row) else of_equal_cost(recipe, first, **sizes)
            for row, recipe in rows.items()
        }

    def keeps_steps(self, row: str) -> bool:
        """Return whether a row keeps its steps, whatever they cost."""
        return False


def planned_sizes(task: str, flow: Flow, *, longest: int) -> dict[str, Any]:
    """Return what `of_equal_cost` must know of a task, whose rows have at most `longest` tokens.

    Its files are read, and nothing is tokenised.
    """
    if flow.is_embedded(task):
        return {"row_tokens": EMBEDDED_TOKENS}
    own = flow.read(task)
    return {"row_tokens": (GENERAL_TOKENS, mean_tokens(own.train_texts, longest=longest)), "labels": own.labels}
