"""Ray Train's trainer without what a training here does not need. A module of its own: it imports torch (1.5 s)."""

from typing import Any

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

# Each starts a process of 200 MB per training: one whose work
# `tlm_ray.training.placement.free_orphans` does, one for Ray Data's streams.
UNUSED = (PlacementGroupCleanerCallback, DatasetsCallback)


class RayTrainer(TorchTrainer):
    """Ray Train's trainer without the processes that a training here does not need."""

    def _create_default_callbacks(self) -> list[Any]:
        found = super()._create_default_callbacks()  # type: ignore[misc]  # Ray's annotations are those of Train V1
        return [callback for callback in found if not isinstance(callback, UNUSED)]
