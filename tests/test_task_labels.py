"""Labels as people's files have them: splits in a column, names in metadata, and what no one can have meant."""

import json
import runpy
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small import small_recipe
from test_own_files import as_csv

from tlm_ray.corpus.labelled.tasks import read_task
from tlm_ray.plain import TfIdf
from tlm_ray.report.tables.cells import Cell
from tlm_ray.runs.cli.preview import show_task
from tlm_ray.runs.flow.training import Training

TRAIN = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "train.py"))
TEXTS = [f"text number {i}" for i in range(60)]


def saved(folder, labels, *, texts=TEXTS, **columns) -> str:
    """Save rows as a CSV."""
    names = ["text", "label", *columns]
    path = folder / "mine.csv"
    path.write_text(as_csv(list(zip(texts, labels, *columns.values(), strict=True)), header=names), newline="")
    return str(path)


def of_hub(folder, labels, names) -> str:
    """Save rows as Hugging Face's datasets do, with names of classes in the metadata."""
    feature = {"label": {"names": names, "_type": "ClassLabel"}, "text": {"dtype": "string", "_type": "Value"}}
    table = pa.table({"text": TEXTS[: len(labels)], "label": labels})
    path = folder / "mine.parquet"
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": feature}})}), path)
    return str(path)


@pytest.mark.parametrize("heading", ["split", "Split "])
def test_a_column_of_splits_is_heeded(tmp_path, heading):
    told = ["train"] * 40 + ["validation"] * 9 + ["Test"] * 11
    task = read_task(saved(tmp_path, ["a", "b", "c"] * 20, **{heading: told}))
    assert [task.splits[split]["text"].to_pylist() for split in ("train", "dev", "test")] == [
        TEXTS[:40], TEXTS[40:49], TEXTS[49:],
    ]  # fmt: skip
    assert task.notes == ("column 'split' tells the split of each row: 40 train, 9 dev, 11 test rows",)
    assert task.unused == ()


@pytest.mark.parametrize(
    ("labels", "metric", "named"),
    [(("equivalent", "not_equivalent"), "accuracy_f1", "'not_equivalent', not of 'equivalent'"),
     (("1", "2"), "accuracy_f1", "'2', not of '1'"), (("0", "1"), "accuracy_f1", ""), (("a", "b"), "macro_f1", "")],
)  # fmt: skip
def test_a_note_names_the_class_whose_f1_counts(tmp_path, labels, metric, named):
    told = ["train"] * 40 + ["validation"] * 9 + ["test"] * 11
    notes = read_task(saved(tmp_path, [*labels] * 30, split=told), metric=metric).notes[1:]
    assert [note.split(";")[0] for note in notes] == ([f"accuracy_f1 has the F1 of class {named}"] if named else [])


def test_a_split_that_the_column_lacks_is_cut_off_train(tmp_path):
    file = saved(tmp_path, ["a", "b", "c"] * 20, split=["train"] * 50 + ["test"] * 10, id=list(range(60)))
    task = read_task(file)
    assert task.splits["test"]["text"].to_pylist() == TEXTS[50:]
    assert {split: len(rows) for split, rows in task.splits.items()} == {"train": 44, "dev": 6, "test": 10}
    assert task.notes[0].startswith("column 'split' tells") and task.notes[1].startswith("no dev file: a tenth")
    assert task.unused == ("id",)
    (tmp_path / "other").mkdir()
    plain = read_task(saved(tmp_path / "other", ["a", "b", "c"] * 20))
    assert len({*task.digests, *plain.digests}) == 6, "rows of other splits are another task"


def test_folds_are_no_splits_and_a_word_that_is_none_is_refused(tmp_path):
    labels = ["a", "b", "c"] * 20
    task = read_task(saved(tmp_path, labels, split=[i % 5 for i in range(60)]))
    assert task.unused == ("split",) and len(task.splits["train"]) == 48
    with pytest.raises(
        ValueError, match=r"row 3: 'extra' is not a split; allowed in column 'split' are train, dev and"
    ):
        read_task(saved(tmp_path, labels, split=["train", "dev", "extra", *["train"] * 57]))
    with pytest.raises(ValueError, match="column 'split' has no row of train; add some, or rename the column"):
        read_task(saved(tmp_path, labels, split=["test"] * 60))


def test_a_label_of_dev_that_train_lacks_is_named_by_its_row_in_the_file(tmp_path):
    labels, told = ["a", "b"] * 30, ["train"] * 40 + ["dev"] * 20
    labels[44] = "c"
    with pytest.raises(ValueError, match=r"mine.csv', row 45: label 'c' is not among the training file's a, b"):
        read_task(saved(tmp_path, labels, split=told))


def test_names_of_classes_come_from_the_files_metadata_in_its_order(tmp_path):
    task = read_task(of_hub(tmp_path, [2, 0, 1] * 20, ["world", "sports", "arts"]))
    assert task.labels == ("world", "sports", "arts")
    row = task.splits["train"].to_pylist()[0]
    assert row["label"] == [2, 0, 1][TEXTS.index(row["text"]) % 3]
    two = read_task(of_hub(tmp_path, [2, 0] * 30, ["world", "sports", "arts"]))
    assert two.labels == ("world", "arts"), "a class without rows is none"
    numbers = read_task(of_hub(tmp_path, [2, 0, 1] * 20, ["5", "9", "7"]), metric="pearson_spearman")
    assert numbers.labels == () and set(numbers.splits["train"]["label"].to_pylist()) == {0.0, 1.0, 2.0}


def test_a_number_without_a_name_is_no_class_and_a_name_may_be_any_word(tmp_path):
    with pytest.raises(ValueError, match=r"rows 3, 6, 9, .*: label '-1' has no name among the file's no, yes"):
        read_task(of_hub(tmp_path, [0, 1, -1] * 20, ["no", "yes"]))
    assert read_task(of_hub(tmp_path, [0, 1] * 30, ["nan", "yes"])).labels == ("nan", "yes")


def test_names_identify_the_task(tmp_path):
    one = read_task(of_hub(tmp_path, [1, 0] * 30, ["no", "yes"])).digests
    assert one != read_task(of_hub(tmp_path, [1, 0] * 30, ["yes", "no"])).digests
    pq.write_table(pa.table({"text": TEXTS, "label": [1, 0] * 30}), tmp_path / "mine.parquet")
    assert read_task(str(tmp_path / "mine.parquet")).labels == ("0", "1")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({0: "a "}, r"column 'label': labels differ in case, spaces, .* alone: 'a', 'a '; write each class one way"),
        ({0: "A", 1: "B"}, r"alone: 'A', 'a'; 'B', 'b'; write each class one way"),
        ({0: "1", 1: "1.0", 2: "01"}, r"way of writing a number alone: '1', '1\.0'; write each class one way"),
        ({0: "caf\u00e9", 1: "cafe\u0301"}, r"alone: 'cafe\u0301', 'caf\u00e9'; write each class one way"),
        ({0: "a\u200b"}, r"alone: 'a', 'a\\u200b'; write each class one way"),
        ({6: "nan"}, r"row 7: label 'nan' is a missing value; fill it in or take the row out"),
        ({6: "NaN", 7: "<NA>"}, r"row 7: label 'NaN' is a missing value.*row 8: label '<NA>' is a missing value"),
    ],
)
def test_classes_that_no_one_can_have_meant_are_refused(tmp_path, changed, said):
    labels = ["a", "b", "c"] * 20
    for row, label in changed.items():
        labels[row] = label
    with pytest.raises(ValueError, match=said):
        read_task(saved(tmp_path, labels))


def test_many_fractions_are_a_regression_and_few_are_classes(tmp_path):
    with pytest.raises(
        ValueError, match=r"has 60 different numbers, such as 0\.13, which are no classes; give --metric"
    ):
        read_task(saved(tmp_path, [f"{i * 0.13:.2f}" for i in range(60)]))
    assert len(read_task(saved(tmp_path, [i % 10 / 2 for i in range(60)])).labels) == 10, "half stars are classes"
    task = read_task(saved(tmp_path, [f"{i * 0.13:.2f}" for i in range(60)]), metric="pearson_spearman")
    assert task.labels == ()


def test_a_dev_set_of_one_class_is_refused(tmp_path):
    """All models would score 100 on it."""
    labels = ["a"] * 56 + ["b", "b", "c", "c"]
    with pytest.raises(
        ValueError, match=r"too few rows to cut dev from: only class 'a' has three different texts or m"
    ):
        read_task(saved(tmp_path, labels))
    told = ["train"] * 40 + ["dev"] * 10 + ["test"] * 10
    with pytest.raises(ValueError, match=r"mine.csv': dev has one class only, 'a'; add rows of another, or leave"):
        read_task(saved(tmp_path, ["b"] * 20 + ["a"] * 40, split=told))


def test_the_preview_has_classes_rows_and_columns_that_no_one_reads(tmp_path, capsys):
    labels = [f"class {i % 15:02}" for i in range(60)]
    show_task(read_task(saved(tmp_path, labels, texts=[f"[bold] word {'w' * 80} {i}" for i in range(60)], id=TEXTS)))
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines()[:2]] == [
        ["train", "dev", "test"],
        ["class", "00", "2", "1", "1"],
    ]
    assert "3 more classes" in said and "columns that are not used: id" in said
    assert ": [bold] word wwww" in said and "w…" in said, "as it is written, and cut"
    show_task(read_task(saved(tmp_path, [f"{i / 7:.3f}" for i in range(60)]), metric="pearson_spearman"))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:4]] == [
        "train",
        "first",
        "median",
        "third",
    ]


@pytest.mark.parametrize(("reads_marks", "how"), [(False, "also reads with --marks"), (True, "reads")])
def test_the_preview_says_that_texts_mark_two_spans(tmp_path, capsys, reads_marks, how):
    texts = [f"[[ one {i} ]] and << two >>" for i in range(60)]
    show_task(read_task(saved(tmp_path, ["a", "b"] * 30, texts=texts)), reads_marks=reads_marks)
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith(f"the texts mark two spans by << >> and [[ ]], where the classifier {how}")


def test_the_model_to_keep_is_the_encoder_unless_the_best_on_dev_is_asked_for(capsys):
    linear = Training(row=TfIdf.name, task="t", recipe=TfIdf())
    trained = Training(row="train", task="t", recipe=small_recipe())
    facts = {linear: {"dev": 81.25}, trained: {"dev": 77.0}}
    better = TRAIN["better"]
    assert better(facts, trained, "encoder") is trained
    hint = "TF-IDF + linear model has the higher score, 81.2 on dev against 77.0; --keep best keeps it instead\n"
    assert capsys.readouterr().out == hint
    assert better(facts, trained, "best") is linear
    assert capsys.readouterr().out == "kept: TF-IDF + linear model, 81.2 on dev against 77.0\n"
    assert better(facts | {trained: {"dev": 81.25}}, trained, "best") is trained
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="--keep best --register: that is for encoders alone; give one of them"):
        TRAIN["Train"](keep="best", register="name")


def test_an_ensemble_of_a_higher_dev_score_is_told(capsys):
    row, other = "train, mean of 2 seeds with linear model", "train with linear model"
    costs = {"flops": 0.0, "data_bytes": 0, "wall_s": 0.0}
    own = {"task": "t", "metric": "accuracy", "scores": (70.0,), "dev_scores": (81.25,)} | costs
    cells = [Cell(row=one, **own) for one in (other, row)]
    for dev in (81.25, 82.0):
        TRAIN["tell_ensemble"](cells, row, dev)
    TRAIN["tell_ensemble"](cells, "student with linear model", 77.0)
    assert capsys.readouterr().out == "", "no higher score, or no such ensemble"
    for name, subject in ((row, "mean of 2 seeds"), (other, "the encoder")):
        TRAIN["tell_ensemble"](cells, name, 77.0)
        said = f"{subject} with linear model has the higher score, 81.2 on dev against 77.0"
        assert capsys.readouterr().out == f"{said}; --ensemble keeps these models\n"
