"""What objectives share that predict tokens with a head of transformers' own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlm_ray.training.objectives.objective import Objective, Prediction

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tlm_ray.training.encoders.heads import Head
    from tlm_ray.training.encoders.weights import Weights


class OfTokens(Objective):
    """Predicts tokens with the head that `opens_as` names; only predicted positions are projected to the vocabulary.

    With 15 % of the tokens masked, that skips 85 % of the largest product of a step.
    """

    def head(self, weights: "Weights") -> "Head":
        import transformers

        return weights.head(getattr(transformers, self.opens_as))

    def loss(self, head: "Head", features: Any, prediction: Prediction) -> "torch.Tensor":
        from tlm_ray.training.kernels.projected_losses import ProjectedCrossEntropy, filled

        assert prediction.places is not None, "tokens are predicted, not rows"
        inputs = head(features.tokens.index_select(0, filled(prediction.places))[None])[0]
        return ProjectedCrossEntropy.apply(inputs, head.last.weight, head.last.bias, prediction.values)

    def projection(self, head: "Head") -> "nn.Linear | None":
        return head.last

    def export(self, model: Any, folder: Path) -> None:
        """Write encoder and head, without the task head and pooler (the released code resets them)."""
        model.heads[self.name].export(model.encoder, folder)
