"""Take some layers of a trained model, as the start of a smaller one (Sanh et al. 2019, section 3)."""

import copy
from typing import Any, ClassVar

from torch import nn

from tlm_ray.training.encoders.configs import kept_layers, with_kept_layers
from tlm_ray.training.encoders.depths import layers_of
from tlm_ray.training.encoders.weights import TrainedWeights


class SomeLayers(TrainedWeights):
    """The weights of a trained model with evenly spaced layers of it; ValueError if it has fewer."""

    with_last: ClassVar[bool] = True
    """whether the last layer is among them"""

    restored: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "layer_types")
    """entries of the configuration with which the whole model is opened"""

    def __init__(self, source: str, *, layers: int, **options: Any):
        super().__init__(source, **options)
        self.whole = copy.deepcopy(self.config)
        self.kept = kept_layers(self.whole.num_hidden_layers, layers, with_last=self.with_last)
        with_kept_layers(self.config, self.kept)

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
        with_kept_layers(opened.config, self.kept)
        return found
