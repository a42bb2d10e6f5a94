"""A joint model with weights far from 0, its batches, and transformers' own models with the same weights."""

from dataclasses import replace

import numpy as np
import torch
from rows import hand_batch
from transformers import BertForMaskedLM, BertForSequenceClassification

from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, Mlm

LABELS = ("alpha", "beta", "gamma")
VOCABULARY, PAD, ROWS, LENGTH = 60, 0, 6, 16
TASK_HEAD = {f"{layer}.{kind}" for layer in ("classifier", "bert.pooler.dense") for kind in ("weight", "bias")}
GEOMETRY = Geometry(layers=2, width=32, heads=2, intermediate=64, positions=32, dropout=0.0)


def scratch_model(*, seed, geometry=GEOMETRY, vocabulary=VOCABULARY):
    config = scratch_config(geometry, vocabulary=vocabulary, pad_id=PAD, labels=LABELS)
    return JointModel(RandomWeights(config, seed=seed), (Labels(), Mlm()))


def make_model(seed, dropout=0.0):
    model = scratch_model(seed=seed, geometry=replace(GEOMETRY, dropout=dropout))
    with torch.no_grad():  # far from 0, so that a loss of one part of the weights would show
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return model


def make_batch(stream, *, masked=True, types=False, **options):
    """A padded batch of random tokens; a fifth of the real ones are targets."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, LENGTH + 1, ROWS)
    attention = (np.arange(LENGTH) < lengths[:, None]).astype(np.int64)
    if masked:
        options["chosen"] = (rng.random((ROWS, LENGTH)) < 0.2) & (attention == 1)
        options["values"] = rng.integers(5, VOCABULARY, (ROWS, LENGTH))
    if types:
        options["types"] = attention * rng.integers(0, 2, (ROWS, LENGTH))
    if stream == "task":
        options["labels"] = rng.integers(0, len(LABELS), ROWS)
    return hand_batch(np.where(attention, rng.integers(5, VOCABULARY, (ROWS, LENGTH)), PAD), attention, **options)


def half(batch, rank):
    """One of two workers' part of a batch: every second row, with the counts of the whole."""
    mine = slice(rank, None, 2)
    targets = {name: found.of(mine) for name, found in batch.targets.items()}
    return replace(batch, tokens=batch.tokens[mine], attention=batch.attention[mine], targets=targets)


def reference_losses(model, batch):
    """Mean losses by transformers alone, with the same weights: MLM with labels -100 elsewhere, and classification."""
    inputs, _ = to_device(batch, "cpu")
    mlm, classifier = BertForMaskedLM(model.config), BertForSequenceClassification(model.config)
    with model.heads["mlm"].whole(model.encoder) as whole:
        loaded = mlm.load_state_dict(whole.state_dict(), strict=False)
    assert not loaded.missing_keys and not loaded.unexpected_keys
    classifier.load_state_dict(classifier_of(model))
    losses = {}
    if "mlm" in batch.targets:
        losses["mlm"] = mlm(**inputs, labels=wanted_of(batch)).loss
    if "labels" in batch.targets:
        losses["labels"] = classifier(**inputs, labels=torch.from_numpy(batch.targets["labels"].values)).loss
    return losses, mlm, classifier


def wanted_of(batch):
    """What is to be predicted at each place, as transformers wants it: -100 for nothing."""
    mlm = batch.targets["mlm"]
    return torch.from_numpy(np.where(mlm.chosen, mlm.values, -100))


def classifier_of(model):
    """The weights of a joint model's classifier under transformers' names."""
    with model.heads["labels"].whole(model.encoder) as whole:
        return whole.state_dict(keep_vars=True)
