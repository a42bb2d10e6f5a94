"""Scores against scikit-learn's report and their definitions."""

import numpy as np
import pytest
from sklearn.metrics import classification_report

from tlm_ray.evaluation import scores


def random_ids(classes, rows=200):
    draw = np.random.default_rng(classes)
    gold = draw.integers(classes, size=rows)
    return gold, np.where(draw.random(rows) < 0.6, gold, draw.integers(classes, size=rows))


@pytest.mark.parametrize("classes", [2, 3, 13])
def test_f1_and_accuracy_are_those_of_scikit_learns_report(classes):
    gold, predicted = random_ids(classes)
    expected = classification_report(gold, predicted, output_dict=True)
    assert scores.score("macro_f1", gold, predicted) == pytest.approx(100 * expected["macro avg"]["f1-score"])
    for metric in ("accuracy", "micro_f1"):
        assert scores.score(metric, gold, predicted) == pytest.approx(100 * expected["accuracy"])


def test_glue_scores_follow_their_definitions():
    gold, predicted = random_ids(2)
    expected = classification_report(gold, predicted, output_dict=True)
    both = (expected["accuracy"] + expected["1"]["f1-score"]) / 2
    assert scores.score("accuracy_f1", gold, predicted) == pytest.approx(100 * both)
    # With two classes, Matthews' coefficient is Pearson's.
    pearson = np.corrcoef(gold, predicted)[0, 1]
    assert scores.score("matthews", gold, predicted) == pytest.approx(100 * pearson)


@pytest.mark.parametrize("metric", sorted(scores.METRICS))
def test_perfect_and_degenerate_predictions_have_a_score(metric):
    assert scores.score(metric, [0, 1, 1], [0, 1, 1]) == 100.0
    assert 0.0 <= scores.score(metric, [1, 1], [1, 1]) <= 100.0
    assert scores.score(metric, [0, 1, 1, 0], [1, 0, 0, 1]) <= 0.0


def test_macro_f1_counts_a_class_that_was_only_predicted():
    assert scores.score("macro_f1", [0, 0, 0, 0], [0, 0, 0, 1]) == pytest.approx(100 * (6 / 7) / 2)


@pytest.mark.parametrize(
    ("metric", "gold", "predicted", "message"),
    [
        ("f1", [0], [0], "'f1'.*macro_f1.*accuracy_f1"),
        ("accuracy", [0, 1], [0], "'accuracy'.*2 gold and 1 predicted"),
        ("accuracy", [], [], "'accuracy'.*non-empty"),
        ("macro_f1", [0, 1], [0.2, 0.9], "'macro_f1'.*predicted.*integer"),
        ("accuracy_f1", [0, 2], [0, 1], r"'accuracy_f1'.*\[0, 1, 2\].*0 and 1 only"),
    ],
)
def test_score_names_the_metric_and_what_is_allowed(metric, gold, predicted, message):
    with pytest.raises(ValueError, match=message):
        scores.score(metric, gold, predicted)
