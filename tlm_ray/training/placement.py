"""Free the resources of trainings whose Ray Train controller died.

The controller reserves its workers' resources as a placement group. Ray keeps a dead controller's group until the whole
job ends. So its CPUs and GPUs stay reserved, and tasks that need them wait forever. This happens when a controller is
lost, or dies with the Tune trial that started it.

Ray Train's own remedy is a process per training. That process polls the State API, a part of the dashboard, each second
and outlives the training. `ray_options` disables the dashboard (12 processes, 1.1 GB), so these requests fail. Ray's
control store itself records the groups of dead creators.
"""

import ray
from ray._private.state import state
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]
from ray.util.placement_group import PlacementGroup, remove_placement_group


def free_orphans() -> None:
    """Remove this job's placement groups whose creator is a dead actor, with all their processes.

    Groups of live controllers, of other jobs and of drivers are kept.
    """
    job, nobody = ray.get_runtime_context().get_job_id(), (b"", ray.ActorID.nil().binary())
    for row in state._connect_and_get_accessor().get_placement_group_table():
        group = PlacementGroupTableData.FromString(row)
        orphan = group.creator_actor_dead and group.creator_actor_id not in nobody
        if orphan and group.creator_job_id.hex() == job and group.state != PlacementGroupTableData.REMOVED:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))
