"""The table that `fault_plan.py` makes while it breaks things: one row of a small recipe, whose steps are counted.

It is an experiment as any other, so that what it survives others survive, but for its report: one file of scores.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import ray
import torch
from small import GEOMETRY, STAGE_ONE, small_recipe
from torch import nn

from tlm_ray import Flow, Recipe, Table, Training, parse, plain_errors, ray_options, run, storage
from tlm_ray.identity import NO_RESULT
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.optimizers import AdamW

LONG = replace(STAGE_ONE, steps=600, warmup_steps=30, evaluate_every=150, log_every=7)
SHORT = replace(LONG, steps=200, warmup_steps=10, evaluate_every=50)


@dataclass(frozen=True, kw_only=True)
class Counted(AdamW):
    """AdamW that adds a byte to a file with each step of a worker."""

    path: str = field(default="", metadata=NO_RESULT)

    def make(self, model: nn.Module, *, weight_decay: float) -> torch.optim.Optimizer:
        """Return the optimizer, with a hook."""
        made = super().make(model, weight_decay=weight_decay)
        made.register_step_post_hook(self._count)
        return made

    def _count(self, *_: Any) -> None:
        with open(self.path, "ab") as file:
            file.write(b".")


@dataclass(frozen=True, kw_only=True)
class FaultTable(Table):
    """Options of the table."""

    name, split = "fault_table", "test"
    counted: str
    """local file that grows by a byte with each step of each worker"""

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Train on text that was searched for."""
        start = Scratch(replace(GEOMETRY, dropout=0.1))
        optimizer = Counted(path=storage.absolute(self.counted))
        small = small_recipe(start=start, stage_one=LONG, stage_two=SHORT, optimizer=optimizer)
        return {"BM25 text": small}

    def trainings(self, flow: Flow) -> list[Training]:
        """Leave plain classifiers out."""
        return [one for one in super().trainings(flow) if isinstance(one.recipe, Recipe)]

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Nothing, of one row."""
        return []


def main() -> None:
    table = parse(FaultTable, __doc__)
    flow = table.flow()
    trainings = table.trainings(flow)
    ray.init(**ray_options())
    outcome = run(trainings, flow, name=table.name, tracking_uri=table.place.tracking_uri)
    scores = {f"{one.row}, seed {one.seed}": outcome.facts(one) for one in trainings}
    storage.write_json(storage.join(table.place.out, f"{table.name}.json"), scores)


if __name__ == "__main__":
    with plain_errors():
        main()
