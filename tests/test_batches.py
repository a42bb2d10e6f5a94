"""Which rows make which batch, on any number of workers, as a pure function of the step."""

from collections import Counter

import numpy as np
import pytest

from tlm_ray.training.objectives import Loss, Mlm, task_loss, text_loss
from tlm_ray.training.sampler.batches import WIDTH_TO, Batches
from tlm_ray.training.sampler.mixers import Cycle
from tlm_ray.training.sampler.streams import POOL_BATCHES, Stream
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

CLS, SEP, MASK, PAD, FIRST = 1, 2, 3, 0, 10
VOCABULARY = 5000
TOKENIZER = Vocabulary(size=VOCABULARY, pad_id=PAD, mask_id=MASK, special_ids=(PAD, CLS, SEP, MASK))
LEARNED = {"general": text_loss((Mlm(),)), "task": task_loss((Mlm(),), rho2=1.0, weighting="released")}
NUMBERS = {"general": 0, "task": 1}


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


def make_batches(*, general=300, task=70, rho1=3, batch_rows=8, seed=0, clean=False, blocks=None, **options):
    """Batches of general text and a task; clean: as no objective has prepared them."""
    rows = {"general": make_blocks(general, kind="general"), "task": blocks or make_blocks(task, kind="task", seed=1)}
    streams = [
        Stream(
            name=name,
            number=NUMBERS[name],
            blocks=rows[name],
            loss=Loss(()) if clean else LEARNED[name],
            batch_rows=batch_rows,
            seed=seed,
        )
        for name in ["general"] * (rho1 != 0) + ["task"] * (rho1 is not None)
    ]
    return Batches(streams=tuple(streams), mixer=Cycle(rho1), vocabulary=TOKENIZER, seed=seed, **options)


def stream_of(batches, step):
    return batches.streams[batches.mixer.place(step)[0]].name


def rows_of(batch):
    """The rows of an unmasked batch by the number that they carry."""
    return (batch.tokens[:, 1] - FIRST) // 2


def assert_same(one, other):
    assert (one.stream, one.loss, one.tokens_total) == (other.stream, other.loss, other.tokens_total)
    assert one.targets.keys() == other.targets.keys()
    pairs = [(one, other), *((one.targets[name], other.targets[name]) for name in one.targets)]
    for left, right in pairs:
        for name, value in vars(left).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, getattr(right, name), err_msg=name)


@pytest.mark.parametrize("rho1", [0, 1, 3, 999])
def test_a_cycle_is_rho1_general_batches_and_then_one_task_batch(rho1):
    batches = make_batches(rho1=rho1)
    expected = (["general"] * rho1 + ["task"]) * 2
    assert [stream_of(batches, step) for step in range(len(expected))] == expected


def test_first_task_batch_of_rho1_999_is_update_1000():
    batches = make_batches(rho1=999)
    updates = [step + 1 for step in range(3000) if stream_of(batches, step) == "task"]
    assert updates == [1000, 2000, 3000]


def test_batches_carry_the_stream_of_their_step_and_its_targets():
    batches = make_batches(rho1=2)
    for step in range(12):
        batch = batches.batch(step)
        assert batch.stream == stream_of(batches, step) and batch.loss is LEARNED[batch.stream]
        assert list(batch.targets) == ["mlm", "labels"][: 1 + (batch.stream == "task")]


def test_general_and_task_rows_never_mix():
    batches = make_batches(clean=True)
    for step in range(40):
        batch = batches.batch(step)
        assert set((batch.tokens[:, 1] - FIRST) % 2) == {int(batch.stream == "task")}


def test_batches_do_not_depend_on_the_order_in_which_they_are_asked_for():
    batches = make_batches()
    forward = [batches.batch(step) for step in range(60)]
    for step in np.random.default_rng(0).permutation(60):
        assert_same(forward[step], make_batches().batch(int(step)) if step % 7 == 0 else batches.batch(int(step)))


def test_both_streams_keep_their_own_place():
    batches = make_batches(general=2000, task=1000, rho1=3, clean=True)
    seen = {"general": [], "task": []}
    for step in range(4 * POOL_BATCHES):
        seen[stream_of(batches, step)] += rows_of(batches.batch(step)).tolist()
    assert len(seen["task"]) == len(set(seen["task"])) == POOL_BATCHES * 8
    assert len(seen["general"]) == len(set(seen["general"])) == 3 * POOL_BATCHES * 8


@pytest.mark.parametrize("rho1", [1, 7])
def test_rho1_does_not_change_the_order_of_either_stream(rho1):
    base, batches = make_batches(rho1=3, clean=True), make_batches(rho1=rho1, clean=True)
    for kind in ("general", "task"):
        steps = {p: [s for s in range(80) if stream_of(p, s) == kind][:8] for p in (base, batches)}
        for left, right in zip(steps[base], steps[batches], strict=True):
            np.testing.assert_array_equal(rows_of(base.batch(left)), rows_of(batches.batch(right)))


def test_another_seed_is_another_order():
    one, other = make_batches(seed=0, clean=True), make_batches(seed=1, clean=True)
    assert any(not np.array_equal(rows_of(one.batch(s)), rows_of(other.batch(s))) for s in range(4))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_rows", [7, 8])
def test_workers_share_out_the_step_row_for_row(world, batch_rows):
    whole = make_batches(batch_rows=batch_rows)
    workers = [make_batches(batch_rows=batch_rows, rank=rank, world=world) for rank in range(world)]
    for step in range(12):
        expected, parts = whole.batch(step), [worker.batch(step) for worker in workers]
        tokens, predicted = np.zeros_like(expected.tokens), np.full(expected.tokens.shape, -100)
        for rank, part in enumerate(parts):
            assert len(part.tokens) == whole.rows_of(0) // world + (rank < batch_rows % world)
            tokens[rank::world] = part.tokens
            predicted[rank::world] = wanted(part)
        np.testing.assert_array_equal(tokens, expected.tokens)
        np.testing.assert_array_equal(predicted, wanted(expected))


def wanted(batch):
    """What is to be predicted at each place, -100 for nothing."""
    mlm, found = batch.targets["mlm"], np.full(batch.tokens.size, -100)
    found[mlm.places] = mlm.flat
    return found.reshape(batch.tokens.shape)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_totals_are_of_the_whole_step_and_tokens_of_the_worker(world):
    whole = make_batches()
    for step in range(8):
        expected = whole.batch(step)
        parts = [make_batches(rank=rank, world=world).batch(step) for rank in range(world)]
        assert {part.targets["mlm"].total for part in parts} == {len(expected.targets["mlm"].places)}
        assert {part.tokens_total for part in parts} == {expected.real_tokens}
        assert sum(part.real_tokens for part in parts) == expected.real_tokens == expected.attention.sum()
        if expected.stream == "task":
            assert {part.targets["labels"].total for part in parts} == {len(expected.tokens)}
            labels = np.zeros_like(expected.targets["labels"].values)
            for rank, part in enumerate(parts):
                labels[rank::world] = part.targets["labels"].values
            np.testing.assert_array_equal(labels, expected.targets["labels"].values)


def test_batches_hold_the_blocks_tokens_and_padding():
    batch, tasks = make_batches(clean=True).batch(3), make_blocks(70, kind="task", seed=1)
    labels = make_batches().batch(3).targets["labels"].values
    assert batch.targets == {}
    assert 0 <= batch.tokens.shape[1] - batch.attention.sum(1).max() < WIDTH_TO
    for row, tokens, attention, label in zip(rows_of(batch), batch.tokens, batch.attention, labels, strict=True):
        own = tasks.tokens[tasks.offsets[row] : tasks.offsets[row + 1]]
        np.testing.assert_array_equal(tokens[attention == 1], own)
        np.testing.assert_array_equal(attention, np.arange(len(tokens)) < len(own))
        assert (tokens[attention == 0] == PAD).all() and label == tasks.labels[row]


def test_a_step_masks_a_row_afresh():
    batches, clean = make_batches(task=8, rho1=0), make_batches(task=8, rho1=0, clean=True)
    masks = Counter()
    for step in range(30):
        batch, rows = batches.batch(step), rows_of(clean.batch(step))
        masked = batch.targets["mlm"].places
        assert (batch.attention.ravel()[masked] == 1).all(), "padding is never masked"
        at, place = np.divmod(masked, batch.tokens.shape[1])
        masks.update({(row, tuple(place[at == i])) for i, row in enumerate(rows) if (at == i).sum() > 2})
    assert max(masks.values()) == 1


def test_pairs_carry_their_token_types_and_zero_where_padded():
    blocks = make_blocks(40, kind="task", types=True)
    batches = make_batches(blocks=blocks, rho1=0, clean=True)
    for step in range(5):
        batch = batches.batch(step)
        assert batch.types.dtype == np.int64 and (batch.types[batch.attention == 0] == 0).all()
        for row, types, attention in zip(rows_of(batch), batch.types, batch.attention, strict=True):
            own = blocks.types[blocks.offsets[row] : blocks.offsets[row + 1]]
            np.testing.assert_array_equal(types[attention == 1], own)


def test_without_task_batches_every_batch_is_the_next_general_one():
    alone, mixed = make_batches(rho1=None, clean=True), make_batches(rho1=1)
    assert {stream_of(alone, step) for step in range(20)} == {"general"}
    for step in range(10):
        np.testing.assert_array_equal(alone.streams[0].rows(step), mixed.streams[0].rows(step))
        assert (rows_of(alone.batch(step)) == alone.streams[0].rows(step)).all()


def test_single_texts_carry_no_token_types():
    assert all(make_batches().batch(step).types is None for step in range(4))


@pytest.mark.parametrize("rows", [5_000, 50_000])
def test_rows_of_like_length_together_leave_little_padding(rows):
    # word counts of real paragraphs are close to log-normal; 128 is the paper's limit
    lengths = np.clip(np.random.default_rng(0).lognormal(4.0, 0.6, rows), 8, 128).astype(int)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    blocks = Blocks(np.full(offsets[-1], FIRST, np.int32), offsets, labels=np.zeros(rows, int))
    made = make_batches(blocks=blocks, rho1=0, batch_rows=32, clean=True)
    batches = [made.batch(step) for step in range(4 * POOL_BATCHES)]
    padded = 1 - sum(b.real_tokens for b in batches) / sum(b.tokens.size for b in batches)
    unsorted = 1 - lengths[:4992].sum() / (lengths[:4992].reshape(-1, 32).max(1).sum() * 32)
    assert padded < 0.08 and padded < unsorted / 5
    assert len({b.tokens.shape[1] for b in batches}) <= 128 / WIDTH_TO, "few shapes of products"


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 7, 8, 9])
def test_parts_hold_the_rows_of_their_batch_and_no_more_padding(rows, clean):
    batches = make_batches(clean=clean)
    for step in range(8):
        batch, found = batches.batch(step), []
        for part in batch.parts(rows):
            assert len(part.tokens) <= rows
            assert 0 <= part.tokens.shape[1] - part.attention.sum(1).max() < WIDTH_TO
            assert (part.stream, part.loss, part.tokens_total) == (batch.stream, batch.loss, batch.tokens_total)
            assert {n: t.total for n, t in part.targets.items()} == {n: t.total for n, t in batch.targets.items()}
            assert part.real_tokens == part.attention.sum() and not part.is_idle
            found += flat_rows(part)
        assert found == flat_rows(batch)


@pytest.mark.parametrize(("rows", "at_least", "parts"), [(0, 3, 3), (3, 3, 3), (3, 5, 5), (4, 1, 2), (9, 1, 1)])
def test_parts_that_are_only_computed_with_others_are_idle(rows, at_least, parts):
    batch = make_batches().batch(3)
    made = list(batch.parts(rows, at_least=at_least))
    idle = [part for part in made if part.is_idle]
    assert len(made) == parts and made[parts - len(idle) :] == idle
    assert all(part.real_tokens == 0 and len(part.tokens) for part in idle)
    assert sum(part.real_tokens for part in made) == batch.real_tokens


def flat_rows(batch):
    """Each row's tokens, label, and what is to be predicted at which places."""
    places = wanted(batch) if batch.targets else np.full(batch.tokens.shape, -100)
    labels = batch.targets["labels"].values if "labels" in batch.targets else [None] * len(batch.tokens)
    return [
        (tokens[inside == 1].tolist(), label, predicted[inside == 1].tolist())
        for tokens, inside, label, predicted in zip(batch.tokens, batch.attention, labels, places, strict=True)
    ]


def test_no_batch_is_wider_than_the_longest_row_of_all():
    """A model may have no position beyond it."""
    offsets = np.arange(0, 41 * 30, 30)  # 40 rows of 30 tokens, which is no multiple of WIDTH_TO
    blocks = Blocks(np.full(offsets[-1], FIRST, np.int32), offsets, labels=np.zeros(40, int))
    batch = make_batches(blocks=blocks, rho1=0).batch(0)
    assert batch.tokens.shape[1] == 30 and [part.tokens.shape[1] for part in batch.parts(3)] == [30, 30, 30]
