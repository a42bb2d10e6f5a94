"""A training in the process that makes its stage: the same stage and the same result, without another process."""

from dataclasses import replace

import pytest
from small import STAGE_ONE, small_flow, small_recipe
from trainings import one_thread, untimed  # noqa: F401 - a fixture

from tlm_ray import parallel
from tlm_ray.compute import Compute
from tlm_ray.runs.stages.making import make
from tlm_ray.training.loop import progress


@pytest.mark.usefixtures("alone")
def test_a_training_here_is_that_of_a_task_and_tells_its_followers(data, tmp_path, monkeypatch):
    recipe = small_recipe(k=0, stage_one=replace(STAGE_ONE, log_every=2))
    flow = small_flow(data, tmp_path)
    stages = flow.stages(recipe, "topics", 0)
    of_a_task = make([stages.stage_one], str(tmp_path))[stages.stage_one.fingerprint]

    told, root = [], str(tmp_path / "here")
    make([stages.blocks], root)
    monkeypatch.setattr(parallel, "on_worker", None)
    monkeypatch.setattr(progress, "NOTE_EVERY_S", 0.0)
    here = replace(
        small_flow(data, tmp_path / "here", compute=Compute(here=True)), followers=lambda stage: [told.append]
    )
    stage = here.stages(recipe, "topics", 0).stage_one
    made = make([stage], root)[stage.fingerprint]
    assert stage.fingerprint == stages.stage_one.fingerprint
    assert untimed(made["facts"]["history"]) == untimed(of_a_task["facts"]["history"])
    assert told and [entry["step"] for entry in told[-1]] == [2 * n + 2 for n in range(len(told[-1]))]
