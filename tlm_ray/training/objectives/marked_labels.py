"""The task objective of texts that mark two spans: the classifier also reads the hidden states there."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tlm_ray.training.objectives.labels import Labels

if TYPE_CHECKING:
    import torch

    from tlm_ray.training.encoders.heads import Head
    from tlm_ray.training.encoders.weights import Weights


@dataclass(frozen=True, kw_only=True)
class MarkedLabels(Labels):
    """Learns labels of two marked spans from all states, those of both marks, inside both spans, and between them.

    Baldini Soares et al. 2019 and Wu and He 2019 read the marks of a BERT; `tlm_ray.corpus.labelled.marks` finds them.
    """

    marks: tuple[str, ...] = ("[[", "]]", "<<", ">>")
    """opening and closing mark of the first span, then of the second"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.marks) != 4 or len(set(self.marks)) != 4 or not all(self.marks):
            raise ValueError(f"labels: marks {self.marks!r}: give four different signs, such as [[ ]] << >>")

    @property
    def in_stage_one(self) -> "MarkedLabels":
        return MarkedLabels(marks=self.marks)

    def head(self, weights: "Weights") -> "Head":
        return weights.marked_head(self.marks)

    def logits(self, head: Any, features: Any) -> "torch.Tensor":
        return head.at_marks(*features.rectangle, features.ids).float()
