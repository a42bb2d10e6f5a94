"""Adapt Ray Train's trainer; a separate module, because it imports torch (1.5 s)."""

from typing import Any

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

from tlm_ray.training.failures import OnlyLostWorkers

# Each would start a process of 200 MB per training. `tlm_ray.training.placement.free_orphans` replaces the first; the
# second serves Ray Data's streams.
UNUSED = (PlacementGroupCleanerCallback, DatasetsCallback)


class RayTrainer(TorchTrainer):
    """Ray Train's trainer without its unused processes; it retries after lost workers."""

    def _initialize_and_run_controller(self, **options: Any) -> Any:
        options["failure_policy"] = OnlyLostWorkers(self.run_config.failure_config)  # type: ignore[arg-type]
        return super()._initialize_and_run_controller(**options)  # type: ignore[misc]

    def _create_default_callbacks(self) -> list[Any]:
        found = super()._create_default_callbacks()  # type: ignore[misc]  # Ray's annotations are those of Train V1
        return [callback for callback in found if not isinstance(callback, UNUSED)]
