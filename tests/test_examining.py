"""What the best row of a task gets wrong: confusions, calibration, worst errors and their nearest training texts."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from sklearn.calibration import calibration_curve

from tlm_ray import storage
from tlm_ray.corpus.labelled.tasks import Task, write_task
from tlm_ray.evaluation.calibration import calibration_error, confidence_bins
from tlm_ray.evaluation.predictions import shares, write_predictions
from tlm_ray.plain import PLAIN, TfIdf
from tlm_ray.retrieval.methods import Bm25
from tlm_ray.retrieval.selection import write_texts
from tlm_ray.runs.examining import WORST, cases, examined, worst_errors
from tlm_ray.runs.groups import Group, Mean

TRAIN = ["the cat sat on a mat", "a dog barks at the moon", "the moon is bright tonight"]
TEXTS = ["a bright moon tonight", "dogs and cats", "my cat sat here", "nothing of these"]


def rows(texts, labels):
    return pa.table({"text": texts, "text_pair": [""] * len(texts), "label": pa.array(labels, pa.int64())})


TASK = Task(
    name="",
    metric="accuracy",
    labels=("pet", "sky"),
    digests=("", "", ""),
    splits={"train": rows(TRAIN, [0, 0, 1]), "dev": rows(TEXTS, [1, 0, 0, 0]), "test": rows(TEXTS, [1, 0, 0, 0])},
)


def test_bins_and_calibration_error_are_those_of_scikit_learns_curve():
    draw = np.random.default_rng(3)
    gold, probabilities = draw.integers(0, 4, 200), draw.dirichlet(np.full(4, 0.4), 200)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == gold
    accuracies, confidences = calibration_curve(right, confidence, n_bins=10, strategy="quantile")
    bins = confidence_bins(gold, probabilities)
    assert [each.accuracy for each in bins] == pytest.approx(accuracies)
    assert [each.confidence for each in bins] == pytest.approx(confidences)
    assert calibration_error(bins) == pytest.approx(np.abs(accuracies - confidences).mean()), "of bins of 20 rows each"
    more = confidence_bins(np.append(gold, gold[:7]), np.vstack([probabilities, probabilities[:7]]))
    assert [each.rows for each in more] == [21] * 7 + [20] * 3
    assert [each.confidence for each in bins] == sorted(each.confidence for each in bins)
    assert calibration_error(confidence_bins(np.zeros(3, int), np.array([[1.0, 0.0]] * 3))) == 0.0
    assert len(confidence_bins(gold[:3], probabilities[:3])) == 3


def test_the_worst_errors_are_wrong_rows_by_the_probability_of_their_class():
    gold = np.array([1, 0, 0, 0])
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.05, 0.95]])
    found = worst_errors(TASK, "test", gold, probabilities)
    assert [(each.row, each.gold, each.predicted) for each in found] == [
        (3, "pet", "sky"), (0, "sky", "pet"), (2, "pet", "sky"),
    ]  # fmt: skip
    assert [each.gold_share for each in found] == [0.05, 0.1, 0.3] and found[1].predicted_share == 0.9
    assert found[0].nearest == [], "no training text shares a word with it"
    assert [(near.text, near.label) for near in found[1].nearest[:2]] == [(TRAIN[2], "sky"), (TRAIN[1], "pet")]
    assert found[2].nearest[0].text == TRAIN[0]
    many = replace(TASK, splits=TASK.splits | {"test": rows(["x"] * 30, [0] * 30)})
    assert len(worst_errors(many, "test", np.zeros(30, int), np.tile([0.1, 0.9], (30, 1)))) == WORST
    assert worst_errors(TASK, "test", gold, np.eye(2)[gold]) == []


@pytest.fixture
def group(tmp_path):
    """Three runs on one task, of which the second is the best on dev."""
    task = str(tmp_path / "task")
    write_task(task, TASK)
    logits = np.random.default_rng(1).normal(size=(3, 2, 4, 2))
    for run, own in enumerate(logits):
        for split, found in zip(("dev", "test"), own, strict=True):
            write_predictions(str(tmp_path / f"{run}"), split, TASK.splits[split]["label"].to_numpy(), found)
    facts = [{"dev": dev, "test": 50.0, "metric": "accuracy"} for dev in (40.0, 60.0, 50.0)]
    folders = [str(tmp_path / f"{run}") for run in range(3)]
    common = {"row": "TLM", "task": "t", "metric": "accuracy", "facts": facts, "folders": folders}
    return Group(**common, task_folder=task, recipe=TfIdf()), logits


def test_the_best_run_on_dev_is_examined(group):
    own, logits = group
    (found,) = examined([own], "test")
    gold, predicted = TASK.splits["test"]["label"].to_pylist(), logits[1, 1].argmax(1).tolist()
    counts = Counter(zip(gold, predicted, strict=True))
    assert {place: count for place, count in np.ndenumerate(found.counts) if count} == counts
    assert (found.row, found.run, found.labels) == ("TLM", "the best on dev of 3 trainings", ("pet", "sky"))
    assert sum(each.rows for each in found.bins) == 4
    assert len(found.errors) == sum(count for (one, other), count in counts.items() if one != other)


def test_an_ensemble_is_examined_by_its_own_probabilities(group):
    own, logits = group
    _, mean, run = Mean(**vars(own), of_seeds=True).probabilities("test")
    assert run == "" and mean == pytest.approx(shares(logits[:, 1]).mean(axis=0))
    of_runs = Mean(**vars(own), of_seeds=False)
    _, best, run = of_runs.probabilities("test")
    np.testing.assert_array_equal(best, shares(logits[:, 1])[int(np.argmax(of_runs.dev_scores))])
    assert run == "the best on dev of 3 trainings"


def test_rows_without_probabilities_are_not_examined(group):
    own, _ = group
    neighbours = next(each for each in PLAIN if not each.short)
    assert list(examined([replace(own, recipe=neighbours)], "test")) == [], "its votes are no probabilities"
    numbers = replace(own, folders=own.folders[:1], facts=own.facts[:1])
    write_predictions(numbers.folders[0], "test", np.array([0.5, 1.0]), np.array([[0.4], [0.9]]))
    assert list(examined([numbers], "test")) == []
    assert list(examined([replace(own, folders=["nowhere"])], "test")) == []


def test_cases_are_training_texts_with_their_best_passages(tmp_path):
    task, folder = str(tmp_path / "task"), str(tmp_path / "selection")
    write_task(task, TASK)
    names = {"passage": range(4), "text": ["a cat", "the moon", "a mat", "cats"], "rank": [0, 0, 1, 2]}
    table = pa.table(names | {"source": ["s3://key:secret@b/x"] * 4})
    write_texts(folder, table.cast(table.schema.set(2, pa.field("rank", pa.int32()))))
    assert cases("t", task, folder, Bm25()) == [], "texts without queries"
    part = storage.join(folder, "selection-00000.arrow")
    queries = pa.array([0, 2, 0, 0], pa.int64())
    selected = storage.read_table(part)
    storage.write_table(part, selected.set_column(selected.column_names.index("query"), "query", queries))
    first, second = cases("t", task, folder, Bm25())
    assert (first.text, second.text) == (TRAIN[0], TRAIN[2]) and first.query == first.text
    assert [(each.text, each.rank) for each in first.passages] == [("a cat", 0), ("a mat", 1)]
    assert "secret" not in first.passages[0].source
    tagged = [f"<e1> {text} </e1> <e2> end </e2>" for text in TRAIN]
    write_task(
        task, replace(TASK, splits=TASK.splits | {"train": rows(tagged, TASK.splits["train"]["label"].to_pylist())})
    )
    first, _ = cases("t", task, folder, Bm25())
    assert (first.text, first.query) == (tagged[0], f"{TRAIN[0]} end"), "a corpus has no tags, so none are searched"
