"""The masks, against the binomial law, scipy's tests of uniformity, and the key that they are drawn from."""

import numpy as np
import pytest
from scipy import stats

from tlm_ray.training.masking import Masking, Vocabulary, uniform

VOCABULARY, MASK = 1000, 4
SPECIAL = (0, 1, 2, 3, MASK)
TOKENIZER = Vocabulary(size=VOCABULARY, pad_id=0, mask_id=MASK, special_ids=SPECIAL)
MASKING = Masking()


def draw_tokens(rows, length, seed=0):
    return np.random.default_rng(seed).integers(len(SPECIAL), VOCABULARY, (rows, length))


def assert_rate(hits, trials, rate):
    """A rate that the binomial law gives once in a million is wrong; the draws are fixed, so this never flickers."""
    assert stats.binomtest(int(hits), int(trials), rate).pvalue > 1e-6


@pytest.fixture(scope="module")
def large():
    tokens = draw_tokens(4000, 128)
    masked, chosen = MASKING(tokens, TOKENIZER, seed=1, step=2, rows=np.arange(4000))
    return tokens, masked, chosen


def test_fifteen_per_cent_are_chosen(large):
    _, _, chosen = large
    assert_rate(chosen.sum(), chosen.size, 0.15)


def test_chosen_tokens_become_mask_random_or_stay_by_80_10_10(large):
    tokens, masked, chosen = large
    count, seen = chosen.sum(), masked[chosen]
    kept = seen == tokens[chosen]
    swapped = ~kept & (seen != MASK)
    # a random token is the original once in a vocabulary, and [MASK] as often
    assert_rate((seen == MASK).sum(), count, 0.8 + 0.1 / VOCABULARY)
    assert_rate(kept.sum(), count, 0.1 + 0.1 / VOCABULARY)
    assert_rate(swapped.sum(), count, 0.1 - 0.2 / VOCABULARY)


def test_random_tokens_are_uniform_over_the_whole_vocabulary(large):
    tokens, masked, chosen = large
    swapped = masked[chosen & (masked != tokens) & (masked != MASK)]
    assert swapped.min() >= 0 and swapped.max() < VOCABULARY
    counts = np.delete(np.bincount(swapped, minlength=VOCABULARY), MASK)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_tokens_that_are_not_chosen_stay(large):
    tokens, masked, chosen = large
    np.testing.assert_array_equal(masked[~chosen], tokens[~chosen])


def test_special_tokens_are_never_chosen():
    tokens = np.random.default_rng(0).integers(0, 10, (2000, 64))
    masked, chosen = MASKING(tokens, TOKENIZER, seed=0, step=0, rows=np.arange(2000))
    special = np.isin(tokens, SPECIAL)
    assert not chosen[special].any() and chosen[~special].any()
    np.testing.assert_array_equal(masked[special], tokens[special])


def test_masks_depend_on_the_row_number_not_on_its_place_company_or_padding():
    tokens, rows = draw_tokens(50, 40), np.arange(50) * 7
    masked, chosen = MASKING(tokens, TOKENIZER, seed=3, step=9, rows=rows)
    some = np.array([31, 4, 4, 18])
    wider = np.hstack([tokens[some], np.zeros((4, 24), np.int64)])
    again, chosen_again = MASKING(wider, TOKENIZER, seed=3, step=9, rows=rows[some])
    np.testing.assert_array_equal(again[:, :40], masked[some])
    np.testing.assert_array_equal(chosen_again[:, :40], chosen[some])


@pytest.mark.parametrize("changed", [{"seed": 4}, {"step": 10}, {"rows": np.arange(1, 401)}])
def test_another_seed_step_or_row_is_an_independent_mask(changed):
    tokens, key = draw_tokens(400, 64), {"seed": 3, "step": 9, "rows": np.arange(400)}
    _, one = MASKING(tokens, TOKENIZER, **key)
    _, other = MASKING(tokens, TOKENIZER, **(key | changed))
    assert_rate((one & other).sum(), one.size, 0.15**2)


def test_the_global_random_state_is_neither_read_nor_moved():
    tokens, rows = draw_tokens(20, 20), np.arange(20)
    np.random.seed(0)
    before, _ = MASKING(tokens, TOKENIZER, seed=0, step=0, rows=rows)
    state = np.random.get_state()[1].copy()
    np.random.seed(1)
    after, _ = MASKING(tokens, TOKENIZER, seed=0, step=0, rows=rows)
    np.testing.assert_array_equal(before, after)
    np.random.seed(0)
    np.testing.assert_array_equal(np.random.get_state()[1], state)


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (0, 1), (1, 0), (2**31, 10**6)])
def test_draws_are_uniform(seed, step):
    draws = uniform(seed=seed, step=step, rows=np.arange(200), columns=100, draws=3)
    assert draws.dtype == np.float64 and draws.min() >= 0 and draws.max() < 1
    for each in draws:
        assert stats.kstest(each.ravel(), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["draw", "row", "column"])
def test_neighbouring_draws_are_not_correlated(axis):
    draws = uniform(seed=0, step=0, rows=np.arange(300), columns=128, draws=3)
    left, right = np.delete(draws, -1, axis).ravel(), np.delete(draws, 0, axis).ravel()
    assert stats.pearsonr(left, right).pvalue > 1e-4


@pytest.mark.parametrize("changed", [{"seed": 1}, {"step": 1}])
def test_draws_of_neighbouring_keys_are_not_correlated(changed):
    key = {"seed": 0, "step": 0, "rows": np.arange(300), "columns": 128, "draws": 3}
    assert stats.pearsonr(uniform(**key).ravel(), uniform(**(key | changed)).ravel()).pvalue > 1e-4
    assert not np.array_equal(uniform(**(key | {"seed": 1})), uniform(**(key | {"step": 1}))), "keys must not add up"


@pytest.mark.parametrize("share", [0.02, 0.4, 1.0])
def test_another_share_and_other_fates_are_kept(share):
    masking, tokens = Masking(share=share, masked=0.5, random=0.3), draw_tokens(1000, 64)
    masked, chosen = masking(tokens, TOKENIZER, seed=0, step=0, rows=np.arange(1000))
    assert_rate(chosen.sum(), chosen.size, share)
    assert_rate((masked[chosen] == MASK).sum(), chosen.sum(), 0.5 + 0.3 / VOCABULARY)
    assert_rate((masked[chosen] == tokens[chosen]).sum(), chosen.sum(), 0.2 + 0.3 / VOCABULARY)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"share": 0.0}, "masking share 0.0: must be above 0 and at most 1"),
        ({"share": 1.1}, "masking share 1.1: must be above 0"),
        ({"share": float("nan")}, "masking share nan: must be above 0"),
        ({"masked": -0.1}, "masked -0.1 and random 0.1: must be 0 or more and sum to at most 1"),
        ({"masked": 0.9, "random": 0.2}, "masked 0.9 and random 0.2: must be 0 or more and sum"),
    ],
)
def test_shares_that_cannot_be_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Masking(**wrong)
