"""What a run asks of a cluster before it starts: settings left to the cluster, and requests that can never be met."""

import pytest

from tlm_ray.compute import Compute, places
from tlm_ray.runs import preflight
from tlm_ray.runs.stages.making import Execution

NODE = {"Alive": True, "NodeID": "a", "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 8.0, "GPU": 2.0}}


@pytest.fixture
def cluster(monkeypatch):
    """Return a function that gives `ray.nodes()` an answer."""

    def of(*nodes):
        monkeypatch.setattr(preflight.ray, "nodes", lambda: list(nodes))

    return of


def test_what_is_left_to_the_cluster_is_filled_in_and_what_is_given_stays(cluster):
    cluster(NODE, NODE, NODE | {"Alive": False})
    compute = Compute(workers=2, resources={"CPU": 1.0, "GPU": 1.0})
    fitted = preflight.fitted(Execution(root="r", workers=0, side_by_side=0, compute=compute))
    assert (fitted.workers, fitted.side_by_side) == (16, 2)
    given = Execution(root="r", workers=3, side_by_side=1, compute=compute)
    assert preflight.fitted(given) == given


@pytest.mark.parametrize("resources", [{}, {"CPU": 0.0}, {"CPU": 0.0, "GPU": 0.0}])
def test_a_worker_that_needs_nothing_is_refused(resources):
    with pytest.raises(ValueError, match="a training worker needs something; give CPU: 1"):
        places(resources, [NODE])
    assert places({"CPU": 0.0, "GPU": 1.0}, [NODE]) == 2
    assert places({"CPU": 0.2}, [{"Resources": {"CPU": 1.0}}]) == 5, "1 // 0.2 is 4"


def test_a_local_root_or_corpus_of_several_nodes_is_refused(cluster, tmp_path):
    cluster(NODE, NODE)
    with pytest.raises(ValueError, match=r"root '.*' is local, but the cluster has 2 nodes, which do not share it"):
        preflight.check_cluster(Execution(root=str(tmp_path)))
    cluster(NODE)
    preflight.check_cluster(Execution(root=str(tmp_path)), [str(tmp_path)])
    with pytest.raises(ValueError, match="the cluster has 1 nodes and adds more"):
        preflight.check_cluster(Execution(root=str(tmp_path), workers=4, autoscaling=True))
    with pytest.raises(ValueError, match=r"train_workers 1 with 64 GPU each.*room for 0"):
        preflight.check_cluster(Execution(root=str(tmp_path), compute=Compute(resources={"GPU": 64.0})))


def test_an_elastic_training_needs_room_for_its_least_workers_alone(cluster, tmp_path):
    cluster(NODE)
    resources = {"CPU": 4.0}
    elastic = Compute(workers=8, least_workers=2, resources=resources)
    preflight.check_cluster(Execution(root=str(tmp_path), compute=elastic))
    few = Compute(workers=8, least_workers=3, resources=resources)
    with pytest.raises(ValueError, match=r"train_workers 3 with 4 CPU each.*room for 2"):
        preflight.check_cluster(Execution(root=str(tmp_path), compute=few))


def test_an_elastic_training_refuses_numbers_that_are_no_range():
    for least in (-1, 3):
        with pytest.raises(ValueError, match=rf"least_workers {least}: must be from 1 to workers \(2\), or 0 for"):
            Compute(workers=2, least_workers=least)
    with pytest.raises(ValueError, match="workers 2: with `here` a training has 1"):
        Compute(workers=2, here=True)
