"""Metrics as values: one's own goes wherever the name of a built-in one goes."""

import dataclasses

import numpy as np
import pytest
import ray.cloudpickle
from sklearn.metrics import balanced_accuracy_score, r2_score

from tlm_ray.evaluation.scores import METRICS, OF_PAIRS, Metric, metric_named, score

BALANCED = Metric(name="balanced", compute=balanced_accuracy_score)
FIT = Metric(name="r2", compute=r2_score, lowest=-1000.0, is_regression=True)


def test_a_metric_of_ones_own_scores_classes_as_its_function_does():
    gold, predicted = [0, 1, 1, 1], [0, 1, 0, 1]
    assert score(BALANCED, gold, predicted) == 100 * balanced_accuracy_score(gold, predicted)
    assert metric_named(BALANCED) is BALANCED


def test_a_regression_of_ones_own_is_given_numbers():
    gold, predicted = [0.5, 1.5, 2.5], [0.0, 1.5, 3.0]
    assert score(FIT, gold, predicted) == pytest.approx(100 * r2_score(gold, predicted))
    with pytest.raises(ValueError, match=r"'balanced' got gold of shape .* integer class ids"):
        score(BALANCED, gold, predicted)


@pytest.mark.parametrize(("share", "expected"), [(1 + 3e-16, 100.0), (1 + 9e-7, 100.0), (-10 - 9e-7, -1000.0)])
def test_a_score_that_rounding_put_out_of_range_is_cut_to_it(share, expected):
    beyond = dataclasses.replace(FIT, compute=lambda gold, predicted: share)
    assert score(beyond, [0.5, 1.5], [0.0, 1.5]) == expected


@pytest.mark.parametrize("name", METRICS)
def test_a_name_means_the_metric_of_that_name(name):
    gold, predicted = [0, 1, 1, 0], [0, 1, 0, 0]
    assert metric_named(name) is METRICS[name] and METRICS[name].name == name
    assert score(name, gold, predicted) == score(METRICS[name], gold, predicted)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_lowest_score_is_that_of_the_worst_predictions(metric):
    assert score(metric, [0, 1, 1, 0], [1, 0, 0, 1]) == pytest.approx(metric.lowest)


@pytest.mark.parametrize("metric", [*METRICS.values(), BALANCED], ids=lambda metric: metric.name)
def test_a_metric_that_travelled_is_still_the_metric(metric):
    travelled = ray.cloudpickle.loads(ray.cloudpickle.dumps(metric))
    assert metric_named(travelled) == metric


@pytest.mark.parametrize("name", ["accuracy", ""])
def test_the_name_of_a_built_in_metric_is_not_free(name):
    with pytest.raises(ValueError, match=rf"metric '{name}': .*not one of macro_f1, .*; give it another name"):
        score(Metric(name=name, compute=balanced_accuracy_score), [0], [0])


def test_a_built_in_metric_that_was_changed_is_not_the_built_in_one():
    with pytest.raises(ValueError, match="give it another name"):
        metric_named(dataclasses.replace(METRICS["accuracy"], compute=balanced_accuracy_score))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"metric 'f2': allowed are macro_f1, micro_f1, .*Metric of your own"):
        metric_named("f2")


@pytest.mark.parametrize("share", [85.0, -0.5, np.nan, np.inf])
def test_a_result_that_is_no_share_is_refused(share):
    with pytest.raises(ValueError, match=f"metric 'mine' computed {share}; .* a share of 0 to 1"):
        score(Metric(name="mine", compute=lambda gold, predicted: share), [0, 1], [0, 1])


@pytest.mark.parametrize("name", OF_PAIRS)
def test_a_metric_of_a_pair_is_the_mean_of_both(name):
    draws = np.random.default_rng(0)
    drawn = draws.integers(0, 2, (2, 40)) if name == "accuracy_f1" else draws.random((2, 40))
    parts = [score(part, *drawn) for part in OF_PAIRS[name]]
    assert score(name, *drawn) == pytest.approx(np.mean(parts)) and parts[0] != parts[1]
