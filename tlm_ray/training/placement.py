"""What trainings hold of the cluster, and how it is freed when their controller is gone.

Ray Train's controller reserves its workers' resources as a placement group. Ray keeps the group of a dead controller
until the whole job ends, so a controller that was lost, or that died with the Tune trial that started it, leaves its
CPUs and GPUs taken, and whatever waits for them waits for ever. Ray Train has a process per training against that, but
the process asks the State API, a part of the dashboard, which `ray_options` leaves out (12 processes, 1.1 GB): it asks
in vain each second and outlives the training. Ray's control store itself knows which groups' creators are dead.
"""

from typing import Any

import ray
from ray._private.state import state
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.util.placement_group import PlacementGroup, remove_placement_group

# Each starts a process of 200 MB per training: one whose work `free_orphans` does, one for Ray Data's streams.
UNUSED = (PlacementGroupCleanerCallback, DatasetsCallback)


class RayTrainer(TorchTrainer):
    """Ray Train's trainer without the processes that a training here does not need."""

    def _create_default_callbacks(self) -> list[Any]:
        found = super()._create_default_callbacks()  # type: ignore[misc]  # Ray's annotations are those of Train V1
        return [callback for callback in found if not isinstance(callback, UNUSED)]


def free_orphans() -> None:
    """Remove the placement groups of this job that a dead actor has created, and all processes in them.

    Groups of living controllers, of other jobs and of drivers stay.
    """
    job, nobody = ray.get_runtime_context().get_job_id(), (b"", ray.ActorID.nil().binary())
    for row in state._connect_and_get_accessor().get_placement_group_table():
        group = PlacementGroupTableData.FromString(row)
        orphan = group.creator_actor_dead and group.creator_actor_id not in nobody
        if orphan and group.creator_job_id.hex() == job and group.state != PlacementGroupTableData.REMOVED:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))
