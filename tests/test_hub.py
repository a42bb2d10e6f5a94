"""Named tasks, read from a hub that lies in a folder."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from task_files import TRAIN, contents, write_folder

from tlm_ray.corpus.labelled.hub import HUB_TASKS, short_name, trained_as
from tlm_ray.corpus.labelled.tasks import read_task

PAPER = {"ag", "hyp", "amazon", "imdb", "citation_intent", "sciie", "chemprot", "rct-20k"}


def test_every_task_of_the_paper_is_known():
    assert set(HUB_TASKS) >= PAPER
    assert {name for name in PAPER if HUB_TASKS[name].metric == "micro_f1"} == {"chemprot", "rct-20k"}


@pytest.mark.parametrize("name", sorted(PAPER))
def test_the_papers_tasks_are_read_from_the_authors_files(hub, name):
    write_folder(hub / "yxchar" / f"{name}-tlm", ending=".csv")
    (hub / "yxchar" / f"{name}-tlm" / "small_external.csv").write_text("text\nnot part of the task\n")
    task = read_task(name)
    assert (task.name, task.metric) == (name, "micro_f1" if name in ("chemprot", "rct-20k") else "macro_f1")
    assert task.train_texts == [text for text, _ in TRAIN]


GLUE = {  # columns and metrics of Wang et al. (2019), table 1, and of the hub's dataset card
    "cola": ("matthews", "sentence", None),
    "sst2": ("accuracy", "sentence", None),
    "mrpc": ("accuracy_f1", "sentence1", "sentence2"),
    "qqp": ("accuracy_f1", "question1", "question2"),
    "mnli": ("accuracy", "premise", "hypothesis"),
    "qnli": ("accuracy", "question", "sentence"),
    "rte": ("accuracy", "sentence1", "sentence2"),
}


@pytest.mark.parametrize("name", GLUE)
def test_glue_is_read_with_its_dev_set_for_the_secret_test_set(hub, name):
    metric, first, second = GLUE[name]
    folder = hub / "nyu-mll" / "glue" / name
    folder.mkdir(parents=True)
    dev = "validation_matched" if name == "mnli" else "validation"
    for split, rows in (("train", 3), (dev, 2), ("test", 2)):
        sides = {first: [f"{split} one"] * rows} | ({second: [f"{split} two"] * rows} if second else {})
        columns = sides | {"label": [-1, -1] if split == "test" else [0, 1, 1][:rows], "idx": range(rows)}
        pq.write_table(pa.table(columns), folder / f"{split}-00000-of-00001.parquet")
    task = read_task(name)
    assert (task.name, task.metric, task.labels) == (name, metric, ("0", "1"))
    assert task.train_texts == ["train one train two" if second else "train one"] * 3
    assert contents(task)["test"] == contents(task)["dev"]
    assert task.texts("test")[0].startswith(f"{dev} one")


def test_a_folder_of_the_hub_is_a_task_folder_like_any_other(hub, tmp_path):
    write_folder(hub / "someone" / "mine", ending=".parquet", names=("train", "validation", "test"))
    task = read_task("hf://datasets/someone/mine")
    assert task.name == "mine"
    assert contents(task) == contents(read_task(write_folder(tmp_path / "mine")))
    assert read_task("mine", task_root="hf://datasets/someone") == task


@pytest.mark.parametrize(
    "task", ["mine", "/data/mine", "data/mine//", "s3://bucket/mine/?region=x", "hf://datasets/a/mine"]
)
def test_a_short_name_is_the_last_part_of_a_location(task):
    assert short_name(task) == "mine"


def test_both_test_sets_of_mnli_have_the_same_trainings_however_they_are_written():
    assert {trained_as(task) for task in ("mnli", "MNLI", "mnli-mm", "MNLI-mm")} == {"mnli"}
    assert [trained_as(task) for task in ("Mine", "mine")] == ["Mine", "mine"], "folders of one's own are apart"
