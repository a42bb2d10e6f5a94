"""Weights, gradients and optimizer state shared out over the workers (FSDP2), for models that one device cannot hold.

Rajbhandari et al. 2020 (ZeRO, stage 3): a layer's weights are gathered when it computes and given up afterwards. What
torch has for it is imported where it is used: a worker that does not shard starts a tenth faster.
"""

from typing import Any

import torch
from torch import nn


def shard(model: nn.Module, *, device: str, world: int, methods: tuple[str, ...]) -> None:
    """Share a model's weights out over all workers, layer by layer, in place.

    methods: names of further methods that need gathered weights, like forward.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(torch.device(device).type, (world,))
    lists: Any = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for layer in max(lists, key=_size, default=[]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for method in methods:
        register_fsdp_forward_method(model, method)


def reshard(model: nn.Module) -> None:
    """Give up all gathered weights, so that parameters are again those that the optimizer knows.

    FSDP2 leaves the outermost group gathered after a forward pass, for the backward pass that mostly follows; after an
    evaluation none does.
    """
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def whole(tensor: Any) -> torch.Tensor:
    """Return all of a tensor that may be shared out; every worker must ask."""
    return tensor.full_tensor() if _is_shared(tensor) else tensor


def shared_like(tensor: torch.Tensor, like: Any) -> torch.Tensor:
    """Return a whole tensor on the device of another, and shared out as that one is."""
    tensor = tensor.to(like.device)
    if not _is_shared(like) or tensor.ndim == 0:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def _is_shared(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "full_tensor")


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
