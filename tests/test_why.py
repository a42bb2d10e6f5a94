"""Why stages are to make: the one setting that was changed is named, whichever it is."""

import shutil
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from small import GEOMETRY, STAGE_ONE, STAGE_TWO, small_flow, small_recipe

from tlm_ray import storage
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.retrieval.methods import Bm25
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import RECORD
from tlm_ray.runs.stages.why import reasons
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.optimizers import AdamW
from tlm_ray.training.objectives import Labels, Mlm
from tlm_ray.training.tokens.counts import Counts
from tlm_ray.training.tokens.masking import Masking


def write_records(stage, root) -> None:
    """Write the records of a stage and of all that it needs, as if they had been made."""
    for each in stage.upstream():
        record = {"recipe": each.recipe, "facts": {}, "parts": each.parts}
        storage.write_record(storage.join(each.folder(root), RECORD), record)


@pytest.fixture
def laid(data, tmp_path):
    """A flow under whose root three trainings were made, of other tasks, seeds and recipes."""
    flow = small_flow(data, tmp_path / "root")
    shutil.copytree(data / "tasks" / "topics", tmp_path / "tasks" / "others")
    other = replace(small_flow(data, tmp_path / "root"), task_root=str(tmp_path / "tasks"))
    for stages in (
        flow.stages(small_recipe(), "topics", 0),
        flow.stages(small_recipe(rho2=3, k=4), "topics", 5),
        other.stages(small_recipe(k=3, rho1=9, vocabulary=150), "others", 0),
    ):
        write_records(stages.metrics, flow.execution.root)
    return flow


CHANGES = {
    "stage_one: k": {"k": 3},
    "stage_one: rho1": {"rho1": 9},
    "stage_one: rho2": {"rho2": 7},
    "stage_one: schedule.steps": {"stage_one": replace(STAGE_ONE, steps=13)},
    "stage_one: schedule.learning_rate": {"stage_one": replace(STAGE_ONE, learning_rate=3e-4)},
    "stage_one: schedule.batch_rows": {"stage_one": replace(STAGE_ONE, batch_rows=4)},
    "stage_one: schedule.averaged": {"stage_one": replace(STAGE_ONE, averaged=0.5)},
    "stage_one: weighting": {"weighting": "paper"},
    "stage_one: geometry.width": {"start": Scratch(replace(GEOMETRY, width=64))},
    "stage_one: geometry.layers": {"start": Scratch(replace(GEOMETRY, layers=2))},
    "stage_one: geometry.dropout": {"start": Scratch(replace(GEOMETRY, dropout=0.2))},
    "stage_one: objectives[0].masking.share": {"objectives": (Mlm(Masking(share=0.3)),)},
    "stage_one: optimizer.epsilon": {"optimizer": AdamW(epsilon=1e-8)},
    "stage_one: precision": {"precision": "bf16"},
    "stage_two: schedule.weight_decay": {"stage_two": replace(STAGE_TWO, weight_decay=0.1)},
    "stage_two: labels.smoothing": {"labels": Labels(smoothing=0.2)},
    "passages: passage_tokens": {"passage_tokens": 40},
    "passages: share": {"corpus_share": 0.5},
    "neighbours: depth": {"depth": 12},
    "neighbours: k1": {"method": Bm25(k1=2.0)},
    "neighbours: method": {"method": "dsir"},
    "tokenizer: vocabulary": {"vocabulary": 300},
    "blocks: block_tokens": {"block_tokens": 40},
    "blocks: task_tokens": {"task_tokens": 40},
    "counts: the first of its kind": {"counts": Counts()},
}
# Settings that have no name of their own in the nearest result, which was made with their default.
WITH_IT = {
    "stage_one: schedule.averaged", "stage_one: objectives[0].masking.share", "stage_one: optimizer.epsilon",
    "stage_two: labels.smoothing", "neighbours: method",
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_the_setting_that_was_changed_is_named_and_no_other(laid, name):
    stages = laid.stages(small_recipe(**CHANGES[name]), "topics", 0)
    said = reasons([stages.metrics], Records(laid.execution.root))
    first = said[0]
    stage, setting = name.split(": ")
    assert first.stage.name == stage
    if first.is_first:
        assert first.words.startswith(setting)
    else:
        names = [change[0] for change in first.changes]
        assert setting in names and (name in WITH_IT or names == [setting]), first.words
        assert not first.follows
    assert all("follows from" in reason.words for reason in said[1:])


def test_another_seed_or_file_is_named(laid, data, tmp_path):
    root = laid.execution.root

    def first(stages):
        return reasons([stages.metrics], Records(root))[0]

    seed = first(laid.stages(small_recipe(), "topics", 3))
    assert (seed.stage.name, seed.words) == ("stage_one", "seed 3, nearest result 0")
    corpus = tmp_path / "corpus"
    shutil.copytree(data / "corpus", corpus)
    first_file, second_file, *_ = sorted(corpus.iterdir())
    shutil.copy(first_file, corpus / f"new{first_file.suffix}")
    second_file.unlink()
    changed = replace(laid, corpus=open_corpus(str(corpus), column="text"))
    reason = first(changed.stages(small_recipe(), "topics", 0))
    assert reason.stage.name == "passages"
    files = {f"file {second_file.name} is removed", f"file new{first_file.suffix} is new"}
    assert set(reason.words.split("; ")) == files
    shutil.copytree(data / "tasks", tmp_path / "mended")
    train = tmp_path / "mended" / "topics" / "train.parquet"
    table = pq.read_table(train)
    pq.write_table(table.slice(1), train)
    reason = first(replace(laid, task_root=str(tmp_path / "mended")).stages(small_recipe(), "topics", 0))
    assert (reason.stage.name, reason.words) == ("task", "file train is changed")


def test_of_results_that_differ_in_one_number_the_nearest_is_told(laid):
    for seed in range(6, 12):
        write_records(laid.stages(small_recipe(rho2=seed**2), "topics", 0).metrics, laid.execution.root)
    (reason, *_) = reasons([laid.stages(small_recipe(rho2=99), "topics", 0).metrics], Records(laid.execution.root))
    assert reason.words == "rho2 99, nearest result 100"


def test_nothing_to_make_has_no_reason_and_an_empty_root_is_the_first(laid, tmp_path):
    stages = laid.stages(small_recipe(), "topics", 0)
    assert reasons([stages.metrics], Records(laid.execution.root)) == []
    assert {
        reason.words.partition(";")[0] for reason in reasons([stages.metrics], Records(str(tmp_path / "empty")))
    } == {"the first of its kind"}


def test_a_record_that_was_deleted_is_told(laid):
    stages = laid.stages(small_recipe(), "topics", 0)
    storage.delete(stages.stage_two.folder(laid.execution.root))
    first, last = reasons([stages.metrics], Records(laid.execution.root))
    assert (first.stage.name, last.words) == ("stage_two", "follows from stage_two")
