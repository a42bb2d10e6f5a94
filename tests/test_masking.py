"""The masks, against the binomial law, scipy's tests of uniformity, and the key that they are drawn from."""

import numpy as np
import pytest
from scipy import stats

from tlm_ray.training.tokens.masking import Masking, Vocabulary, uniform

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
        ({"words": -1}, r"masking words -1: must be 0 \(single tokens\), 1 \(whole words\) or more"),
        ({"masked": -0.1}, "masked -0.1 and random 0.1: must be 0 or more and sum to at most 1"),
        ({"masked": 0.9, "random": 0.2}, "masked 0.9 and random 0.2: must be 0 or more and sum"),
    ],
)
def test_shares_that_cannot_be_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Masking(**wrong)


PIECES = Vocabulary(
    size=VOCABULARY, pad_id=0, mask_id=MASK, special_ids=SPECIAL, continuing_ids=tuple(range(600, VOCABULARY))
)
SEP = 3


def words_of(row):
    """The words of a row as lists of places, by a plain loop; None where a special token stands between two."""
    words = []
    for place, token in enumerate(row):
        if token in SPECIAL:
            words.append(None)
        elif token in PIECES.continuing_ids and place and words[-1] is not None:
            words[-1].append(place)
        else:
            words.append([place])
    return words


def draw_words(rows):
    """Rows of 60 pieces, two in five of which continue a word, with a special token in the middle."""
    tokens = draw_tokens(rows, 61)
    tokens[:, 30] = SEP
    return tokens


@pytest.mark.parametrize("most", [1, 2, 3])
def test_spans_are_of_whole_words_and_cover_their_share(most):
    """Spans start at each word with a rate that is found here by simulating words one by one."""
    tokens = draw_words(10_000)
    masked, chosen = Masking(words=most)(tokens, PIECES, seed=1, step=2, rows=np.arange(len(tokens)))
    assert not chosen[:, 30].any() and (masked == tokens)[~chosen].all()
    inner = whole = hits = 0
    for row, hit in zip(tokens[:2000], chosen, strict=False):
        words = words_of(row)
        for place, word in enumerate(words):
            if word is None:
                continue
            assert len({bool(hit[each]) for each in word}) == 1, "no word is half masked"
            whole += 1
            before = words[max(place - most + 1, 0) : place]
            if None not in before and len(before) == most - 1:  # spans may reach it from all places
                inner, hits = inner + 1, hits + bool(hit[word[0]])
    assert whole >= inner > whole / 2
    # words of a span are hit together, which widens the binomial law by at most the longest span
    assert abs(hits / inner - 0.15) < 5 * most * (0.15 * 0.85 / inner) ** 0.5


def test_spans_are_of_n_words_with_a_probability_in_proportion_to_1_by_n():
    """Lan et al. 2020: of 1, 2 and 3 words in 6, 3 and 2 of 11; so few that hardly any two meet."""
    tokens = draw_words(10_000)
    _, chosen = Masking(words=3, share=0.004)(tokens, PIECES, seed=3, step=4, rows=np.arange(len(tokens)))
    sizes = np.zeros(5, int)
    for row in np.flatnonzero(chosen.any(axis=1)):
        words = words_of(tokens[row])
        hits = [word is not None and bool(chosen[row, word[0]]) for word in words]
        for place, hit in enumerate(hits[:-3]):
            if hit and not hits[place - 1] and None not in words[place : place + 3]:  # a span that no end cuts
                sizes[[*hits[place : place + 4], False].index(False)] += 1
    assert sizes[1:].sum() > 500
    assert sizes[4] <= 0.02 * sizes.sum(), "hardly any two meet"
    assert stats.chisquare(sizes[1:4], sizes[1:4].sum() * np.array([6, 3, 2]) / 11).pvalue > 1e-3


def test_masks_of_words_do_not_depend_on_padding():
    tokens = draw_words(50)
    wider = np.pad(tokens, ((0, 0), (0, 9)))
    for masking in (Masking(words=1), Masking(words=3)):
        own, further = (masking(each, PIECES, seed=1, step=2, rows=np.arange(50))[1] for each in (tokens, wider))
        np.testing.assert_array_equal(own, further[:, :61])
        assert not further[:, 61:].any()


def test_words_are_known_from_the_marks_of_each_kind_of_vocabulary():
    class Tokens(list):
        all_special_ids, pad_token_id, mask_token_id, eos_token_id, sep_token_id = (0,), 0, 0, None, 0

        def convert_ids_to_tokens(self, numbers):
            return [self[number] for number in numbers]

    for tokens, continuing in (
        (["[MASK]", "sea", "##s", "ing", "##ing"], (2, 4)),
        (["<mask>", "\u0120sea", "s", "\u0120in"], (0, 2)),
        (["<mask>", "\u2581sea", "s", "\u2581in"], (0, 2)),
        (["<mask>", "\u0120sea", "s", "\u0120in", "##"], (0, 2, 4)),
        (["[MASK]", "sea", "s"], ()),
    ):
        assert Vocabulary.of(Tokens(tokens)).continuing_ids == continuing
    assert Vocabulary.of(Tokens(["[MASK]", "sea", ".", "##.", "\u0120!", "\u2581?", ".."])).ending_ids == (2, 4, 5)
