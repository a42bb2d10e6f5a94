"""Repeated general text: which blocks are kept, how often they are passed over, and the experiment's rows."""

import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from small import small_flow, small_recipe

from tlm_ray import make
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.stages.records import Records
from tlm_ray.training.tokens.blocks import Blocks, read_blocks

REPEATS = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "repeats.py"))["Repeats"]


def test_a_share_of_blocks_is_spread_over_all_ranks():
    rows = Blocks(np.arange(30, dtype=np.int32), np.arange(0, 31, 3), ranks=np.arange(10, dtype=np.int32))
    half = rows.spread(0.5)
    assert half.tokens.reshape(-1, 3)[:, 0].tolist() == [0, 6, 12, 18, 24] and half.ranks.tolist() == [0, 2, 4, 6, 8]
    assert half.offsets.tolist() == [0, 3, 6, 9, 12, 15]
    assert rows.spread(1) is rows and len(rows.spread(0.01)) == 1 and len(rows.spread(0.26)) == 3


@pytest.mark.usefixtures("alone")
def test_less_text_is_passed_over_more_often(data, tmp_path):
    flow, table = small_flow(data, tmp_path), REPEATS(seeds=1, shares=[0.1])
    rows = table.vary(small_recipe())
    trainings = [Training(row=row, task="topics", recipe=recipe) for row, recipe in rows.items()]
    whole, less = (training.stages(flow) for training in trainings)
    assert whole.blocks.fingerprint == less.blocks.fingerprint != whole.stage_one.fingerprint
    make([whole.metrics, less.metrics], flow.execution.root)
    facts = [stages.stage_one.record(flow.execution.root)["facts"] for stages in (whole, less)]
    blocks = len(read_blocks(f"{whole.blocks.folder(flow.execution.root)}/general.arrow").cut(5))
    assert facts[0]["passes"] == {"general": round(8 * 8 / blocks, 2), "task": round(4 * 8 / 60, 2)}
    assert facts[1]["passes"]["general"] == pytest.approx(10 * facts[0]["passes"]["general"], rel=0.1)
    stages = dict(zip(trainings, (whole, less), strict=True))
    outcome = SimpleNamespace(stages=stages, records=Records(flow.execution.root))
    said = table.notes(outcome)
    assert said[0].startswith("all blocks: 0.2 passes over general text, last losses: general_mlm ")
    assert said[1].startswith("0.1 of the blocks: ") and table.expected(list(rows)) == [tuple(rows)]


def test_shares_are_shares():
    for wrong in ([], [0.5, 1.0], [0.0]):
        with pytest.raises(ValueError, match=r"--shares .*: give one or more, each between 0 and 1"):
            REPEATS(shares=wrong)
    with pytest.raises(ValueError, match="general_share 0: must be above 0 and at most 1, a share of blocks"):
        small_recipe(general_share=0)
    assert small_recipe(general_share=0.5).settings_one(0).identity != small_recipe().settings_one(0).identity
    alone = replace(small_recipe(k=0, rho1=0), general_share=0.5)
    assert alone.settings_one(0) == small_recipe(k=0, rho1=0).settings_one(0), "without general text it changes nothing"
