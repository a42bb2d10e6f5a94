"""The interleave: which rows make which batch, on any number of ranks, as a pure function of the step."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.training.batches import POOL_BATCHES, Interleave, Stream
from tlm_ray.training.blocks import Blocks
from tlm_ray.training.masking import Masking

CLS, SEP, MASK, PAD, FIRST = 1, 2, 3, 0, 10
VOCABULARY = 5000
MASKING = Masking(mask_id=MASK, vocabulary=VOCABULARY, special_ids=(PAD, CLS, SEP, MASK))


def make_blocks(rows, *, kind, seed=0, longest=40, types=False):
    """Rows [CLS] row-number words... [SEP]: the second token says which row it is, even ones being general."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, longest + 1, rows)
    number = FIRST + 2 * np.arange(rows) + (kind == "task")
    parts = [[CLS, n, *rng.integers(FIRST, VOCABULARY, size - 3), SEP] for n, size in zip(number, lengths, strict=True)]
    tokens = np.concatenate(parts).astype(np.int32)
    segment = (np.concatenate([np.arange(size) < size // 2 for size in lengths])).astype(np.uint8)
    labels = rng.integers(0, 3, rows) if kind == "task" else None
    return Blocks(tokens, np.concatenate([[0], np.cumsum(lengths)]), types=segment if types else None, labels=labels)


def make_interleave(*, general=300, task=70, rho1=3, batch_rows=8, seed=0, **options):
    options = {"masking": MASKING} | options
    return Interleave(
        general=make_blocks(general, kind="general") if general else None,
        task=make_blocks(task, kind="task", seed=1),
        rho1=rho1,
        batch_rows=batch_rows,
        seed=seed,
        pad_id=PAD,
        **options,
    )


def rows_of(batch):
    """The rows of an unmasked batch by the number that they carry."""
    return (batch.tokens[:, 1] - FIRST) // 2


def assert_same(one, other):
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)


@pytest.mark.parametrize("rho1", [0, 1, 3, 999])
def test_a_cycle_is_rho1_general_batches_and_then_one_task_batch(rho1):
    plan = make_interleave(rho1=rho1)
    expected = (["general"] * rho1 + ["task"]) * 2
    assert [plan.kind(step) for step in range(len(expected))] == expected


def test_first_task_batch_of_rho1_999_is_update_1000():
    plan = make_interleave(rho1=999)
    updates = [step + 1 for step in range(3000) if plan.kind(step) == "task"]
    assert updates == [1000, 2000, 3000]


def test_batches_carry_the_kind_of_their_step():
    plan = make_interleave(rho1=2)
    for step in range(12):
        batch = plan.batch(step)
        assert batch.kind == plan.kind(step)
        assert (batch.labels is None) == (batch.kind == "general")


def test_general_and_task_rows_never_mix():
    plan = make_interleave(masking=None)
    for step in range(40):
        batch = plan.batch(step)
        assert set((batch.tokens[:, 1] - FIRST) % 2) == {int(batch.kind == "task")}


def test_batches_do_not_depend_on_the_order_in_which_they_are_asked_for():
    plan = make_interleave()
    forward = [plan.batch(step) for step in range(60)]
    for step in np.random.default_rng(0).permutation(60):
        assert_same(forward[step], make_interleave().batch(int(step)) if step % 7 == 0 else plan.batch(int(step)))


@pytest.mark.parametrize("kind", ["general", "task"])
def test_every_row_comes_once_a_pass(kind):
    rows = 3 * POOL_BATCHES * 4  # a pass is three pools of batches of 4
    stream = Stream(np.random.default_rng(0).integers(3, 50, rows), 4, (0, kind))
    passes = [np.concatenate([stream.rows(turn * rows // 4 + i) for i in range(rows // 4)]) for turn in range(3)]
    for seen in passes:
        np.testing.assert_array_equal(np.sort(seen), np.arange(rows))
    assert not np.array_equal(passes[0], passes[1]), "each pass is shuffled anew"


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(rows=st.integers(1, 400), batch_rows=st.integers(1, 24), pools=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_no_row_is_ever_more_than_one_pass_ahead_of_another(rows, batch_rows, pools, seed):
    stream = Stream(np.full(rows, 5), batch_rows, (seed, "task"))
    seen = np.concatenate([stream.rows(number) for number in range(pools * POOL_BATCHES)])
    counts = np.bincount(seen, minlength=rows)
    assert counts.sum() == pools * POOL_BATCHES * batch_rows
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("rows", "batch_rows"), [(515, 256), (64, 32), (1688, 256)])
def test_a_batch_is_of_distinct_rows_where_a_pass_is_less_than_a_pool(rows, batch_rows):
    stream = Stream(np.random.default_rng(0).integers(10, 128, rows), batch_rows, (0, "task"))
    distinct = [len(set(stream.rows(number))) for number in range(3 * POOL_BATCHES)]
    assert np.mean(distinct) > 0.95 * batch_rows  # only a batch across two passes may meet a row again


def test_both_streams_keep_their_own_place():
    plan = make_interleave(general=2000, task=1000, rho1=3, masking=None)
    seen = {"general": [], "task": []}
    for step in range(4 * POOL_BATCHES):
        seen[plan.kind(step)] += rows_of(plan.batch(step)).tolist()
    assert len(seen["task"]) == len(set(seen["task"])) == POOL_BATCHES * 8
    assert len(seen["general"]) == len(set(seen["general"])) == 3 * POOL_BATCHES * 8


@pytest.mark.parametrize("rho1", [1, 7])
def test_rho1_does_not_change_the_order_of_either_stream(rho1):
    base, plan = make_interleave(rho1=3, masking=None), make_interleave(rho1=rho1, masking=None)
    for kind in ("general", "task"):
        steps = {p: [s for s in range(80) if p.kind(s) == kind][:8] for p in (base, plan)}
        for left, right in zip(steps[base], steps[plan], strict=True):
            np.testing.assert_array_equal(rows_of(base.batch(left)), rows_of(plan.batch(right)))


def test_another_seed_is_another_order():
    one, other = make_interleave(seed=0, masking=None), make_interleave(seed=1, masking=None)
    assert any(not np.array_equal(rows_of(one.batch(s)), rows_of(other.batch(s))) for s in range(4))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_rows", [7, 8])
def test_ranks_share_out_the_global_batch_row_for_row(world, batch_rows):
    whole = make_interleave(batch_rows=batch_rows)
    ranks = [make_interleave(batch_rows=batch_rows, rank=rank, world=world) for rank in range(world)]
    for step in range(12):
        expected, parts = whole.batch(step), [rank.batch(step) for rank in ranks]
        tokens, targets = np.zeros_like(expected.tokens), np.full(expected.tokens.shape, -100)
        for rank, part in enumerate(parts):
            tokens[rank::world] = part.tokens
            own = np.full(part.tokens.shape, -100)
            own.ravel()[part.masked] = part.targets
            targets[rank::world] = own
        np.testing.assert_array_equal(tokens, expected.tokens)
        np.testing.assert_array_equal(np.flatnonzero(targets != -100), expected.masked)
        np.testing.assert_array_equal(targets.ravel()[expected.masked], expected.targets)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_counts_are_of_the_whole_step_and_tokens_of_the_rank(world):
    whole = make_interleave()
    for step in range(8):
        expected = whole.batch(step)
        parts = [make_interleave(rank=rank, world=world).batch(step) for rank in range(world)]
        assert {part.rows for part in parts} == {expected.rows} == {len(expected.tokens)}
        assert {part.masked_total for part in parts} == {len(expected.masked)}
        assert sum(part.real_tokens for part in parts) == expected.real_tokens == expected.attention.sum()
        if expected.kind == "task":
            labels = np.zeros_like(expected.labels)
            for rank, part in enumerate(parts):
                labels[rank::world] = part.labels
            np.testing.assert_array_equal(labels, expected.labels)


def test_batches_hold_the_blocks_tokens_and_padding():
    plan, tasks = make_interleave(masking=None), make_blocks(70, kind="task", seed=1)
    batch = plan.batch(3)
    assert batch.masked is None and batch.targets is None and batch.masked_total == 0
    assert batch.tokens.shape[1] == batch.attention.sum(1).max()
    for row, tokens, attention, label in zip(rows_of(batch), batch.tokens, batch.attention, batch.labels, strict=True):
        own = tasks.tokens[tasks.offsets[row] : tasks.offsets[row + 1]]
        np.testing.assert_array_equal(tokens[attention == 1], own)
        np.testing.assert_array_equal(attention, np.arange(len(tokens)) < len(own))
        assert (tokens[attention == 0] == PAD).all() and label == tasks.labels[row]


def test_a_step_masks_a_row_afresh():
    plan, clean = make_interleave(task=8, rho1=0), make_interleave(task=8, rho1=0, masking=None)
    masks = Counter()
    for step in range(30):
        batch, rows = plan.batch(step), rows_of(clean.batch(step))
        assert (batch.attention.ravel()[batch.masked] == 1).all(), "padding is never masked"
        at, place = np.divmod(batch.masked, batch.tokens.shape[1])
        masks.update({(row, tuple(place[at == i])) for i, row in enumerate(rows) if (at == i).sum() > 2})
    assert max(masks.values()) == 1


def test_pairs_carry_their_token_types_and_zero_where_padded():
    blocks = make_blocks(40, kind="task", types=True)
    plan = Interleave(general=None, task=blocks, rho1=0, batch_rows=8, seed=0, masking=None, pad_id=PAD)
    for step in range(5):
        batch = plan.batch(step)
        assert batch.types.dtype == np.int64 and (batch.types[batch.attention == 0] == 0).all()
        for row, types, attention in zip(rows_of(batch), batch.types, batch.attention, strict=True):
            own = blocks.types[blocks.offsets[row] : blocks.offsets[row + 1]]
            np.testing.assert_array_equal(types[attention == 1], own)


def test_without_task_batches_every_batch_is_the_next_general_one():
    alone, mixed = make_interleave(rho1=None, masking=None), make_interleave(rho1=1)
    assert {alone.kind(step) for step in range(20)} == {"general"}
    for step in range(10):
        np.testing.assert_array_equal(alone.streams["general"].rows(step), mixed.streams["general"].rows(step))
        assert (rows_of(alone.batch(step)) == alone.streams["general"].rows(step)).all()


def test_single_texts_carry_no_token_types():
    assert all(make_interleave().batch(step).types is None for step in range(4))


@pytest.mark.parametrize("rows", [5_000, 50_000])
def test_rows_of_like_length_together_leave_little_padding(rows):
    # word counts of real paragraphs are close to log-normal; 128 is the paper's limit
    lengths = np.clip(np.random.default_rng(0).lognormal(4.0, 0.6, rows), 8, 128).astype(int)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    blocks = Blocks(np.full(offsets[-1], FIRST, np.int32), offsets, labels=np.zeros(rows, int))
    plan = Interleave(general=None, task=blocks, rho1=0, batch_rows=32, seed=0, masking=None, pad_id=PAD)
    batches = [plan.batch(step) for step in range(4 * POOL_BATCHES)]
    padded = 1 - sum(b.real_tokens for b in batches) / sum(b.tokens.size for b in batches)
    unsorted = 1 - lengths[:4992].sum() / (lengths[:4992].reshape(-1, 32).max(1).sum() * 32)
    assert padded < 0.03 and padded < unsorted / 10


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 7, 8, 9])
def test_parts_hold_the_rows_of_their_batch_and_no_more_padding(rows, masked):
    plan = make_interleave(**({} if masked else {"masking": None}))
    for step in range(8):
        batch, found = plan.batch(step), []
        for part in batch.parts(rows):
            assert len(part.tokens) <= rows and part.tokens.shape[1] == part.attention.sum(1).max()
            assert (part.kind, part.rows, part.masked_total) == (batch.kind, batch.rows, batch.masked_total)
            assert part.real_tokens == part.attention.sum()
            found += flat_rows(part)
        assert found == flat_rows(batch)


def flat_rows(batch):
    """Each row's tokens, label, and what is to be predicted at which places."""
    places = [] if batch.masked is None else list(zip(*np.divmod(batch.masked, batch.tokens.shape[1]), strict=True))
    return [
        (
            batch.tokens[row, batch.attention[row] == 1].tolist(),
            None if batch.labels is None else int(batch.labels[row]),
            [(int(c), int(t)) for (r, c), t in zip(places, batch.targets, strict=True) if r == row] if places else [],
        )
        for row in range(len(batch.tokens))
    ]
