"""Tell how deep each parameter of a model lies, for learning rates by layer."""

from typing import Any

from torch import nn


def layers_of(model: nn.Module, count: int) -> tuple[nn.Module, str, nn.ModuleList] | None:
    """Return the list of `count` layers, with the module that has it and its name there; None if there is none."""
    for parent in model.modules():
        for name, module in parent.named_children():
            if isinstance(module, nn.ModuleList) and len(module) == count:
                return parent, name, module
    return None


def depths_of(model: Any) -> dict[str, int]:
    """Return each parameter's depth by name: 0 for embeddings, 1 to N for the layers, N + 1 for heads.

    What follows the last layer within the encoder, such as a final norm, has depth N. ValueError for an encoder without
    a list of layers.
    """
    count = model.config.num_hidden_layers
    found = layers_of(model.encoder, count)
    if found is None:
        raise ValueError(
            f"optimizer: {type(model.encoder).__name__} has no list of {count} layers to tell apart; give "
            "layer_decay=1 and unfreeze_every=0"
        )
    layer = {id(p): number + 1 for number, one in enumerate(found[2]) for p in one.parameters()}
    depths, reached = {}, 0
    for name, parameter in model.named_parameters():
        if name.startswith("encoder."):
            reached = layer.get(id(parameter), reached)
            depths[name] = reached
        else:
            depths[name] = count + 1
    return depths
