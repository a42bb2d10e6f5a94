"""A step of a stage one computed in all ways that must give one gradient."""

from collections.abc import Mapping

import pytest
import torch
from trainings import make_batches, make_model

from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.model.packing import first_position
from tlm_ray.training.objectives import step_loss
from tlm_ray.training.sampler.batches import Batch
from tlm_ray.training.settings import StageOne

Learned = tuple[Mapping[str, float], Mapping[str, torch.Tensor]]


def batch_of(settings: StageOne, stream: str, **options: int) -> Batch:
    """The first batch of a stream."""
    batches = make_batches(settings, **options)
    return next(batch for batch in map(batches.batch, range(9)) if batch.stream == stream)


def learned(model: JointModel, parts: list[Batch], *, first: int | None = None) -> Learned:
    """The summed losses of a step's parts, and all gradients."""
    model.zero_grad()
    losses: dict[str, float] = {}
    for part in parts:
        sums = model(*to_device(part, "cpu", first=first))
        step_loss(sums, part.targets, part.loss, token_share=part.token_share, world=1).backward()
        losses = {name: losses.get(name, 0.0) + float(value.detach()) for name, value in sums.items()}
    return losses, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_one_gradient(settings: StageOne, stream: str) -> Mapping[str, float]:
    """Compare a padded batch with micro rows of 2, 3 workers and packed rows, at 1e-5; return its losses."""
    batch, family = batch_of(settings, stream), settings.start.family
    losses, gradients = learned(make_model(settings).on("cpu").train(), [batch])
    ways = {
        "micro rows": (make_model(settings).on("cpu").train(), list(batch.parts(2)), None),
        "three workers": (
            make_model(settings).on("cpu").train(),
            [batch_of(settings, stream, rank=rank, world=3) for rank in range(3)],
            None,
        ),
    }
    if not family.writes:  # a family that writes refuses packed rows
        packed = make_model(settings).on("cpu", packed=True).train()
        ways["packed"] = (packed, [batch], first_position(packed.encoder))
    for way, (model, parts, first) in ways.items():
        found, own = learned(model, parts, first=first)
        assert found == pytest.approx(losses, rel=1e-5), way
        assert own.keys() == gradients.keys(), way
        for name, expected in gradients.items():
            torch.testing.assert_close(
                own[name], expected, rtol=1e-5, atol=1e-5, msg=lambda m, n=f"{way}: {name}": f"{n} {m}"
            )
    return losses
