"""Classifiers that train no encoder, against scikit-learn and bm25s on the same rows."""

from dataclasses import dataclass, replace
from typing import ClassVar

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small import small_flow, small_recipe
from topic_tasks import make_task

from tlm_ray import storage
from tlm_ray.corpus.labelled.tasks import Task, write_task
from tlm_ray.evaluation.scores import score
from tlm_ray.plain import Bm25Neighbours, TfIdf, Windows
from tlm_ray.plain.classifier import PlainClassifier, Predicted, write_scores
from tlm_ray.plain.linear_model import LinearModel
from tlm_ray.report import View, publish
from tlm_ray.report.formats import ABSENT
from tlm_ray.report.tables.grids import make_grid
from tlm_ray.runs.flow.plain import plain_stages
from tlm_ray.runs.flow.training import plain_trainings
from tlm_ray.runs.outcome import Outcome
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.telling import Teller


def nearest(task: Task, split: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and scores of the nearest training texts, by bm25s."""
    options = {"stopwords": None, "token_pattern": r"(?u)\b\w+\b", "show_progress": False}
    tokens = {name: bm25s.tokenize(task.texts(name), **options) for name in ("train", split)}
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index(tokens["train"], show_progress=False)
    ids, scores = index.retrieve(tokens[split], k=40, show_progress=False)
    every = np.zeros(ids.shape, np.float32)
    np.put_along_axis(every, ids, scores, axis=1)
    order = np.argsort(-every, axis=1, kind="stable")[:, :size]  # between equals the earlier row
    return order, np.take_along_axis(every, order, axis=1)


def test_neighbours_vote_by_their_scores():
    task = make_task()
    labels = task.splits["train"]["label"].to_numpy()
    logits, chosen, _ = Bm25Neighbours(sizes=(5,)).predict(task, "accuracy")
    ids, scores = nearest(task, "test", 5)
    expected = np.stack([(scores * (labels[ids] == label)).sum(axis=1) for label in range(3)], axis=1)
    np.testing.assert_allclose(logits["test"], expected, rtol=1e-4, atol=1e-5)
    assert chosen == {"neighbours": 5}


def test_as_many_neighbours_as_are_best_on_dev():
    task = make_task()
    gold = task.splits["dev"]["label"].to_numpy()
    each = {size: Bm25Neighbours(sizes=(size,)).predict(task, "accuracy").logits["dev"] for size in (1, 7, 40)}
    scores = {size: score("accuracy", gold, logits.argmax(axis=1)) for size, logits in each.items()}
    chosen = Bm25Neighbours(sizes=(1, 7, 40)).predict(task, "accuracy").chosen["neighbours"]
    assert scores[chosen] == max(scores.values())


def test_a_text_without_neighbours_gets_the_most_frequent_class_or_the_mean():
    alone = {"text": ["zzz"] * 20, "text_pair": [""] * 20}
    task = make_task()
    other = replace(task, splits=task.splits | {"test": pa.table(alone | {"label": [0] * 20})})
    frequent = np.bincount(task.splits["train"]["label"].to_numpy()).argmax()
    assert (Bm25Neighbours().predict(other, "accuracy").logits["test"].argmax(axis=1) == frequent).all()
    task = make_task(metric="pearson_spearman")
    other = replace(task, splits=task.splits | {"test": pa.table(alone | {"label": [0.0] * 20})})
    found = Bm25Neighbours().predict(other, "pearson_spearman").logits["test"]
    np.testing.assert_allclose(found, task.splits["train"]["label"].to_numpy().mean())


@dataclass(frozen=True)
class Constant(PlainClassifier):
    """A classifier of one's own that gives every row the same logits."""

    name: ClassVar[str] = "constant"
    row: tuple[float, ...] = ()

    def predict(self, task, metric):
        return Predicted({split: np.array([self.row] * len(task.splits[split])) for split in ("dev", "test")}, {})


def test_a_classifier_of_ones_own_may_rule_out_a_class_but_not_give_nan(tmp_path):
    task = make_task()
    write_task(str(tmp_path / "task"), task)
    scores = write_scores(str(tmp_path), str(tmp_path / "task"), Constant((-np.inf, 0.0, -1.0)), metric="accuracy")
    assert scores["dev"] == 100 * (task.splits["dev"]["label"].to_numpy() == 1).mean()
    rows = len(task.splits["dev"])
    said = f"classifier 'constant': {rows} of {rows} rows of dev have NaN among their logits; have predict give numbers"
    with pytest.raises(ValueError, match=said):
        write_scores(str(tmp_path), str(tmp_path / "task"), Constant((np.nan, 0.0, -1.0)), metric="accuracy")


@pytest.mark.usefixtures("alone")
def test_a_plain_classifier_is_a_row_without_training(data, tmp_path):
    flow = small_flow(data, tmp_path)
    trainings = plain_trainings(flow, ["topics"])
    assert [one.recipe for one in trainings] == [TfIdf(), Bm25Neighbours()], "no text marks spans"
    stages = {training: plain_stages(flow, training.recipe, "topics") for training in trainings}
    make([each.metrics for each in stages.values()], flow.execution.root)
    outcome = Outcome(name="x", stages=stages, records=Records(flow.execution.root), tracker=None)  # type: ignore[arg-type]
    for cell in outcome.cells():
        assert cell.flops == cell.flops_counted == 0 and not cell.pretrained and cell.data_bytes > 0
        assert cell.mean > 80, "words of topics give the class away"
    first = stages[trainings[0]].metrics
    assert first.lane == "plain", "they keep no other stage waiting"
    kept = storage.read_table(storage.join(first.folder(flow.execution.root), "test_predictions.arrow"))
    assert score("accuracy", kept["gold"].to_numpy(), kept["predicted"].to_numpy()) == outcome.cells()[0].mean
    linear = LinearModel.open(outcome.model(trainings[0]))
    assert (linear.logits(["the kettle boils in the kitchen"]).shape, len(linear.labels)) == ((1, 3), 3)
    with pytest.raises(ValueError, match=r"row 'BM25 neighbours': keeps no model"):
        outcome.model(trainings[1])


@pytest.mark.usefixtures("alone")
def test_a_table_of_marked_and_other_tasks_has_a_dash_where_no_span_is_marked(data, tmp_path):
    for split in ("train", "dev", "test"):
        table = pq.read_table(data / "tasks" / "topics" / f"{split}.parquet")
        texts = [f"<e1> {text.split()[0]} </e1> <e2> {text} </e2>" for text in table["text"].to_pylist()]
        for task, column in (("topics", table["text"]), ("spans", pa.array(texts))):
            (tmp_path / "tasks" / task).mkdir(parents=True, exist_ok=True)
            changed = table.set_column(table.column_names.index("text"), "text", column)
            pq.write_table(changed, tmp_path / "tasks" / task / f"{split}.parquet")
    flow = replace(small_flow(data, tmp_path), task_root=str(tmp_path / "tasks"))
    trainings = plain_trainings(flow, ["topics", "spans"])
    assert [(one.row, one.task) for one in trainings if one.recipe == Windows()] == [(Windows.name, "spans")]
    stages = {training: training.stages(flow) for training in trainings}
    make([each.metrics for each in stages.values()], flow.execution.root)
    outcome = Outcome(name="x", stages=stages, records=Records(flow.execution.root), tracker=None)  # type: ignore[arg-type]
    results = outcome.results(View(against=TfIdf.name))
    lines = {line.name: line.texts for line in make_grid(results).lines}
    assert lines[Windows.name][0] == lines[Windows.name][2] == ABSENT and float(lines[Windows.name][1]) > 80
    assert ABSENT not in lines[TfIdf.name][:3]
    found = dict(results.comparison.lines)[Windows.name]
    assert found[0] is found[2] is None and found[1] is not None
    assert set(publish("x", results, str(tmp_path / "out"), Teller(stages=stages, records=outcome.records).story(None)))


def test_settings_and_task_identify_a_plain_row(data, tmp_path):
    flow = small_flow(data, tmp_path)
    classifiers = [TfIdf(), TfIdf(features=("words 1-2",)), Bm25Neighbours(), Bm25Neighbours(sizes=(1,))]
    stages = [plain_stages(flow, each, "topics").metrics for each in classifiers]
    stages.append(flow.stages(small_recipe(), "topics", 0).metrics)
    assert len({stage.fingerprint for stage in stages}) == len(stages)
