"""Weights, gradients and optimizer state shared out over the ranks (FSDP2), for models that one device cannot hold.

Rajbhandari et al. 2020 (ZeRO, stage 3): a layer's weights are gathered when it computes and given up afterwards.
"""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor


def shard(model: nn.Module, *, device: str, world: int, methods: tuple[str, ...]) -> None:
    """Share a model's weights out over all ranks, layer by layer, in place; `methods` compute with them, as forward."""
    mesh = init_device_mesh(torch.device(device).type, (world,))
    lists: Any = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for layer in max(lists, key=_size, default=[]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for method in methods:
        register_fsdp_forward_method(model, method)


def unshard(model: nn.Module) -> None:
    """Gather all weights on every rank, for good."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return all of a tensor that may be shared out; every rank must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shared_like(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor on the device of another, and shared out as that one is."""
    tensor = tensor.to(like.device)
    if not isinstance(like, DTensor) or tensor.ndim == 0:
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
