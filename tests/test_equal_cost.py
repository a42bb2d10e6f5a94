"""Recipes of equal cost: the counted operations of both stages are those of another recipe."""

import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from alone import in_this_process
from small import GEOMETRY, small_flow, small_recipe

from tlm_ray import make
from tlm_ray.runs.cli import equal_cost_table
from tlm_ray.runs.cli.options import Data, Place
from tlm_ray.runs.cli.recipe_options import Changes
from tlm_ray.runs.recipes.equal_cost import of_equal_cost
from tlm_ray.training.encoders.starts import Architecture, Pretrained, Scratch
from tlm_ray.training.objectives import Clm, Generator, Mlm, Rtd, SoftTokens, Spans, TextLabels
from tlm_ray.training.tokens.estimated import mean_tokens, name_tokens


def of_family(family, **changes):
    long = small_recipe(start=Scratch(replace(GEOMETRY, family=family)), k=10, **changes)
    return replace(long, stage_one=long.stage_one.of_steps(120), stage_two=long.stage_two.of_steps(72))


def counted(recipe, data, root) -> int:
    """Train a recipe; return the operations that were counted."""
    flow = small_flow(data, root)
    stages = flow.stages(recipe, "topics", 0)
    with in_this_process():
        make([stages.metrics], flow.execution.root)
    records = [stage.record(flow.execution.root)["facts"] for stage in stages.trained]
    assert [facts["steps"] for facts in records] == [recipe.stage_one.steps, recipe.stage_two.steps]
    return sum(facts["flops_counted"] for facts in records)


FIRST = of_family("bert", objectives=(Mlm(),))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def of_first(data, root) -> int:
    return counted(FIRST, data, root)


@pytest.mark.parametrize(
    "other",
    [
        of_family("electra", objectives=(Generator(share=0.5), Rtd()), exported="rtd"),
        of_family("gpt2", objectives=(Clm(),), auxiliary=(Clm(times=0.5),)),
    ],
    ids=["ELECTRA", "GPT"],
)
def test_counted_operations_are_within_two_per_cent(data, root, of_first, other):
    assert counted(of_equal_cost(other, FIRST, row_tokens=(34, 31)), data, root) == pytest.approx(of_first, rel=0.02)


OBJECTIVES = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "objectives.py"))["Objectives"]
NAMES = {"sea": "of the wave and the fish", "sky": "cloud", "kitchen": "garlic"}


@pytest.fixture
def named(data, tmp_path):
    """The small data with a long name of a label."""
    task = shutil.copytree(data / "tasks" / "topics", tmp_path / "tasks" / "topics")
    for file in task.iterdir():
        table = pq.read_table(file)
        names = pa.array([NAMES[label] for label in table["label"].to_pylist()])
        pq.write_table(table.set_column(table.schema.get_field_index("label"), "label", names), file)
    (tmp_path / "corpus").symlink_to(data / "corpus")
    return tmp_path


def test_a_decoder_is_planned_with_the_names_that_it_writes(named, tmp_path):
    read = small_flow(named, tmp_path).read("topics")
    sizes = {"row_tokens": (34, mean_tokens(read.train_texts, longest=48)), "labels": read.labels}
    t5 = of_family("t5", objectives=(Spans(),), labels=TextLabels(), vocabulary=300)
    first = replace(FIRST, vocabulary=300)  # tokenizers of other sizes make rows of other lengths
    of_first = counted(first, named, tmp_path / "root")
    assert counted(of_equal_cost(t5, first, **sizes), named, tmp_path / "root") == pytest.approx(of_first, rel=0.02)


def test_a_table_takes_lengths_and_names_from_the_tasks_files(data, named, tmp_path, monkeypatch):
    known = []
    monkeypatch.setattr(equal_cost_table, "of_equal_cost", lambda recipe, _, **sizes: known.append(sizes) or recipe)

    def sizes(folder, **given):
        table = OBJECTIVES(
            data=Data(tasks=["topics"], task_root=str(folder / "tasks")),
            changes=Changes(scale="tiny"),
            place=Place(root=str(tmp_path)),
            rows=["T5, spans"],
            **given,
        )
        assert len(table.recipes("topics", small_flow(folder, tmp_path))) == 1
        return known.pop()

    texts = pq.read_table(data / "tasks" / "topics" / "train.parquet")["text"].to_pylist()
    words = sum(len(text.replace(".", " .").split()) for text in texts) / len(texts)
    assert sizes(data)["row_tokens"] == sizes(named)["row_tokens"] == (84, round(2 + 1.15 * words))
    assert sizes(data, row_tokens=(80, 50))["row_tokens"] == (80, 50)
    assert sizes(data)["labels"] != sizes(named)["labels"] == tuple(sorted(NAMES.values()))


def test_tokens_are_estimated_from_words_and_signs():
    assert mean_tokens(["Waves, and tides.", "a " * 100], longest=40) == 24  # (2 + 1.15 x 5 and 40) / 2
    assert [name_tokens(name) for name in ("sea", "used-for", "")] == [2, 4, 0]


def test_the_same_recipe_keeps_its_steps():
    first = of_family("bert", objectives=(Mlm(),))
    assert of_equal_cost(first, first, row_tokens=(34, 31)) == first
    with pytest.raises(ValueError, match="other: has no stage one to equal; give a recipe that has one"):
        of_equal_cost(first, replace(first, start=Pretrained("folder"), stage_one=None), row_tokens=(34, 31))
    with pytest.raises(ValueError, match="row_tokens 60: rows have at most 48 tokens; give their mean"):
        of_equal_cost(replace(first, rho2=3.0), first, row_tokens=(60, 31))
    unknown = replace(first, start=Architecture("folder"))
    taught = replace(first, objectives=(Mlm(), SoftTokens()), teacher=first)
    with pytest.raises(ValueError, match="objectives labels, mlm, soft: their operations cannot be planned"):
        of_equal_cost(taught, first, row_tokens=(34, 31))
    with pytest.raises(ValueError, match=r"start Architecture: operations are planned for Scratch\(geometry\) or Pre"):
        of_equal_cost(unknown, first, row_tokens=(34, 31))


def test_rows_of_any_length_are_planned_with_one_model(monkeypatch):
    from tlm_ray.training import planned_flops

    made, flops = [], planned_flops.Flops
    monkeypatch.setattr(planned_flops, "Flops", lambda model: made.append(model) or flops(model))
    settings, sizes = FIRST.settings_one(0), {"vocabulary": 200, "longest": (48, 48)}
    planned_flops._counter.cache_clear()
    one, other, again = (
        planned_flops.step_flops(settings, row_tokens=tokens, **sizes) for tokens in ((20, 20), (40, 30), (20, 20))
    )
    assert one == again < other and len(made) == 1
    planned_flops._counter.cache_clear()
    assert planned_flops.step_flops(settings, row_tokens=(40, 30), **sizes) == other
