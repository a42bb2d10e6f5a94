"""Labelled tasks: three formats give one task, and whatever is wrong with one is said before any work starts."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder
from task_files import SPLITS, TRAIN, as_rows, contents, write_folder, write_rows

from tlm_ray.corpus.labelled.tasks import load_task, read_task, write_task
from tlm_ray.evaluation.scores import Metric


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_every_format_gives_the_same_task(tmp_path, ending):
    folder = write_folder(tmp_path / "mine", ending=ending)
    task = read_task(folder)
    numbers = LabelEncoder().fit([label for _, label in TRAIN])
    assert (task.name, task.metric) == ("mine", "macro_f1")
    assert task.labels == tuple(numbers.classes_) == ("mid", "neg", "pos")
    for split, examples in SPLITS.items():
        assert task.splits[split]["text"].to_pylist() == [text for text, _ in examples]
        assert task.splits[split]["label"].to_pylist() == numbers.transform([label for _, label in examples]).tolist()
        assert task.splits[split].schema.types == [pa.string(), pa.string(), pa.int64()]
    files = [(tmp_path / "mine" / f"{split}{ending}").read_bytes() for split in SPLITS]
    assert task.digests == tuple(hashlib.sha256(data).hexdigest() for data in files)


@pytest.mark.parametrize("names", [("train", "validation", "test"), ("train", "valid", "test")])
def test_the_dev_file_has_other_names_too(tmp_path, names):
    plain, other = write_folder(tmp_path / "plain"), write_folder(tmp_path / "other", names=names)
    assert contents(read_task(plain)) == contents(read_task(other))


def test_files_of_a_task_may_differ_in_format_and_lie_beside_others(tmp_path):
    folder = tmp_path / "mixed"
    write_folder(folder, train=None)
    write_rows(folder / "train.csv", as_rows(TRAIN))
    (folder / "README.md").write_text("text")
    (folder / "training_notes.csv").write_text("text")
    (folder / ".train.csv.swp").write_text("text")
    assert contents(read_task(f"{folder}/")) == contents(read_task(write_folder(tmp_path / "plain")))


def test_a_task_below_a_root_is_the_task_of_that_folder(tmp_path):
    folder = write_folder(tmp_path / "root" / "mine")
    assert read_task("mine", task_root=str(tmp_path / "root")) == read_task(folder)
    assert read_task(folder.rstrip("/")) == read_task((tmp_path / "root" / "mine").as_uri()) == read_task(folder)


def test_a_papers_name_below_a_root_keeps_its_metric(tmp_path):
    write_folder(tmp_path / "chemprot")
    assert read_task("chemprot", task_root=str(tmp_path)).metric == "micro_f1"
    assert read_task(str(tmp_path / "chemprot")).metric == "micro_f1"
    assert read_task("chemprot", task_root=str(tmp_path), metric="accuracy").metric == "accuracy"


@pytest.mark.parametrize("values", [[10, 9, -1], ["10", "9", "-1"]])
def test_labels_that_are_integers_are_ordered_by_value(tmp_path, values):
    rows = [(f"text {value}", value) for value in values]
    task = read_task(write_folder(tmp_path / "numbers", train=rows, dev=rows, test=rows))
    assert task.labels == ("-1", "9", "10")
    assert task.splits["test"]["label"].to_pylist() == [2, 1, 0]


@pytest.mark.parametrize("labels", [["²", "1"], ["--1", "2"], ["1", "01"], ["1.5", "10"], ["-", "3"]])
def test_labels_that_look_like_integers_are_only_names(tmp_path, labels):
    rows = [("text", label) for label in labels]
    task = read_task(write_folder(tmp_path / "names", train=rows, dev=rows, test=rows))
    assert task.labels == tuple(sorted(labels))
    assert [task.labels[i] for i in task.splits["dev"]["label"].to_pylist()] == labels


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-20, 20) | st.sampled_from(["x", "Y", "é"]), min_size=2).filter(lambda v: len(set(v)) > 1))
def test_every_row_keeps_its_label(tmp_path_factory, values):
    rows = [{"text": str(i), "label": str(value)} for i, value in enumerate(values)]
    task = read_task(write_folder(tmp_path_factory.mktemp("task"), train=rows, dev=rows, test=rows))
    assert [task.labels[i] for i in task.splits["train"]["label"].to_pylist()] == [row["label"] for row in rows]
    assert set(task.labels) == {row["label"] for row in rows}


def test_a_metric_of_regression_makes_labels_numbers(tmp_path):
    rows = [("text", label) for label in ("2.5", "0", "-1e-1")]
    folder = write_folder(tmp_path / "numbers", train=rows, dev=rows, test=rows[:1])
    task = read_task(folder, metric="pearson_spearman")
    assert (task.metric, task.labels) == ("pearson_spearman", ())
    assert task.splits["dev"]["label"].to_pylist() == [2.5, 0.0, -0.1]
    assert load_task(write(tmp_path / "kept", task)).splits["train"]["label"].type == pa.float64()


def write(folder, task):
    write_task(str(folder), task)
    return str(folder)


@pytest.mark.parametrize("label", ["high", "nan", "inf"])
def test_a_label_of_a_regression_that_is_no_number_is_named(tmp_path, label):
    rows = [("text", "1"), ("text", label)]
    folder = write_folder(tmp_path / "numbers", train=rows, dev=rows, test=rows)
    with pytest.raises(ValueError, match=f"train.*, row 2: label '{label}' is not a number, which a regression needs"):
        read_task(folder, metric="pearson_spearman")


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_pairs_keep_both_sides_and_are_one_query(tmp_path, ending):
    rows = [{"text": "a b", "text_pair": "c d", "label": i} for i in (0, 1)]
    task = read_task(write_folder(tmp_path / "pairs", ending=ending, train=rows, dev=rows, test=rows))
    assert task.splits["dev"]["text_pair"].to_pylist() == ["c d", "c d"]
    assert task.train_texts == task.texts("dev") == ["a b c d"] * 2
    assert task.has_pairs and set(task.held_out) == {"a b", "c d", "a b c d"}


def test_single_texts_have_an_empty_pair(tmp_path):
    task = read_task(write_folder(tmp_path / "single"))
    assert set(task.splits["train"]["text_pair"].to_pylist()) == {""}
    assert task.train_texts == [text for text, _ in TRAIN]
    assert not task.has_pairs and task.held_out == task.texts("dev") + task.texts("test")


def test_labels_of_any_arrow_type_are_read(tmp_path):
    names = [label for _, label in TRAIN]
    for i, labels in enumerate((pa.array(names).dictionary_encode(), pa.array(names, pa.large_string()))):
        folder = tmp_path / str(i)
        folder.mkdir()
        for split in SPLITS:
            table = pa.table({"text": [text for text, _ in TRAIN], "label": labels})
            pq.write_table(table, folder / f"{split}.parquet", row_group_size=2)
        assert read_task(f"{folder}/").labels == ("mid", "neg", "pos")


NO_LABEL = [{"text": "a", "kind": "x", "id": "1"}]
BAD = {
    "no label column": ({"train": NO_LABEL}, "train", r"no column 'label', only text, kind, id; say .*--lab"),
    "no text column": ({"dev": [{"body": "a", "label": "pos"}]}, "dev", "no column 'text', only body, label; .*--text"),
    "empty text": ({"train": [*TRAIN, ("", "pos")]}, "train", "row 5: text is empty; fill it in or take the row out"),
    "blank text": ({"test": [(" \n", "pos")]}, "test", "row 1: text is empty"),
    "missing text": ({"dev": [*TRAIN, (None, "pos")]}, "dev", "row 5: text is empty"),
    "empty label": ({"train": [*TRAIN, ("a", "")]}, "train", "row 5: label is empty"),
    "missing label": ({"test": [("a", "pos"), ("a", None)]}, "test", "row 2: label is empty"),
    "empty pair": (
        {"train": [{"text": "a", "text_pair": " ", "label": "x"}]},
        "train",
        "row 1: text_pair is empty",
    ),
    "unknown label in dev": (
        {"dev": [("a", "pos"), ("b", "new")]},
        "dev",
        "row 2: label 'new' is not among the training file's mid, neg, pos; fix it or add training examples",
    ),
    "unknown label in test": ({"test": [("a", "Pos")]}, "test", "row 1: label 'Pos' is not among"),
    "one class": ({"train": [("a", "pos"), ("b", "pos")]}, "train", "has one class only, 'pos'; .* needs two or more"),
    "no rows": ({"dev": []}, "dev", "has no rows; a task needs examples in train, dev and test"),
    "text of lists": ({"train": [{"text": ["a"], "label": "x"}]}, "train", "column 'text'"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_in_a_file_is_named(tmp_path, case):
    changes, split, message = BAD[case]
    folder = write_folder(tmp_path / "bad", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        read_task(folder)
    assert repr(f"{folder}{split}.jsonl") in str(caught.value)


def test_a_missing_train_file_is_named_with_the_folder(tmp_path):
    folder = write_folder(tmp_path / "part", train=None)
    with pytest.raises(FileNotFoundError, match="has no train file; give train, and optionally") as caught:
        read_task(folder)
    assert repr(folder) in str(caught.value)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_task(str(tmp_path / "nothing"))


def test_two_files_of_one_split_are_both_named(tmp_path):
    folder = write_folder(tmp_path / "twice")
    write_rows(Path(folder) / "validation.csv", as_rows(TRAIN))
    with pytest.raises(ValueError, match=r"two dev files: .*dev\.jsonl, .*validation\.csv; keep one"):
        read_task(folder)


def test_a_file_of_plain_text_is_no_task(tmp_path):
    folder = write_folder(tmp_path / "plain", train=None)
    (Path(folder) / "train.txt").write_text("a b")
    with pytest.raises(ValueError, match=r"train\.txt'.*\.parquet, \.csv or \.jsonl"):
        read_task(folder)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"task 'sentiment': known names are ag, hyp.*--task-root"):
        read_task("sentiment")


def test_an_unknown_metric_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match="metric 'f2': allowed are macro_f1, micro_f1"):
        read_task(write_folder(tmp_path / "mine"), metric="f2")


def test_a_metric_for_two_classes_refuses_three(tmp_path):
    with pytest.raises(ValueError, match=r"'accuracy_f1' is for 2 classes, .* has 3; use 'macro_f1'"):
        read_task(write_folder(tmp_path / "mine"), metric="accuracy_f1")


def test_a_task_that_was_kept_is_the_task(tmp_path):
    task = read_task(write_folder(tmp_path / "mine"))
    facts = write_task(str(tmp_path / "kept"), task)
    loaded = load_task(str(tmp_path / "kept"))
    assert replace(loaded, name="mine") == task, "which is the same under any name"
    assert contents(loaded) == contents(task)
    assert facts["classes"] == 3
    assert facts["train_bytes"] == sum(len(text.encode()) for text, _ in TRAIN)
    assert [facts[f"{split}_rows"] for split in SPLITS] == [4, 2, 3]


def test_a_metric_of_ones_own_is_kept_by_its_name(tmp_path):
    rows = [("text", label) for label in ("2.5", "0")]
    folder = write_folder(tmp_path / "numbers", train=rows, dev=rows, test=rows)
    own = {"name": "mine", "compute": lambda gold, predicted: 1.0}
    task = read_task(folder, metric=Metric(**own, is_regression=True))
    assert (task.metric, task.labels, task.splits["dev"]["label"].to_pylist()) == ("mine", (), [2.5, 0.0])
    assert replace(load_task(write(tmp_path / "kept", task)), name="numbers") == task
    classes = read_task(folder, metric=Metric(**own))
    assert (classes.metric, classes.labels) == ("mine", ("0", "2.5"))


@pytest.mark.parametrize("dev", ["dev", "validation"])
def test_one_shard_a_split_in_the_naming_of_the_hub_is_a_split(tmp_path, dev):
    plain = write_folder(tmp_path / "plain" / "mine")
    names = [f"data/{name}-00000-of-00001" for name in ("train", dev, "test")]
    (tmp_path / "mine" / "data").mkdir(parents=True)
    sharded = write_folder(tmp_path / "mine", ending=".parquet", names=names)
    assert contents(read_task(sharded)) == contents(read_task(plain))


def test_a_shard_without_its_others_is_refused(tmp_path):
    folder = write_folder(tmp_path / "mine", names=("train-00000-of-00002", "dev", "test"))
    with pytest.raises(ValueError, match=r"train-00000-of-00002.jsonl' is one of 2 shards, but 1") as caught:
        read_task(folder)
    assert repr(folder) in str(caught.value)


def test_a_mistyped_name_lists_the_tasks_below_the_root(tmp_path):
    for name in ("reviews", "of/topics"):
        write_folder(tmp_path / "root" / name)
    (tmp_path / "root" / "notes").mkdir()
    (tmp_path / "root" / "notes" / "a.csv").write_text("no task")
    with pytest.raises(FileNotFoundError, match=r"task 'reveiws': .* --task-root '.*root' has of/topics, reviews$"):
        read_task("reveiws", task_root=str(tmp_path / "root"))
    with pytest.raises(FileNotFoundError, match=r"--task-root '.*nowhere' has no task"):
        read_task("reviews", task_root=str(tmp_path / "nowhere"))


# Bytes of the stage "task", version 2. If they change, raise its version in tlm_ray/runs/flow/flow.py first.
GOLDEN = {
    "train.arrow": "e06d69a878281519",
    "dev.arrow": "b4952d5a6cba0e47",
    "test.arrow": "bfc2a3ba5dc239cb",
    "task.json": "bea9a4645d1c6a52",
}


def test_a_kept_task_is_the_bytes_of_its_version(data, tmp_path):
    write_task(str(tmp_path), read_task("topics", task_root=str(data / "tasks")))
    digests = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()[:16] for name in GOLDEN}
    assert digests == GOLDEN


def test_test_rows_that_are_trained_on_are_counted_whatever_their_case_and_signs(tmp_path):
    files = {"train": ["One, two", "three"], "dev": ["three", "four"], "test": ["one two!", "two", "THREE"]}
    for split, texts in files.items():
        rows = "".join(f'"{text}",{number % 2}\n' for number, text in enumerate(texts))
        (tmp_path / f"{split}.csv").write_text("text,label\n" + rows)
    assert write_task(str(tmp_path / "kept"), read_task(str(tmp_path)))["test_in_train"] == 2
