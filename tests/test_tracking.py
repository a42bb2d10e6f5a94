"""What MLflow holds of an experiment: a run per training with its recipe, curves, scores and data."""

import os
import re
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import mlflow
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from mlflow.entities import Run
from small import small_recipe
from tracked_trainings import HISTORY, recorded, stage, trained

from tlm_ray.retrieval.methods import Bm25
from tlm_ray.runs.stages.stage import Stage
from tlm_ray.runs.tracking import mlflow_store
from tlm_ray.runs.tracking.tracked import _sources, recipe_words
from tlm_ray.runs.tracking.tracker import Tracker


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def tracker(uri, tmp_path) -> Tracker:
    """A tracker whose store is there, with a root of its own."""
    return Tracker.start("test", uri=uri, root=str(tmp_path))


def again(tracker: Tracker, *labelled: Stage) -> Tracker:
    """The tracker of the experiment's next run."""
    later = Tracker.start(tracker.name, uri=tracker.store.uri, root=tracker.root)
    for seed, last in enumerate(labelled):
        later.label(last, {"k": 50}, row="ours", task="topics", seed=seed)
    return later


def steps(tracker: Tracker, run: str, prefix: str = "stage_one") -> list[int]:
    return [metric.step for metric in tracker.store.client.get_metric_history(run, f"{prefix}/learning_rate")]


def children(tracker: Tracker) -> dict[str, Run]:
    return {run.info.run_name: run for run in tracker.store.runs(**{"mlflow.parentRunId": tracker.parent})}


def test_a_child_is_a_training_with_its_recipe_curves_scores_and_data(tracker):
    last = trained(seed=0)
    tracker = again(tracker, last)
    one, two = last.inputs["stage_two"].inputs["stage_one"], last.inputs["stage_two"]
    tracker.follow(one, HISTORY[:120])
    (child,) = children(tracker).values()
    assert steps(tracker, child.info.run_id) == list(range(1, 121)) and child.info.status == "RUNNING"
    tracker.follow(two, HISTORY[:5])  # of the same training
    assert not steps(tracker, child.info.run_id, "stage_two"), "a minute has not passed"
    recorded(last, tracker.root)
    tracker.close(last, {})
    tracker.finish({"test/a, b + rho2 = 20": 60.0})
    (child,) = children(tracker).values()
    assert (child.info.run_name, child.info.status) == ("ours · topics · seed 0", "FINISHED")
    assert child.data.params == {"k": "50", "row": "ours", "task": "topics", "seed": "0"}
    assert child.data.tags["fingerprint stage_one"] == one.fingerprint[:20]
    assert [child.data.metrics[name] for name in ("dev", "test", "seconds")] == [70.0, 60.0, 5.0]
    for prefix in ("stage_one", "stage_two"):
        assert steps(tracker, child.info.run_id, prefix) == list(range(1, 251))
    parent = tracker.store.client.get_run(tracker.parent)
    assert parent.data.metrics == {"test/a b rho2 20": 60.0}
    assert parent.data.params == {"k": "50", "rows": "ours", "tasks": "topics", "seeds": "0"}
    for run in (child, parent):
        found = {(i.tags[0].value, i.dataset.name, i.dataset.digest) for i in run.inputs.dataset_inputs}
        assert found == {
            ("train", "topics train", "a1"),
            ("dev", "topics dev", "b2"),
            ("test", "topics test", "c3"),
            ("corpus", "docstrings", "d4"),
        }


@pytest.mark.parametrize("row", ["/models/bert", "./models/bert", "../models//bert/"])
def test_the_scores_of_an_encoders_folder_have_a_name_that_mlflow_takes(tracker, row):
    tracker = Tracker.start(f"of {row.count('.')}", uri=tracker.store.uri, root=tracker.root)
    tracker.finish({f"test/{row} on topics": 60.0})
    parent = tracker.store.client.get_run(tracker.parent)
    (name,) = parent.data.metrics
    assert re.fullmatch("test/models/bert/? on topics", name) and parent.info.status == "FINISHED"


def test_the_corpus_of_cleaned_passages_is_named_by_the_stage_that_reads_it():
    files = {"corpus": {"a.txt": "1", "b.txt": "2"}}
    cleaned = replace(stage("cleaned", corpus="d9"), parts=files)
    (found,) = _sources({"passages": stage("passages", inputs={"cleaned": cleaned}), "cleaned": cleaned}, "topics")
    assert (found.name, found.digest, found.context) == ("a.txt and 1 more", "d9", "corpus")


def test_a_recipe_is_told_in_the_words_of_its_fields():
    words = recipe_words(replace(small_recipe(k=5), method=Bm25(k1=0.9)))
    told = {name: words[name] for name in ("method", "method.k1", "k", "stage_two.steps", "start.geometry.layers")}
    assert told == {"method": "bm25", "method.k1": 0.9, "k": 5, "stage_two.steps": 6, "start.geometry.layers": 1}
    assert "start.geometry" not in words, "it would say Geometry"


def test_trainings_that_are_found_are_on_the_page_of_each_experiment_and_sent_once(tracker):
    """Two that share stage one, in an experiment that trains neither, and again."""
    lasts = [trained(seed=1, shared=7), trained(seed=2, shared=7)]
    for last in lasts:
        recorded(last, tracker.root)
    first, second = again(tracker, *lasts), again(tracker, *lasts)
    for each in (first, second):
        for last in lasts:
            each.close(last, {})
        each.finish({})
    assert second.parent == first.parent
    runs = children(second)
    assert set(runs) == {"ours · topics · seed 0", "ours · topics · seed 1"}
    for run in runs.values():
        assert steps(second, run.info.run_id) == steps(second, run.info.run_id, "stage_two") == list(range(1, 251))


def test_an_error_of_ours_is_raised(tracker):
    last = trained(seed=2)
    tracker = again(tracker, last)
    with pytest.raises(TypeError):
        tracker.follow(last.inputs["stage_two"], [{"step": 1, "task": None}])
    with pytest.raises(TypeError):
        again(tracker, last).finish({"dev": None})


def test_an_experiment_of_a_key_is_described_when_all_its_trainings_are_known(tracker):
    """A sweep labels its trials as they begin, and how many are among the first depends on the machine."""
    trials = {5: trained(seed=10), 50: trained(seed=11)}
    for ks in ((5, 50), (50, 5)):
        sweep = Tracker.start("test", uri=tracker.store.uri, root=tracker.root, key="k, rho1")
        for k in ks:
            sweep.label(trials[k], {"k": k}, row=f"k {k}", task="topics", seed=0)
            sweep.follow(trials[k].inputs["stage_two"], HISTORY[:1])
        sweep.finish({})
    parent = tracker.store.client.get_run(sweep.parent)
    assert "k" not in parent.data.params and parent.data.params["rows"] == "k 5 | k 50"
    other = Tracker.start("test", uri=tracker.store.uri, root=tracker.root, key="k, rho2")
    other.finish({})
    assert other.parent != sweep.parent


def test_a_child_that_another_process_left_is_ended_and_taken_up_again(tracker):
    last = trained(seed=5)
    tracker, stage_two = again(tracker, last), last.inputs["stage_two"]
    again(tracker, last).follow(stage_two, HISTORY[:5])
    tracker.end(last, "KILLED")
    (left,) = children(tracker).values()
    assert left.info.status == "KILLED"
    tracker.end(stage("stage_two", seed=6), "KILLED")  # which never began
    again(tracker, last).follow(stage_two, HISTORY[:9])
    (followed,) = children(tracker).values()
    assert (followed.info.run_id, followed.info.status) == (left.info.run_id, "RUNNING")
    assert steps(tracker, left.info.run_id, "stage_two") == list(range(1, 10))


def test_a_deleted_child_is_opened_anew(tracker):
    last = trained(seed=6)
    for _ in range(2):
        tracker = again(tracker, last)
        tracker.follow(last.inputs["stage_two"], HISTORY[:1])
        (child,) = children(tracker).values()
        tracker.store.client.delete_run(child.info.run_id)
    assert not tracker.away_until


def test_a_stage_that_trainings_share_is_followed_in_the_first_of_them(tracker):
    lasts = [trained(seed=20, shared=8), trained(seed=21, shared=8)]
    tracker = again(tracker, *lasts)
    tracker.follow(lasts[0].inputs["stage_two"].inputs["stage_one"], HISTORY[:7])
    assert set(children(tracker)) == {"ours · topics · seed 0"}
    recorded(lasts[0], tracker.root)
    tracker.close(lasts[0], {})
    assert set(children(tracker)) == {"ours · topics · seed 0"}, "the second has not begun"


def test_a_model_has_the_time_to_be_uploaded_unless_the_user_says(tracker, monkeypatch):
    seen = []
    monkeypatch.setattr(mlflow_store, "_log_model", lambda *_: seen.append(os.environ[mlflow_store.TIMEOUT]) or "m:/1")
    for own in ("5", "30"):
        monkeypatch.setenv(mlflow_store.TIMEOUT, own)
        tracker.store.log_model(tracker.store.run(f"run {own}", {}), "folder")
        assert os.environ[mlflow_store.TIMEOUT] == own
    assert seen == ["600", "30"]


class Counting(LocalFileSystem):
    """A filesystem elsewhere that knows which files were read."""

    def __init__(self) -> None:
        super().__init__(skip_instance_cache=True)
        self.read: list[str] = []

    def _open(self, path: str, *arguments: object, **options: object) -> object:
        self.read.append(Path(path).name)
        return super()._open(path, *arguments, **options)


def test_attaching_files_reads_these_alone(tracker, tmp_path, monkeypatch):
    there = Counting()
    (tmp_path / "hub" / "out").mkdir(parents=True)
    for name in "abcdef":
        (tmp_path / "hub" / "out" / f"{name}.md").write_text(name)
    monkeypatch.setattr(huggingface_hub, "HfFileSystem", lambda: DirFileSystem(str(tmp_path / "hub"), there))
    tracker.attach(["hf://out/b.md", "hf://out/d.md", str(tmp_path / "hub" / "out" / "a.md")])
    assert there.read == ["b.md", "d.md"]
    client = tracker.store.client
    run = client.get_run(tracker.parent)
    names = [file.path for file in client.list_artifacts(tracker.parent)]
    assert names == ["a.md", "b.md", "d.md"]
    assert mlflow.artifacts.load_text(f"{run.info.artifact_uri}/d.md") == "d"
    assert run.data.tags["mlflow.note.content"] == "a"
