"""Causal language modelling: predict each token from those before it (Radford et al. 2019)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tlm_ray.training.masking import Vocabulary
from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tlm_ray.training.heads import Head
    from tlm_ray.training.weights import Weights


@dataclass(frozen=True)
class Clm(Objective):
    """Causal language modelling with a decoder's own head; padding is predicted from no token, and predicts none."""

    name: ClassVar[str] = "clm"
    opens_as: ClassVar[str] = "AutoModelForCausalLM"

    def head(self, weights: "Weights") -> "Head":
        from transformers import AutoModelForCausalLM

        return weights.head(AutoModelForCausalLM)

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        following, chosen = np.roll(rows.tokens, -1, axis=1), np.roll(rows.attention, -1, axis=1) == 1
        chosen[:, -1] = False
        return rows.with_targets(self.name, Targets(following, chosen, int(chosen.sum())))

    def loss(self, head: "Head", features: Any, prediction: Prediction) -> "torch.Tensor":
        from tlm_ray.training.cross_entropy import ProjectedCrossEntropy, filled

        assert prediction.places is not None, "tokens are predicted, not rows"
        inputs = head(features.tokens.index_select(0, filled(prediction.places))[None])[0]
        return ProjectedCrossEntropy.apply(inputs, head.last.weight, head.last.bias, prediction.values)

    def projection(self, head: "Head") -> "nn.Linear | None":
        return head.last

    def export(self, model: Any, folder: Path) -> None:
        """Write decoder and head."""
        model.heads[self.name].export(model.encoder, folder)
