"""Learn a teacher's predictions and states of tokens, as DistilBERT does (Sanh et al. 2019, section 3).

A recipe lists `Mlm(times=2), SoftTokens(), Cosine()` and names its teacher.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.objectives.mlm import Mlm
from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets
from tlm_ray.training.tokens.masking import Vocabulary

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tlm_ray.training.encoders.heads import Head
    from tlm_ray.training.encoders.weights import Weights


@dataclass(frozen=True, kw_only=True)
class OfTeacher(Objective):
    """What these objectives share: every token is a target, and there is no head of their own."""

    needs_teacher: ClassVar[bool] = True

    def head(self, weights: "Weights") -> "nn.Module":
        from torch import nn

        return nn.Module()

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        """Return the rows with all tokens as targets."""
        inside = rows.attention == 1
        return rows.with_targets(self.name, Targets(rows.tokens, inside, int(inside.sum())))


@dataclass(frozen=True, kw_only=True)
class SoftTokens(OfTeacher):
    """Learns the teacher's distribution over the vocabulary, for every token or for masked ones alone.

    The loss is the Kullback-Leibler divergence of distributions softened by a temperature, times its square (Hinton et
    al. 2015). It comes after `Mlm`, whose masks and head it uses.
    """

    name: ClassVar[str] = "soft"

    times: float = 5.0
    """weight beside the other objectives (5 in the released code, with 2 for MLM and 1 for the cosine)"""
    temperature: float = 2.0
    masked_only: bool = False
    """learn masked tokens alone; the released code's default is all"""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"soft temperature {self.temperature!r}: must be above 0, such as 2")

    def check(self, *, tokens: int, before: Collection[str]) -> None:
        """Raise ValueError if `Mlm` does not come before it."""
        if Mlm.name not in before:
            raise ValueError("objective soft: needs mlm before it; give objectives=(Mlm(times=2), SoftTokens())")

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        """Return the rows with their targets; ValueError if `Mlm` has not prepared them."""
        self.check(tokens=rows.tokens.shape[1], before=rows.targets)
        masked = rows.targets[Mlm.name]
        if not self.masked_only:
            return super().prepare(rows, vocabulary, keys)
        return rows.with_targets(self.name, Targets(rows.tokens, masked.chosen, masked.total))

    def loss(self, head: Any, features: Any, prediction: Prediction) -> "torch.Tensor":
        import torch
        from torch.nn.functional import linear

        from tlm_ray.training.kernels.projected_losses import ProjectedDivergence

        teacher = features.teacher
        tokens = min(len(one.model.heads[Mlm.name].last.weight) for one in (features, teacher))
        with torch.no_grad():
            known = linear(*self._softened(teacher, prediction, tokens))
        return ProjectedDivergence.apply(*self._softened(features, prediction, tokens), known) * self.temperature**2

    def _softened(
        self, features: Any, prediction: Prediction, tokens: int
    ) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]":
        """Return inputs, (predictions, width), weight and bias, if any, of a model's projection to softened logits.

        Inputs and bias are divided by the temperature, instead of the logits, which are many more. tokens: rows of the
        projection to keep, because one of the models may have a longer table than its tokenizer needs.
        """
        head: Head = features.model.heads[Mlm.name]
        inputs = head(features.tokens.index_select(0, prediction.places)[None])[0]
        weight, bias = head.last.weight, head.last.bias
        if len(weight) > tokens:  # a slice of all would cost a copy of the gradient
            weight, bias = weight[:tokens], None if bias is None else bias[:tokens]
        return inputs / self.temperature, weight, None if bias is None else bias / self.temperature


@dataclass(frozen=True, kw_only=True)
class Cosine(OfTeacher):
    """Learns the direction of the teacher's last hidden states, for every token; both models are equally wide."""

    name: ClassVar[str] = "cosine"

    def loss(self, head: Any, features: Any, prediction: Prediction) -> "torch.Tensor":
        from torch.nn.functional import cosine_similarity

        own, known = (each.tokens.index_select(0, prediction.places).float() for each in (features, features.teacher))
        return (1 - cosine_similarity(own, known, dim=-1)).sum()
