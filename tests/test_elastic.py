"""A training with as many workers as there is room for: nodes that go and come change their number and no batch."""

import numpy as np
import pytest
from test_spot import found, run

pytestmark = [pytest.mark.slow, pytest.mark.long]

TRAINING = """
import torch.distributed as dist
from small import STAGE_ONE, small_flow, small_recipe
from tlm_ray import make
from tlm_ray.compute import Compute
from tlm_ray.training.launching import launch
from tlm_ray.training.loop.optimizers import AdamW

data, root = Path(sys.argv[1]), Path(sys.argv[2])
sizes, gone = root / "sizes", root / "gone"
root.mkdir()
launch.RESIZE_EVERY_S = 2.0

@dataclass(frozen=True, kw_only=True)
class Waiting(AdamW):
    def make(self, model, **options):
        made, world = super().make(model, **options), dist.get_world_size() if dist.is_initialized() else 1
        with sizes.open("a") as file:
            file.write(f"{world} ")
        steps = []
        made.register_step_post_hook(lambda *_: (steps.append(world), self.wait(world, len(steps))))
        return made

    def wait(self, world, steps):
        if world == 2 and steps == 30:
            wait_for(gone.exists, timeout_s=250)
        if world == 1 and steps == 30:
            wait_for(lambda: False, timeout_s=250)  # until it is ended, to go on with two

def change_nodes():
    wait_for(lambda: sizes.exists() and sizes.read_text() == "2 2 ", timeout_s=250)
    wait_for(lambda: list(root.glob("elastic/stage_one/*/checkpoints/*/state.json")), timeout_s=250)
    cluster.remove_node(next(iter(cluster.worker_nodes)))
    gone.touch()
    wait_for(lambda: sizes.read_text() == "2 2 1 ", timeout_s=250)
    cluster.add_node(num_cpus=CPUS)

def train(name, **options):
    recipe = small_recipe(k=0, stage_one=replace(STAGE_ONE, steps=80, evaluate_every=20))
    if name == "elastic":
        recipe = replace(recipe, optimizer=Waiting())
    flow = small_flow(data, root / name, compute=Compute(**options))
    stage = flow.stages(recipe, "topics", 0).stage_one
    history = make([stage], str(root / name))[stage.fingerprint]["facts"]["history"]
    return [[entry["task_mlm"], entry["task"]] for entry in history]

one = train("one")
with ThreadPoolExecutor() as threads:
    trained = threads.submit(train, "elastic", workers=2, least_workers=1)
    change_nodes()  # a node starts in the main thread alone
    elastic = trained.result()
print("found", json.dumps({"one": one, "elastic": elastic, "sizes": sizes.read_text().split()}))
"""


def test_nodes_that_go_and_come_change_the_number_of_workers_and_no_loss_but_by_rounding(data, tmp_path):
    (made,) = found(run(TRAINING, str(data), str(tmp_path / "root"), cpus=1))
    assert made["sizes"] == ["2", "2", "1", "2", "2"]
    assert len(made["one"]) == 80
    np.testing.assert_allclose(made["elastic"], made["one"], rtol=1e-4)
