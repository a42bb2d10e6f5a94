"""What trainings hold of the cluster, and how it is freed when their controller is gone.

Ray Train's controller reserves its workers' resources as a placement group. Ray keeps the group of a dead controller
until the whole job ends, so a controller that was lost, or that died with the Tune trial that started it, leaves its
CPUs and GPUs taken, and whatever waits for them waits for ever. Ray Train has a process per training against that, but
the process asks the State API, a part of the dashboard, which `ray_options` leaves out (12 processes, 1.1 GB): it asks
in vain each second and outlives the training. Ray's control store itself knows which groups' creators are dead.
"""

import ray
from ray._private.state import state
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]
from ray.util.placement_group import PlacementGroup, remove_placement_group


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
