"""Learn a teacher's layers, as TinyBERT does (Jiao et al. 2020, equations 7 to 9)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.objectives.objective import Prediction
from tlm_ray.training.objectives.soft import OfTeacher

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tlm_ray.training.encoders.weights import Weights


@dataclass(frozen=True, kw_only=True)
class LayersOfTeacher(OfTeacher):
    """Learns embeddings, hidden states and attention scores of every M/N-th of the teacher's M layers.

    Layer i of the student's N learns the states of layer i M/N and the scores of the attention in it. Each is a mean
    squared error: of a token's state over its elements, of its scores over heads and the tokens of its row.
    """

    name: ClassVar[str] = "layers"
    reads_layers: ClassVar[bool] = True

    width: int = 0
    """the teacher's hidden size, for a learned projection of the student's states; 0 if they are equal"""
    scores: bool = True
    """learn the attention scores, which needs BERT's layers in both models"""

    def head(self, weights: "Weights") -> "nn.Module":
        """Return the projection of the student's states."""
        from torch import nn

        return nn.Linear(weights.config.hidden_size, self.width) if self.width else nn.Identity()

    def loss(self, head: "nn.Module", features: Any, prediction: Prediction) -> "torch.Tensor":
        own, known = features.layers, features.teacher.layers
        every = _every(len(own.states) - 1, len(known.states) - 1)
        total: Any = 0.0
        for mine, theirs in zip(own.states, known.states[::every], strict=True):
            a, b = (each.flatten(0, 1).index_select(0, prediction.places) for each in (mine, theirs))
            total = total + _apart(head(a), b).mean(-1).sum()
        return total + self._apart_in_scores(features, every) if self.scores else total

    def _apart_in_scores(self, features: Any, every: int) -> "torch.Tensor":
        """Return the sum over tokens of the squared errors of their scores, means over heads and tokens of the row."""
        own, known, inputs = features.layers, features.teacher.layers, features.inputs
        shown = all(len(each.projected) == len(each.states) - 1 for each in (own, known))  # ALBERT has one for all
        if not shown or own.heads != known.heads:
            raise ValueError(
                "objective layers: scores need BERT's layers with equally many heads in student and teacher; "
                "give LayersOfTeacher(scores=False)"
            )
        hidden, inside = features.rectangle
        inside = hidden.new_ones(hidden.shape[:2]) if inside is None else inside
        seen = (inside[:, None, :, None] * inside[:, None, None, :]).float()
        total: Any = 0.0
        for layer in range(len(own.projected)):
            apart = _apart(own.scores(layer, inputs), known.scores((layer + 1) * every - 1, inputs))
            total = total + ((apart.mean(1, keepdim=True) * seen).sum((1, 2, 3)) / inside.sum(1)).sum()
        return total


def _every(student: int, teacher: int) -> int:
    """Return how many of the teacher's layers one of the student's stands for."""
    if teacher % student:
        why = f"the teacher's {teacher} layers are no multiple of the student's {student}"
        raise ValueError(f"objective layers: {why}; change either")
    return teacher // student


def _apart(own: "torch.Tensor", known: "torch.Tensor") -> "torch.Tensor":
    if own.shape != known.shape:
        raise ValueError(
            f"objective layers: the student's size {own.shape[-1]} is not the teacher's {known.shape[-1]}; "
            f"give LayersOfTeacher(width={known.shape[-1]})"
        )
    return (own.float() - known.float()).square()
