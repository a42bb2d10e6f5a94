"""Checkpoints: weights and optimizer state as safetensors, the rest as JSON. Nothing is ever unpickled."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

STATE = "state.json"


@dataclass(kw_only=True)
class Progress:
    """How far a run is, and what it has seen: all that a checkpoint carries beside tensors.

    step: optimizer steps done. history: one entry a logged step or evaluation. best_step, best_score: of the dev set.
    tokens: real tokens trained on; computed: with padding. flops: operations of forward and backward passes;
    real_flops: of these, those of real tokens; both 0 where they cannot be known. seconds: time spent training, over
    all attempts; waiting: of these, for batches to be made.
    """

    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    best_step: int = 0
    best_score: float = -101.0  # below any score (a Matthews correlation reaches -100), so that the first counts
    tokens: int = 0
    computed: int = 0
    flops: int = 0
    real_flops: int = 0
    seconds: float = 0.0
    waiting: float = 0.0


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    best: dict[str, torch.Tensor] | None,
) -> None:
    """Write a checkpoint into a local folder; `state.json` is last."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_tensors(model), folder / "model.safetensors")
    save_file(_optimizer_tensors(model, optimizer), folder / "optimizer.safetensors")
    if best is not None:
        save_file(best, folder / "best.safetensors")
    (folder / STATE).write_text(json.dumps(asdict(progress)))


def load_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, torch.Tensor] | None]:
    """Restore what `save_checkpoint` wrote, exactly."""
    progress = Progress(**json.loads((folder / STATE).read_text()))
    load_weights(model, load_file(folder / "model.safetensors"))
    state = load_file(folder / "optimizer.safetensors")
    for name, parameter in model.named_parameters():
        entries = {key: state[f"{name}.{key}"] for key in ("exp_avg", "exp_avg_sq", "step")}
        on_device = {key: value.to(parameter.device) for key, value in entries.items()}
        # AdamW keeps its step count on the CPU unless it is fused on a GPU
        optimizer.state[parameter] = on_device | {"step": on_device["step"] if parameter.is_cuda else entries["step"]}
    best = folder / "best.safetensors"
    return progress, load_file(best) if best.exists() else None


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copy a model's weights to main memory, shared tensors once."""
    return {name: tensor.to("cpu", copy=True) for name, tensor in _tensors(model).items()}


def load_weights(model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Put weights taken by `snapshot` or read from a checkpoint into a model; shared tensors follow."""
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            tensor.copy_(tensors[name])


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, those shared by several modules under their first name only."""
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach() for name, tensor in found.items()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
