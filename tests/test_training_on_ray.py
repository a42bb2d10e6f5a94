"""Trainings on Ray: any number of workers, processes that are killed, damage, tracking that comes and goes."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import mlflow
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from alone import in_this_process
from killing import checkpoints, killed_in_turn
from small import STAGE_ONE, long_recipe, small_flow, small_recipe
from tracked import empty_store
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForMaskedLM

from tlm_ray import baseline, storage
from tlm_ray.compute import Compute
from tlm_ray.runs.stages.locks import LOCKS
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.tracking.tracker import Tracker
from tlm_ray.training.encoders.starts import Architecture
from tlm_ray.training.launching.errors import TrainingStopped
from tlm_ray.training.launching.launch import _trainer
from tlm_ray.training.settings import Job
from tlm_ray.training.tokens.tokenizer import train_wordpiece

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]
LOSSES = ("general_mlm", "task_mlm", "task")


def train(data: Path, root: Path, recipe, *, workers: int = 1, last: str = "stage_one", **options) -> dict:
    """Train a recipe under a root of its own; return the last stage's facts."""
    flow = replace(small_flow(data, root, compute=Compute(workers=workers), workers=2), **options)
    stage = getattr(flow.stages(recipe, "topics", 0), last)
    return make([stage], flow.execution.root)[stage.fingerprint]["facts"]


@pytest.fixture(scope="module")
def of_blocks(data, tmp_path_factory) -> Path:
    """A root with all that the small recipe trains on, made in this process."""
    root = tmp_path_factory.mktemp("blocks")
    with in_this_process():
        make([small_flow(data, root).stages(small_recipe(), "topics", 0).blocks], str(root))
    return root


@pytest.fixture
def prepared(of_blocks, tmp_path) -> Path:
    """A root of the test's own, with the blocks."""
    return shutil.copytree(of_blocks, tmp_path / "root")


def losses(facts: dict) -> np.ndarray:
    return np.array([[entry.get(name, np.nan) for name in LOSSES] for entry in facts["history"]])


def test_two_workers_have_the_losses_of_one_to_rounding(data, of_blocks, tmp_path):
    one, two = (
        train(data, shutil.copytree(of_blocks, tmp_path / f"{workers}"), small_recipe(), workers=workers)
        for workers in (1, 2)
    )
    np.testing.assert_allclose(losses(two), losses(one), rtol=1e-4)
    assert [entry["dev"] for entry in two["history"] if "dev" in entry] == pytest.approx(
        [entry["dev"] for entry in one["history"] if "dev" in entry]
    )


@pytest.mark.parametrize(("rows", "workers"), [(8, 8), (100, 64)])
def test_a_training_takes_no_more_workers_than_a_step_has_rows(tmp_path, rows, workers):
    settings = small_recipe(stage_one=replace(STAGE_ONE, batch_rows=rows)).settings_one(0)
    job = Job(folder=str(tmp_path), blocks="", settings=settings, compute=Compute(workers=64))
    trainer = _trainer(job)
    assert trainer.scaling_config.num_workers == workers


@pytest.fixture(scope="module")
def undisturbed(data, of_blocks, tmp_path_factory) -> tuple[Path, dict]:
    """The root and the facts of the long stage one, undisturbed."""
    root = shutil.copytree(of_blocks, tmp_path_factory.mktemp("undisturbed") / "root")
    return root, train(data, root, long_recipe())


@pytest.fixture
def folder(data, undisturbed) -> Path:
    """The folder of the long stage one, to be made anew from the same blocks."""
    flow = small_flow(data, undisturbed[0])
    folder = Path(flow.stages(long_recipe(), "topics", 0).stage_one.folder(flow.execution.root))
    shutil.rmtree(folder)
    return folder


def test_after_a_worker_was_killed_twice_the_losses_are_those_of_an_undisturbed_run(data, folder, undisturbed):
    root, expected = undisturbed
    with killed_in_turn(folder, "train_alone", "train_alone"):
        recovered = train(data, root, long_recipe())
    np.testing.assert_array_equal(losses(recovered), losses(expected))


DRIVER = """
import sys
from pathlib import Path
import ray
from killing import checkpoints, killed_in_turn
from small import long_recipe, small_flow
from tlm_ray import make, ray_options
ray.init(address="local", num_cpus=2, **ray_options())
flow = small_flow(Path(sys.argv[1]), Path(sys.argv[2]))
make([flow.stages(long_recipe(), "topics", 0).stage_one], sys.argv[2])
"""


def kill_the_driver(data: Path, root: Path, folder: Path) -> None:
    """Train in a process of its own, kill it when there are two checkpoints, and wait for what it started to go."""
    command = [sys.executable, "-c", DRIVER, str(data), str(root)]
    with subprocess.Popen(command, cwd=Path(__file__).parent) as driver:
        while len(checkpoints(folder)) < 2:
            assert driver.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        started = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
    _, alive = psutil.wait_procs(started, timeout=10)
    for process in alive:  # Ray's agents outlive it
        process.kill()


@pytest.mark.long
def test_a_new_driver_goes_on_before_a_damaged_checkpoint_and_refuses_if_all_are(data, folder, undisturbed, capsys):
    root, expected = undisturbed
    kill_the_driver(data, root, folder)
    before, newest = (path / "model.safetensors" for path in checkpoints(folder))
    whole = before.read_bytes()
    for file in (before, newest):
        os.truncate(file, 1000)
    message = (
        rf"{folder}/checkpoints: all are corrupt \({newest} has 1,000 bytes instead of {len(whole):,}; {before} "
        rf"has 1,000 bytes instead of {len(whole):,}\); delete this folder to start over"
    )
    with pytest.raises(TrainingStopped, match=message):
        train(data, root, long_recipe())

    before.write_bytes(whole)
    history = json.loads((before.parent / "state.json").read_text())["progress"]["history"]
    facts = train(data, root, long_recipe())
    assert facts["history"][: len(history)] == history, "it went on at the checkpoint before, times and all"
    np.testing.assert_array_equal(losses(facts), losses(expected))
    assert facts["damaged_checkpoints"] == [f"{newest} has 1,000 bytes instead of {len(whole):,}"]
    assert f"{newest} has 1,000 bytes instead" in capsys.readouterr().out


def test_stage_two_opens_in_transformers_alone_and_tracking_saw_every_step(data, prepared, tmp_path):
    uri = empty_store(tmp_path)
    tracker = Tracker.start("test", uri=uri, root=str(prepared))
    flow = replace(small_flow(data, prepared), followers=lambda stage: [partial(tracker.follow, stage)])
    stages = flow.stages(small_recipe(), "topics", 0)
    tracker.label(stages.metrics, row="ours", task="topics", seed=0)
    stage, two = stages.metrics, stages.stage_two
    root = flow.execution.root
    records = make([stage], root, watch=tracker.close)
    tracker.finish({"test/a, b + rho2 = 20": 1.0})
    storage.write_bytes(f"{tmp_path}/out/table.md", b"| |")
    tracker.attach([f"{tmp_path}/out/table.md"])

    model = AutoModelForSequenceClassification.from_pretrained(f"{two.folder(root)}/model")
    tokenizer = AutoTokenizer.from_pretrained(f"{two.folder(root)}/model")
    assert set(model.config.id2label.values()) == {"sea", "sky", "kitchen"}
    predictions = storage.read_table(f"{stage.folder(root)}/test_predictions.arrow")
    texts = storage.read_table(f"{flow.task('topics').folder(root)}/test.arrow")["text"].to_pylist()
    encoded = tokenizer(texts, truncation=True, max_length=48, padding=True, return_tensors="pt")
    logits = model.eval()(**encoded).logits.detach().numpy()
    np.testing.assert_allclose(logits, np.array(predictions["logits"].to_pylist()), atol=1e-4)

    client = mlflow.MlflowClient(uri)
    assert [file.path for file in client.list_artifacts(tracker.parent)] == ["table.md"]
    assert client.get_run(tracker.parent).data.metrics == {"test/a b rho2 20": 1.0}
    child, parent = client.search_runs([tracker.store.experiment])
    assert (child.info.run_name, parent.info.run_id) == ("ours · topics · seed 0", tracker.parent)
    assert child.info.status == parent.info.status == "FINISHED"
    assert child.data.tags["fingerprint stage_one"] == stages.stage_one.fingerprint[:20]
    for name, trained in (("stage_one", stages.stage_one), ("stage_two", two)):
        steps = [m.step for m in client.get_metric_history(child.info.run_id, f"{name}/learning_rate")]
        assert steps == [entry["step"] for entry in records[trained.fingerprint]["facts"]["history"]]
    names = ("general_mlm", "task_mlm", "task", "tokens_per_s", "dev")
    assert {"dev", "test", *(f"stage_one/{name}" for name in names)} <= set(child.data.metrics)


def test_a_tracking_server_that_is_away_costs_no_result(data, prepared, tmp_path, capsys):
    tracker = Tracker.start("test", uri="http://127.0.0.1:9", root=str(prepared))
    facts = train(data, prepared, small_recipe(), followers=lambda stage: [partial(tracker.follow, stage)])
    tracker.attach([f"{tmp_path}/absent"])
    tracker.finish({})
    assert facts["steps"] == STAGE_ONE.steps
    assert capsys.readouterr().out.count("continuing without it") == 1


def test_a_loss_that_is_not_finite_stops_at_once_with_the_step_and_the_fix(data, prepared):
    wild = small_recipe(stage_one=replace(STAGE_ONE, learning_rate=1e30, warmup_steps=0))
    with pytest.raises(
        TrainingStopped, match=r"steps \d+ to \d+: a loss is not finite; lower learning_rate"
    ) as stopped:
        train(data, prepared, wild)
    assert "lost workers" not in str(stopped.value), "a failure that every retry would meet again must not be retried"


def test_a_refused_architecture_stops_at_once(data, tmp_path):
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    AutoConfig.for_model("longformer", attention_window=8, **size).save_pretrained(tmp_path / "longformer")
    recipe = small_recipe(k=0, start=Architecture(str(tmp_path / "longformer")))
    with pytest.raises(TrainingStopped, match="architecture 'longformer': its heads need more") as stopped:
        train(data, tmp_path / "root", recipe)
    assert "lost workers" not in str(stopped.value)


def test_a_pretrained_baseline_from_a_local_folder(data, tmp_path, monkeypatch):
    texts = pq.read_table(data / "corpus" / "part-0.parquet")["text"].to_pylist()
    tokenizer = train_wordpiece(texts, vocabulary=150)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertForMaskedLM(config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    recipe = baseline(small_recipe(), "encoder", train_rows=60)
    recipe = replace(recipe, stage_two=recipe.stage_two.of_steps(60))
    facts = train(data, tmp_path / "root", recipe, last="stage_two")
    assert facts["steps"] == recipe.stage_two.steps
    made = sorted({p.name for p in (tmp_path / "root").iterdir()} - {LOCKS})
    assert made == ["blocks", "stage_two", "task", "tokenizer"], "a baseline needs neither corpus nor stage one"


def test_rows_at_once_are_an_execution_setting():
    with pytest.raises(ValueError, match=r"micro_rows -1: must be 1 or more, or 0 for all that fit"):
        Compute(micro_rows=-1)
    with pytest.raises(ValueError, match="workers 0: a training needs 1 or more"):
        Compute(workers=0)
