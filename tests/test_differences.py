"""Which rows differ: against scipy's bootstrap and permutation test, and by how often an interval holds the truth."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tlm_ray.evaluation.scores import METRICS, Metric, score
from tlm_ray.report.statistics.differences import (
    Difference,
    Predictions,
    _paired,
    _Runs,
    compare,
    corrected,
    over_tasks,
)
from tlm_ray.report.statistics.jackknife import freedom_of, row_values
from tlm_ray.report.tables.grids import average_of

ROWS = 800


def guesses(draw, gold, share, classes=3):
    """Predict each row rightly with a chance, (rows,) or one number."""
    right = draw.random(len(gold)) < share
    return np.where(right, gold, (gold + draw.integers(1, classes, len(gold))) % classes)


@pytest.fixture(scope="module")
def pair():
    """Gold labels and what two classifiers of 74 and 70 % that err alike predict."""
    draw = np.random.default_rng(3)
    gold, hard = draw.integers(0, 3, ROWS), draw.random(ROWS)
    return gold, *(np.where(hard < share, gold, guesses(draw, gold, 0.1)) for share in (0.72, 0.68))


def single(name, predicted, gold, metric="accuracy", *, is_drawn=False):
    runs = np.atleast_2d(predicted)
    return Predictions(row=name, task="t", metric=metric, gold=gold, predicted=runs, is_drawn=is_drawn)


def compared(one, other, gold, **options):
    return compare([single("a", one, gold, **options), single("b", other, gold, **options)])[0]


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_an_interval_is_scipys(pair, metric):
    gold, one, other = pair
    found = compared(one, other, gold, metric=metric)

    def difference(rows):
        return (score(metric, gold[rows], one[rows]) - score(metric, gold[rows], other[rows])) / 100

    def accuracies(a, b, axis):
        return a.mean(axis) - b.mean(axis)

    if metric == "accuracy":
        samples, statistic = ((one == gold).astype(float), (other == gold).astype(float)), accuracies
        options = {"paired": True, "vectorized": True, "n_resamples": 50_000, "batch": 5_000}
    else:
        samples, statistic = (np.arange(ROWS),), difference
        options = {"vectorized": False, "n_resamples": 800}
    expected = stats.bootstrap(samples, statistic, method="percentile", rng=np.random.default_rng(0), **options)
    interval = expected.confidence_interval
    tolerance = 1e-3 if metric == "accuracy" else 5e-3  # of fewer draws, whose ends vary
    assert np.array(found.interval) / 100 == pytest.approx([interval.low, interval.high], abs=tolerance)
    assert found.mean == pytest.approx(100 * difference(np.arange(ROWS)))


def test_p_is_that_of_a_permutation_test(pair):
    gold, one, other = pair
    right = [(each == gold).astype(float) for each in (one, other)]
    expected = stats.permutation_test(
        right,
        lambda a, b, axis: a.mean(axis) - b.mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=np.random.default_rng(0),
    )
    assert compared(one, other, gold).p == pytest.approx(expected.pvalue, abs=0.01)
    near = np.where(np.random.default_rng(1).random(ROWS) < 0.98, one, other)
    assert compared(one, near, gold).p > 0.05


def test_p_of_a_middling_difference_is_that_of_a_paired_t_test():
    draw = np.random.default_rng(6)
    gold = np.zeros(60, int)
    one, other = (guesses(draw, gold, share) for share in (0.7, 0.6))
    found, right = compared(one, other, gold), [(each == gold) * 100.0 for each in (one, other)]
    expected = stats.ttest_rel(*right)
    error = np.std(right[0] - right[1], ddof=1) / np.sqrt(60)
    assert found.error == pytest.approx(error) and found.error > 5, "p of a mean times its error would be another"
    assert 0.1 < expected.pvalue < 0.9 and found.p == pytest.approx(expected.pvalue, abs=0.005)


def probabilities(draw, hard, lead, seeds, *, of_seeds=0.25, of_both=1.0):
    """Chances of rows to be right, (rows, seeds): by row, by seed, and by what they do together."""
    noise = of_seeds * draw.normal(size=(1, seeds)) + of_both * draw.normal(size=(len(hard), seeds))
    return 1 / (1 + np.exp(-(hard[:, None] + lead + noise)))


@pytest.mark.parametrize("seeds", [2, 5])
def test_95_of_100_intervals_hold_the_difference_that_there_is(seeds):
    draw, repeats, rows = np.random.default_rng(0), 400, 200
    many = draw.normal(0.5, 1.5, 1_000_000)
    truth = 100 * np.subtract(*(probabilities(draw, many, lead, 1, of_seeds=0).mean() for lead in (0.25, 0.0)))
    held = 0
    for _ in range(repeats):
        hard, gold = draw.normal(0.5, 1.5, rows), draw.integers(0, 2, rows)
        runs = [
            np.where(draw.random((rows, seeds)) < probabilities(draw, hard, lead, seeds), gold[:, None], 2).T
            for lead in (0.25, 0.0)
        ]
        given = [single(name, own, gold, is_drawn=True) for name, own in zip("ab", runs, strict=True)]
        low, high = compare(given)[0].interval
        held += low <= truth <= high
    assert 0.93 <= held / repeats <= 0.97


def voted(draw, rows, seeds, *, of_seeds):
    """Gold labels, 0 is right, and the chances that seeds give to being wrong, (seeds, rows)."""
    hard = draw.normal(0.5, 1.5, rows)
    return np.zeros(rows, int), 1 - probabilities(draw, hard, 0.0, seeds, of_seeds=of_seeds, of_both=1.5).T


def each_of(chances, gold):
    return single("a", (chances > 0.5).astype(int), gold, is_drawn=True)


def ensemble(chances, gold):
    means = [chances, *(np.delete(chances, seed, axis=0) for seed in range(len(chances)))]
    whole, *less = ((each.mean(axis=0) > 0.5).astype(int) for each in means)
    return Predictions(
        row="b", task="t", metric="accuracy", gold=gold, predicted=whole[None], members="a", without=np.array(less)
    )


@pytest.mark.parametrize(("seeds", "of_seeds"), [(3, 0.25), (5, 1.0)])
def test_95_of_100_intervals_hold_the_gain_of_an_ensemble(seeds, of_seeds):
    draw, repeats, rows = np.random.default_rng(1), 200, 300

    def drawn(rows):
        gold, chances = voted(draw, rows, seeds, of_seeds=of_seeds)
        return [ensemble(chances, gold), each_of(chances, gold)]

    truth = np.mean([np.subtract(*(100 * (row.predicted == 0).mean() for row in drawn(5_000))) for _ in range(100)])
    found = [compare(drawn(rows))[0] for _ in range(repeats)]
    assert np.mean([each.interval[0] <= truth <= each.interval[1] for each in found]) >= 0.92
    variance = np.var([each.mean for each in found])
    assert 1 <= np.mean([each.error**2 for each in found]) / variance <= 2.5, "rather too wide than too narrow"


def test_an_ensembles_spread_over_seeds_is_that_of_tukeys_pseudo_values():
    gold, chances = voted(np.random.default_rng(2), 500, 4, of_seeds=1.0)
    together, each = ensemble(chances, gold), each_of(chances, gold)
    whole, *less = (score("accuracy", gold, run) for run in (together.predicted[0], *together.without))
    own = [score("accuracy", gold, run) for run in each.predicted]
    paired = 4 * whole - 3 * np.array(less) - own
    over_seeds, freedom, is_all = _paired(*map(_Runs.scored, (together, each)))[1]
    assert (over_seeds, freedom, is_all) == (pytest.approx(paired.var(ddof=1) / 4), 3, True)
    found = compare([together, each])[0]
    assert found.are_kin and found.counts_seeds and found.mean == pytest.approx(whole - np.mean(own))
    right = [100.0 * (row.predicted == gold).mean(axis=0) for row in (together, each)]
    assert found.error**2 == pytest.approx((right[0] - right[1]).var(ddof=1) / len(gold) + over_seeds)


@pytest.mark.parametrize("seeds", [1, 2])
def test_rows_of_the_same_few_seeds_say_that_their_spread_is_not_seen(seeds):
    gold, chances = voted(np.random.default_rng(4), 400, seeds, of_seeds=1.0)
    each = each_of(chances, gold)
    if seeds == 2:  # without one seed an ensemble of two is the other: the same pseudo-value twice
        found = compare([ensemble(chances, gold), each])[0]
    else:
        blended = (chances * np.random.default_rng(0).random(chances.shape) > 0.3).astype(int)
        found = compare([replace(single("c", blended, gold, is_drawn=True), members="a"), each])[0]
    assert not found.counts_seeds and found.error > 0 and found.freedom <= 399
    assert not replace(found, mean=99.0).is_shown


def test_an_ensemble_against_one_run_of_another_row_says_that_a_spread_is_left_out():
    gold, chances = voted(np.random.default_rng(4), 400, 3, of_seeds=1.0)
    together, once = ensemble(chances, gold), single("z", (chances[0] > 0.4).astype(int), gold, is_drawn=True)
    assert not compare([together, once])[0].counts_seeds
    assert compare([together, single("z", (chances[0] > 0.4).astype(int), gold)])[0].counts_seeds


def test_a_difference_is_the_same_from_either_side(pair):
    gold, one, other = pair
    found = {(each.row, each.other): each for each in compare([single("a", one, gold), single("b", other, gold)])}
    assert found["a", "b"].mean == -found["b", "a"].mean and found["a", "b"].p == found["b", "a"].p


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.of_confusions])
def test_scores_of_confusion_matrices_are_scikit_learns(name, pair):
    metric = METRICS[name]
    gold, one, _ = pair
    if name == "accuracy_f1":
        gold, one = gold % 2, one % 2
    slow = Metric(name="slow", compute=metric.compute)
    runs = np.array([one, gold, np.zeros_like(gold), np.roll(one, 5)])
    groups = np.random.default_rng(0).permutation(ROWS) // 3
    for rows in (slice(None, 60), slice(0, 7), slice(0, 2)):  # of few rows, some classes are never seen
        for own in (None, np.unique(groups[rows], return_inverse=True)[1]):
            fast, expected = (row_values(m, gold[rows], runs[:, rows], own) for m in (metric, slow))
            np.testing.assert_allclose(fast, expected, atol=1e-7)


def test_pseudo_values_of_accuracy_are_rows(pair):
    gold, one, _ = pair
    np.testing.assert_allclose(row_values("accuracy", gold, one[None]), [100.0 * (one == gold)], atol=1e-9)


def test_rows_of_one_text_count_as_one(pair):
    gold, one, other = pair
    once, groups = compared(one, other, gold, metric="macro_f1"), np.repeat(np.arange(ROWS), 3)
    thrice = [
        single(name, np.repeat(each, 3), np.repeat(gold, 3), "macro_f1") for name, each in (("a", one), ("b", other))
    ]
    together = compare([replace(each, groups=groups) for each in thrice])[0]
    assert (together.mean, together.error, together.p) == pytest.approx((once.mean, once.error, once.p))
    assert together.freedom == pytest.approx(once.freedom)
    assert compare(thrice)[0].error == pytest.approx(once.error / np.sqrt(3), rel=0.01)


def test_the_error_of_grouped_rows_is_that_of_the_means_of_groups():
    draw = np.random.default_rng(8)
    hard, groups = draw.normal(size=100), np.repeat(np.arange(100), 5)  # of equal size: accuracy is a mean of means
    gold = np.zeros(500, int)
    one, other = ((hard[groups] + draw.normal(size=500) > lead).astype(int) for lead in (0.3, 0.0))
    found = compare([replace(single(name, each, gold), groups=groups) for name, each in (("a", one), ("b", other))])[0]
    means = [100.0 * (each == gold).reshape(100, 5).mean(axis=1) for each in (one, other)]
    assert found.error == pytest.approx(np.std(means[0] - means[1], ddof=1) / 10)


def test_degrees_of_freedom_are_few_where_few_rows_decide():
    draw = np.random.default_rng(0)
    normal = draw.normal(size=(500, 100))
    assert 80 < np.mean(list(map(freedom_of, normal))) <= 99
    assert freedom_of(np.concatenate([draw.normal(size=5) * 100, np.zeros(95)])) < 10
    assert freedom_of(np.ones(10)) == 9, "where nothing varies all but one"


def test_numbers_are_compared_by_their_metric():
    draw = np.random.default_rng(0)
    gold = draw.normal(size=300)
    good, bad = gold + 0.3 * draw.normal(size=300), gold + 2 * draw.normal(size=300)
    found = compare([single(n, p, gold, "pearson_spearman") for n, p in (("a", good), ("b", bad))])[0]
    assert found.is_shown and found.mean == pytest.approx(
        score("pearson_spearman", gold, good) - score("pearson_spearman", gold, bad)
    )


def test_a_row_of_one_training_borrows_the_spread_of_the_others_seeds(pair):
    gold, one, other = pair
    draw = np.random.default_rng(5)
    seeds = np.array([np.where(draw.random(ROWS) < share, one, other) for share in (0.1, 0.5, 0.9)])
    of_three = single("a", seeds, gold, is_drawn=True)
    drawn, fixed = (compare([of_three, single("b", other, gold, is_drawn=is_drawn)])[0] for is_drawn in (True, False))
    assert drawn.error > fixed.error and drawn.mean == fixed.mean


def test_means_over_tasks_add_variances():
    parts = [Difference(row="a", other="b", tasks=(t,), mean=m, error=e, freedom=4) for t, m, e in ("x12", "y34")
             for m, e in ((float(m), float(e)),)]  # fmt: skip
    whole = over_tasks(parts)
    assert (whole.tasks, whole.mean) == (("x", "y"), 2.0)
    assert whole.error == pytest.approx(np.sqrt(2**2 + 4**2) / 2)
    assert whole.freedom == pytest.approx((4 + 16) ** 2 / (4**2 / 4 + 16**2 / 4))


def test_a_mean_counts_trainings_with_two_test_sets_once():
    parts = [Difference(row="a", other="b", tasks=(t,), mean=m, error=e, freedom=f) for t, m, e, f in
             (("rte", 1.0, 2.0, 9), ("mnli", 4.0, 1.0, 5), ("mnli-mm", 6.0, 3.0, 7))]  # fmt: skip
    whole = over_tasks(parts)
    assert whole.tasks == ("rte", "mnli", "mnli-mm")
    assert whole.mean == average_of({each.tasks[0]: each.mean for each in parts}) == 3.0
    assert whole.error == pytest.approx(np.sqrt(2**2 + 2**2) / 2), "as if both test sets erred together"
    assert whole.freedom == pytest.approx((4 + 4) ** 2 / (4**2 / 9 + 4**2 / 5))


def erring(*places):
    """Runs over 100 rows that are wrong from each place on, for 20 or 21 rows; 0 is right."""
    return np.array([[int(start <= row < stop) for row in range(100)] for start, stop in places])


def test_seeds_that_happen_to_score_alike_are_no_proof():
    """With 20 or 21 errors of 100 in other rows, differences of both seeds are equal, and rows covary negatively."""
    gold = np.zeros(100, int)
    one, other = single("a", erring((0, 20), (20, 40)), gold), single("b", erring((40, 61), (61, 82)), gold)
    one, other = (replace(row, is_drawn=True, members="a") for row in (one, other))
    found = compare([one, other])[0]
    by_rows = (one.predicted == 0).mean(axis=0) - (other.predicted == 0).mean(axis=0)
    assert found.mean == pytest.approx(1.0)
    assert found.error == pytest.approx(100 * by_rows.std(ddof=1) / 10), "of the test rows, as of one training"
    assert found.p > 0.5 and not found.counts_seeds


def test_three_seeds_that_differ_alike_are_tested(pair):
    gold, one, other = pair
    runs = [single(name, np.array([each] * 3), gold, is_drawn=True) for name, each in (("a", one), ("b", other))]
    assert compare([runs[0], replace(runs[1], members="a")])[0].counts_seeds


@pytest.mark.parametrize("seeds", [2, 3])
def test_rows_of_the_same_trainings_with_equal_means_seldom_differ(seeds):
    draw, repeats, rows, shown = np.random.default_rng(6), 400, 300, 0
    for _ in range(repeats):
        hard, gold = draw.normal(1.5, 1.5, rows), np.zeros(rows, int)
        one, again = (draw.random((rows, seeds)) < probabilities(draw, hard, 0.0, seeds) for _ in range(2))
        other = np.where(draw.random((rows, seeds)) < 0.1, again, one)
        runs = [single(name, (~right).astype(int).T, gold, is_drawn=True) for name, right in (("a", one), ("b", other))]
        shown += compare([runs[0], replace(runs[1], members="a")])[0].p < 0.05
    assert shown / repeats <= 0.06


def test_rows_that_predict_alike_do_not_differ(pair):
    gold, one, _ = pair
    found = compared(one, one, gold)
    assert found.mean == 0 and found.p == 1 and not found.is_shown


def test_rows_of_other_test_sets_are_refused(pair):
    gold, one, other = pair
    with pytest.raises(ValueError, match="row 'b' on 't': its gold labels are not those of row 'a'"):
        compare([single("a", one, gold), single("b", other, np.roll(gold, 1))])


@pytest.mark.parametrize(("rows", "is_shown"), [(1, False), (3, False), (8, True), (400, True)])
def test_where_nothing_varies_p_is_that_of_a_sign_test(rows, is_shown):
    gold = np.ones(rows, int)
    found = compared(gold, 0 * gold, gold)
    assert (found.mean, found.error, found.interval) == (100.0, 0.0, (100.0, 100.0))
    assert found.p == pytest.approx(stats.binomtest(rows, rows).pvalue) and found.is_shown == is_shown


def test_p_of_several_differences_are_holms():
    found = [
        Difference(row="a", other="b", tasks=(t,), mean=m, error=1.0, freedom=1e9)
        for t, m in zip("1234", MEANS, strict=True)
    ]
    assert [each.p for each in found] == pytest.approx([0.01, 0.04, 0.03, 0.005])
    told = corrected(found)
    assert [each.reported_p for each in told] == pytest.approx([0.03, 0.06, 0.06, 0.02]), "Wikipedia's example"
    assert [each.is_shown for each in told] == [True, False, False, True] and all(each.is_shown for each in found)
    assert [each.among for each in told] == [3, 2, 2, 3], "of those that are not shown, and itself"
    just, short = (replace(told[1], mean=share * stats.norm.isf(0.05 / 2 / 2)) for share in (1.001, 0.999))
    again = [corrected([*found[:1], each, *found[2:]])[1].is_shown for each in (just, short)]
    assert again == [True, False], "the level of 0.05 / 2 is what it would have been shown by"
    assert told[1].smallest == pytest.approx(stats.norm.isf(0.0125) + stats.norm.ppf(0.8))


MEANS = stats.norm.isf(np.array([0.01, 0.04, 0.03, 0.005]) / 2)


def test_a_metric_without_a_number_for_some_test_sets_is_named():
    gold = np.array([0] * 9 + [1])
    of_ones = Metric(name="recall of ones", compute=lambda gold, said: float(said[gold == 1].sum() / (gold == 1).sum()))
    with (
        pytest.raises(ValueError, match="metric 'recall of ones': has no number for a test set without"),
        np.errstate(invalid="ignore"),
    ):
        row_values(of_ones, gold, gold[None])


def test_many_rows_and_many_classes_are_left_out_in_parts(monkeypatch, pair):
    gold, one, _ = pair
    whole = row_values("macro_f1", gold, one[None])
    monkeypatch.setattr("tlm_ray.report.statistics.jackknife.CHUNK", 9 * 70)
    np.testing.assert_array_equal(row_values("macro_f1", gold, one[None]), whole)


def test_a_slow_metric_is_computed_for_blocks_of_rows(monkeypatch, pair):
    gold, one, _ = pair
    slow = Metric(name="slow", compute=METRICS["accuracy"].compute)
    monkeypatch.setattr("tlm_ray.report.statistics.jackknife.BLOCKS", 200)
    values = row_values(slow, gold, one[None])
    assert values.shape == (1, 200) and values.mean() == pytest.approx(score("accuracy", gold, one), abs=0.5)
    right = 100 * (one == gold)
    assert values.var(ddof=1) / 200 == pytest.approx(right.var(ddof=1) / ROWS, rel=0.3)


def test_rows_of_other_groups_are_refused(pair):
    gold, one, other = pair
    with pytest.raises(ValueError, match="row 'b' on 't': its groups are not those of row 'a'"):
        compare([single("a", one, gold), replace(single("b", other, gold), groups=np.arange(ROWS))])
