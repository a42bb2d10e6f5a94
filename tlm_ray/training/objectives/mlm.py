"""Masked language modelling: predict masked tokens from the others (Devlin et al. 2019)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.masking import Masking, Vocabulary
from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tlm_ray.training.heads import Head
    from tlm_ray.training.weights import Weights


@dataclass(frozen=True)
class Mlm(Objective):
    """Masked language modelling with the architecture's own head.

    Only masked positions are projected to the vocabulary, which skips 85 % of the largest product of a step.
    """

    name: ClassVar[str] = "mlm"
    opens_as: ClassVar[str] = "AutoModelForMaskedLM"

    masking: Masking = Masking()  # noqa: RUF009 - frozen

    def head(self, weights: "Weights") -> "Head":
        from transformers import AutoModelForMaskedLM

        return weights.head(AutoModelForMaskedLM)

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        tokens, chosen = self.masking(rows.tokens, vocabulary, seed=keys.seed, step=keys.step, rows=keys.rows)
        targets = Targets(rows.tokens, chosen, int(chosen.sum()))
        return replace(rows, tokens=tokens).with_targets(self.name, targets)

    def loss(self, head: "Head", features: Any, prediction: Prediction) -> "torch.Tensor":
        from tlm_ray.training.cross_entropy import ProjectedCrossEntropy, filled

        assert prediction.places is not None, "tokens are predicted, not rows"
        inputs = head(features.tokens.index_select(0, filled(prediction.places))[None])[0]
        return ProjectedCrossEntropy.apply(inputs, head.last.weight, head.last.bias, prediction.values)

    def projection(self, head: "Head") -> "nn.Linear | None":
        return head.last

    def export(self, model: Any, folder: Path) -> None:
        """Write encoder and head, without the task head and pooler (the released code resets them)."""
        model.heads[self.name].export(model.encoder, folder)
