"""What every retry would meet again ends a training at once, with its own cause in one line; lost workers do not."""

import sys
import threading
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import ray
import torch.distributed as dist
from small import small_flow, small_recipe

from tlm_ray.runs.execution import make
from tlm_ray.training.errors import TrainingStopped
from tlm_ray.training.objectives import Mlm
from tlm_ray.training.settings import Compute

pytestmark = pytest.mark.usefixtures("ray_cluster")


@dataclass(frozen=True)
class Misread(Mlm):
    """An objective with a mistake: the last worker reads a place that is not there, and notes that it did."""

    notes: str = ""

    def loss(self, head: Any, features: Any, prediction: Any) -> Any:
        first = not dist.is_initialized()
        if first or dist.get_rank() == dist.get_world_size() - 1:
            with Path(self.notes).open("a") as notes:
                notes.write("read\n")
            return [][len(prediction.values)]
        return super().loss(head, features, prediction)


@dataclass(frozen=True)
class Held(Mlm):
    """An objective that cannot be sent."""

    lock: ClassVar[Any] = None

    def __reduce__(self) -> Any:
        return threading.Lock, (threading.Lock(),)


def train(data: Path, root: Path, workers: int, objective: Any) -> str:
    """Train a recipe with an objective of one's own; return how it ended."""
    flow = small_flow(data, root, compute=Compute(workers=workers), workers=2)
    stage = flow.stages(small_recipe(k=0, objectives=(objective,)), "topics", 0).stage_one
    with pytest.raises(TrainingStopped) as stopped:
        make([stage], flow.execution.root)
    return str(stopped.value)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_parts_own_code_is_met_once(data, tmp_path, workers):
    notes = tmp_path / "notes"
    said = train(data, tmp_path / "root", workers, Misread(notes=str(notes)))
    assert notes.read_text() == "read\n"
    assert "lost workers" not in said and "\n" not in said
    assert said.endswith("IndexError: list index out of range (test_permanent_failures.py:36); mend it and run again")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_that_cannot_be_sent_is_named(data, tmp_path, workers):
    said = train(data, tmp_path, workers, Held())
    assert "lost workers" not in said and "\n" not in said
    assert "cannot pickle '_thread.lock' object" in said


@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_of_a_module_that_workers_have_not_is_named(data, tmp_path, workers, monkeypatch):
    module = types.ModuleType("only_here")
    module.Here = type("Here", (Mlm,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", module)
    said = train(data, tmp_path, workers, module.Here())
    assert "lost workers" not in said and "\n" not in said
    assert "No module named 'only_here'" in said
