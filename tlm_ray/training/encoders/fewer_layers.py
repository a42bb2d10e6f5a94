"""Take some layers of a trained model, as the start of a smaller one (Sanh et al. 2019, section 3)."""

import copy
from typing import Any, ClassVar

from torch import nn
from transformers import PretrainedConfig

from tlm_ray.training.encoders.depths import layers_of
from tlm_ray.training.encoders.weights import TrainedWeights


class SomeLayers(TrainedWeights):
    """The weights of a trained model with some of its layers; ValueError if it has fewer."""

    evenly: ClassVar[bool] = True
    """keep evenly spaced layers, or the first ones"""

    restored: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "layer_types")
    """entries of the configuration with which the whole model is opened"""

    def __init__(self, source: str, *, layers: int, **options: Any):
        super().__init__(source, **options)
        self.whole = copy.deepcopy(self.config)
        self.kept = kept_layers(self.whole.num_hidden_layers, layers, evenly=self.evenly)
        self._cut(self.config)

    def _open(self, model: Any, **options: Any) -> Any:
        config = copy.deepcopy(options.pop("config", self.config))
        for name in self.restored:
            if hasattr(self.whole, name):
                setattr(config, name, getattr(self.whole, name))
        found = super()._open(model, config=config, **options)
        opened = found[0] if isinstance(found, tuple) else found
        of = self.whole.num_hidden_layers
        if (there := layers_of(opened, of)) is None:
            kind = type(opened).__name__
            raise ValueError(
                f"start {self.source}: {kind} has no list of {of} layers to keep some of; give another encoder"
            )
        parent, name, layers = there
        setattr(parent, name, nn.ModuleList(layers[number] for number in self.kept))
        for place, number in enumerate(self.kept):
            for module in layers[number].modules():
                if hasattr(module, "layer_idx"):  # a decoder's place in its cache
                    module.layer_idx = place  # type: ignore[assignment]
        self._cut(opened.config)
        return found

    def _cut(self, config: PretrainedConfig) -> None:
        config.num_hidden_layers = len(self.kept)
        if getattr(config, "layer_types", None):
            config.layer_types = [self.whole.layer_types[number] for number in self.kept]


def kept_layers(of: int, layers: int, *, evenly: bool) -> list[int]:
    """Return the numbers of the first layers, or of evenly spaced ones: 6 of 12 are 0, 2, 4, 7, 9 and 11."""
    if layers > of:
        raise ValueError(f"start with {layers} layers: these are more than the encoder's {of}; give fewer")
    if layers == 1 or not evenly:
        return list(range(layers))
    return [round(number * (of - 1) / (layers - 1)) for number in range(layers)]
