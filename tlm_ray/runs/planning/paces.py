"""Measure the pace of trainings on this hardware once, and cache it under the root."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.console import console
from tlm_ray.runs.planning.sizes import Sizes
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.provenance import processor
from tlm_ray.runs.stages.stage import Stage, Stages
from tlm_ray.training.calibration import Load, seconds_a_step
from tlm_ray.training.settings import StageOne, StageSettings

PACES = "paces.json"  # under the root, so that a budget in minutes gives the same recipe again
CPU_SHARE = "/sys/fs/cgroup/cpu.max"  # "max 100000", or microseconds of each period of as many
PREDICTED = 0.12  # time to predict per token, as a share of the time to train


@dataclass(frozen=True, kw_only=True)
class Paces:
    """Seconds of trainings on given hardware."""

    execution: Execution
    """hardware of trainings"""
    measures: bool = True
    """whether to measure unknown paces, which takes some seconds each"""

    @property
    def side_by_side(self) -> int:
        """The number of parallel trainings: as requested, or as many as this machine's CPUs allow without a cluster."""
        compute = self.execution.compute
        if self.execution.side_by_side or compute.gpu or os.environ.get("RAY_ADDRESS"):
            return self.execution.side_by_side or 1
        return max(1, int(machine_cpus() // ((compute.resources.get("CPU", 1) or 1) * compute.workers)))

    @property
    def can_measure(self) -> bool:
        """Whether this process has the hardware of the trainings."""
        if not self.execution.compute.gpu:
            return True
        import torch

        return torch.cuda.is_available()

    def knows(self, recipe: Recipe, settings: StageSettings, sizes: Sizes) -> bool:
        """Return whether the pace of a training stage is known or can be measured."""
        known = self._name(load_of(recipe, settings, sizes, self.execution)) in self._known()
        return known or (self.measures and self.can_measure)

    def seconds(self, recipe: Recipe, settings: StageSettings, sizes: Sizes, steps: int) -> float:
        """Return the seconds of a training stage, including evaluations."""
        load = load_of(recipe, settings, sizes, self.execution)
        pace, schedule = self.a_step(load), settings.schedule
        rows = 0.0 if load.settings.losses.keys() == {"general"} else sizes.dev_rows
        scored = steps / schedule.evaluate_every * rows / schedule.batch_rows
        return start_seconds(self.execution.compute) + pace * (steps + PREDICTED * scored)

    def a_step(self, load: Load) -> float:
        """Return the seconds per step; an unknown pace is measured, with a printed line."""
        known, name = self._known(), self._name(load)
        if name not in known:
            stage = "stage one" if isinstance(load.settings, StageOne) else "stage two"
            console.print(f"measuring the pace of {stage}, {self.side_by_side} in parallel", style="dim")
            known[name] = self._measured(load)
            storage.write_record(self._uri, known)
        return known[name]

    @property
    def _uri(self) -> str:
        return storage.join(self.execution.root, PACES)

    def _known(self) -> dict[str, float]:
        return storage.read_record(self._uri, fix="delete this file") if storage.exists(self._uri) else {}

    def _name(self, load: Load) -> str:
        return f"{load.key} {self._hardware} x {self.side_by_side}"

    @property
    def _hardware(self) -> str:
        if not self.execution.compute.gpu:
            return processor()
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "a GPU elsewhere"

    def _measured(self, load: Load) -> float:
        device, start = "cuda" if self.execution.compute.gpu else "cpu", load.settings.start
        try:
            return seconds_a_step(load, side_by_side=self.side_by_side, device=device)
        except OSError as error:
            source = getattr(start, "source", type(start).__name__)
            raise ValueError(
                f"encoder {source!r}: cannot be opened ({str(error).splitlines()[0]}); give a name on the "
                "Hugging Face hub, or a local folder"
            ) from error


def start_seconds(compute: Compute) -> float:
    """Return the seconds of a training stage besides its steps, with one training per core.

    One worker on a CPU reuses a warm process; others start new ones.
    """
    return 0.5 if compute.workers == 1 and not compute.gpu else 15.0


def load_of(recipe: Recipe, settings: StageSettings, sizes: Sizes, execution: Execution) -> Load:
    """Return the load of a training stage."""
    return Load(
        settings=settings,
        lengths={"general": sizes.general_tokens, "task": sizes.task_tokens},
        vocabulary=recipe.vocabulary,
        classes=sizes.classes,
        workers=execution.compute.workers,
        threads=1 if execution.compute.gpu else execution.compute.threads,
    )


def trainings_of(recipe: Recipe, stages: Stages, seed: int) -> Iterator[tuple[Recipe, Stage, StageSettings]]:
    """Yield the training stages of a training with recipe and settings, predecessors first."""
    if recipe.after is not None and stages.before is not None:
        yield from trainings_of(recipe.after, stages.before, seed)
    if stages.stage_one is not None:
        yield recipe, stages.stage_one, recipe.settings_one(seed)
    if stages.stage_two is not None:
        yield recipe, stages.stage_two, recipe.settings_two(seed, recipe.start)


def machine_cpus() -> int:
    """Return the number of CPUs that this process may use, by its affinity and its container's limit."""
    allowed = len(os.sched_getaffinity(0))
    share = storage.read_bytes(CPU_SHARE).split() if storage.exists(CPU_SHARE) else [b"max"]
    return allowed if share[0] == b"max" else max(1, min(allowed, int(share[0]) // int(share[1])))
