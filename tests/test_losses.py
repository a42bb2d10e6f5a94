"""The loss of a step: what a token, a row and a task count in it."""

import numpy as np
import pytest
import torch
from small import laid_out, small_flow
from trainings import make_trainer, stage_one, stage_two

from tlm_ray.training.kernels.projected_losses import ROWS_TO
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.objectives import Labels, Mlm, step_loss, task_loss, text_loss
from tlm_ray.training.sampler.batches import Batches
from tlm_ray.training.sampler.mixers import Cycle
from tlm_ray.training.sampler.streams import Stream
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

WORDS = Vocabulary(size=50, pad_id=0, mask_id=4, special_ids=(0, 1, 2, 3, 4))


def batches(loss, *, batch_rows=8) -> Batches:
    """Batches of a stream of which half the rows have 8 tokens, half 80."""
    lengths = np.repeat([8, 80], 256)
    tokens = np.random.default_rng(0).integers(5, WORDS.size, lengths.sum()).astype(np.int32)
    blocks = Blocks(tokens, np.concatenate([[0], np.cumsum(lengths)]), labels=np.zeros(len(lengths), np.int64))
    stream = Stream(name="task", number=1, blocks=blocks, loss=loss, batch_rows=batch_rows, seed=0)
    return Batches(streams=(stream,), mixer=Cycle(0), vocabulary=WORDS, seed=0)


def weight(batch, name: str, **options) -> float:
    """What one prediction of an objective counts in the loss of a step."""
    sums = {target: torch.zeros((), requires_grad=True) for target in batch.targets}
    step_loss(sums, batch.targets, batch.loss, token_share=batch.token_share, world=1, **options).backward()
    return float(sums[name].grad)


def test_a_token_counts_alike_in_batches_of_short_rows_and_of_long_ones():
    some = batches(text_loss((Mlm(),)))
    found = {}
    for step in range(64):
        batch = some.batch(step)
        chosen = batch.targets["mlm"].total / batch.tokens_total  # 15 %, but for chance
        found.setdefault(batch.tokens.shape[1], []).append(weight(batch, "mlm") * chosen)
    assert found.keys() == {8, 80}
    for weights in found.values():
        np.testing.assert_allclose(weights, 1 / (8 * 44), rtol=1e-6)  # of 8 rows, of 44 tokens on average


def test_a_row_counts_alike_however_long_it_is():
    some = batches(task_loss((Mlm(),), rho2=20.0, weighting="paper"))
    assert {weight(some.batch(step), "labels") for step in range(64)} == {1 / 8}


@pytest.mark.parametrize(("weighting", "labels"), [("released", 1 / 21), ("paper", 1.0), ("mlm", None)])
def test_weightings_of_a_task_batch(weighting, labels):
    batch = batches(task_loss((Mlm(),), rho2=20.0, weighting=weighting)).batch(0)
    assert ("labels" in batch.targets) == (labels is not None)
    if labels is not None:
        assert weight(batch, "labels") == pytest.approx(labels / 8)
        ratio = weight(batch, "mlm") * batch.targets["mlm"].total / batch.token_share
        assert ratio == pytest.approx(20 * labels)


def test_general_text_has_no_labels_to_learn():
    blocks = Blocks(np.arange(5, 13, dtype=np.int32), np.array([0, 4, 8]))
    stream = Stream(name="general", number=0, blocks=blocks, loss=text_loss((Labels(),)), batch_rows=1, seed=0)
    with pytest.raises(ValueError, match="labels: these rows have no labels"):
        Batches(streams=(stream,), mixer=Cycle(None), vocabulary=WORDS, seed=0).batch(0)


def test_the_head_of_masked_tokens_sees_few_shapes():
    trainer, seen = make_trainer(stage_one()), set()
    for module in trainer.model.heads["mlm"].modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _, given, __: seen.add(given[0].shape[-2]))
    masked = {trainer.batches.batch(step).targets["mlm"].total for step in range(12)}
    for step in range(12):
        trainer.step(step)
    assert seen and all(rows % ROWS_TO == 0 for rows in seen) and len(seen) < len(masked)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_smoothed_label_is_a_mixture_with_all_classes(smoothing):
    labels = Labels(smoothing=smoothing)
    trainer = make_trainer(stage_two(labels=labels))
    assert trainer.model.objectives["labels"] is labels, "the head learns as the stream does"
    batch = trainer.batches.batch(0)
    with torch.no_grad():
        inputs, _ = to_device(batch, "cpu")
        logs = trainer.model.scores(inputs).log_softmax(-1)
    wanted = (1 - smoothing) * torch.eye(3)[batch.targets["labels"].values] + smoothing / 3
    trainer.step(0)
    assert trainer.window.means()["task"] == pytest.approx(float(-(wanted * logs).sum(-1).mean()), rel=1e-5)


def test_smoothing_names_a_result_and_must_be_a_share(data, tmp_path):
    plain, smoothed = (laid_out(small_flow(data, tmp_path), labels=Labels(smoothing=s)) for s in (0.0, 0.1))
    assert plain.stage_one.fingerprint == smoothed.stage_one.fingerprint, "stage one hears of it not"
    assert plain.stage_two.fingerprint != smoothed.stage_two.fingerprint
    with pytest.raises(ValueError, match=r"smoothing 1: must be 0 or more and below 1"):
        Labels(smoothing=1)
