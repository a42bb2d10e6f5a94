"""Two voices as one: the pool, and the share that labelled rows give it."""

import numpy as np
import pytest

from tlm_ray.evaluation.pooling import best_share, pooled

OWN = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
OTHER = np.array([[0.1, 0.6, 0.3], [0.2, 0.5, 0.3]])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_pool_is_the_weighted_mean_of_log_probabilities(share):
    logs = share * np.log(OWN) + (1 - share) * np.log(OTHER)
    np.testing.assert_allclose(pooled(OWN, OTHER, share), np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True))


def test_what_one_voice_thinks_impossible_is_not_out():
    sure = np.array([[1.0, 0.0]])
    assert pooled(sure, np.array([[1e-5, 1 - 1e-5]]), 0.3).argmax() == 1
    assert np.isfinite(pooled(sure, np.array([[0.0, 1.0]]), 0.5)).all()


def test_numbers_are_averaged():
    np.testing.assert_allclose(pooled(np.array([[1.0], [3.0]]), np.array([[5.0], [3.0]]), 0.75), [[2.0], [3.0]])


def test_the_share_gives_labelled_rows_the_lowest_cross_entropy():
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 3, 300)
    right, wrong = (0.9 * np.eye(3)[each] + 0.1 / 3 for each in (gold, (gold + 1) % 3))
    assert best_share(gold, right, wrong) == 1.0 and best_share(gold, wrong, right) == 0.0
    one, other = (np.where(rng.random((300, 1)) < hits, right, wrong) for hits in (0.8, 0.7))  # they err apart
    found = best_share(gold, one, other)
    losses = {share: -np.log(pooled(one, other, share)[np.arange(300), gold]).mean() for share in np.linspace(0, 1, 21)}
    assert losses[found] == min(losses.values()) and 0.5 < found < 1


def test_the_share_gives_labelled_numbers_the_least_squared_error():
    gold = np.array([1.0, 2.0, 3.0])
    assert best_share(gold, gold[:, None] + 1, gold[:, None] - 3) == 0.75
