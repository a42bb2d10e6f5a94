"""Families of encoders: their parameters are counted as transformers counts them, and each makes a row from counts."""

from dataclasses import replace

import pytest
import transformers
from small import GEOMETRY as SMALL
from small import small_flow, small_recipe

from tlm_ray import make
from tlm_ray.training.encoders.families import FAMILIES, Albert, DistilBert, Geometry
from tlm_ray.training.encoders.starts import Scratch, scratch_config
from tlm_ray.training.objectives import Clm, Spans, TextLabels
from tlm_ray.training.tokens.counts import Counts

OPENS_AS = {"gpt2": "AutoModelForCausalLM", "t5": "AutoModelForSeq2SeqLM"}
OWN = {"gpt2": {"objectives": (Clm(),)}, "t5": {"objectives": (Spans(),), "labels": TextLabels()}}
BASE = Geometry(layers=12, width=768, heads=12, intermediate=3072)
GEOMETRY = Geometry(layers=3, width=48, heads=4, intermediate=100, positions=40, family="bert")


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_are_counted_as_transformers_does(name):
    geometry = replace(GEOMETRY, family=Albert(table=20) if name == "albert" else name)
    config = scratch_config(geometry, vocabulary=77, pad_id=0, labels=("a", "b"))
    kind = getattr(transformers, OPENS_AS.get(name, "AutoModelForMaskedLM"))
    assert geometry.parameters(vocabulary=77) == kind.from_config(config).num_parameters()


def test_published_sizes():
    assert Albert().parameters(BASE, vocabulary=30_000) == 11_221_680
    assert DistilBert().parameters(replace(BASE, layers=6), vocabulary=30_522) == 66_985_530


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_begins_with_counts_and_makes_a_row(data, tmp_path, name):
    geometry = replace(SMALL, layers=2, family=Albert(table=16) if name == "albert" else name)
    recipe = small_recipe(start=Scratch(geometry), counts=Counts(), **OWN.get(name, {}))
    assert recipe.start.width == (16 if name == "albert" else 32)
    flow = small_flow(data, tmp_path)
    stages = flow.stages(recipe, "topics", 0)
    make([stages.metrics], flow.execution.root)
    facts = stages.stage_one.record(flow.execution.root)["facts"]
    assert facts["parameters"] >= recipe.start.parameters(vocabulary=100) and facts["flops_counted"] > 0


def test_a_table_has_a_width():
    with pytest.raises(ValueError, match="albert table 0: must be 1 or more, the width of token embeddings"):
        Albert(table=0)
