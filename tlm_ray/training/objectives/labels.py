"""The task objective: cross-entropy for classes, squared error for numbers, with the architecture's own classifier.

Numbers are learned in units of their standard deviation (`tlm_ray.training.encoders.scaled`), and predicted in their
own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets
from tlm_ray.training.tokens.masking import Vocabulary

if TYPE_CHECKING:
    import torch

    from tlm_ray.training.encoders.heads import Head
    from tlm_ray.training.encoders.weights import Weights


@dataclass(frozen=True)
class Labels(Objective):
    """Learns a task's labels, without changing the text; in stage one the text is masked by MLM (paper 3.2).

    The paper's task head is Linear-GELU-Linear. BERT's own, used here so that transformers opens the model as it is, is
    Linear-tanh-Linear (without dropout, as in the paper; that of a pretrained encoder has its configuration's).
    """

    smoothing: float = 0.0
    """label smoothing for classes, 0 to 1 (Szegedy et al. 2016)"""

    name: ClassVar[str] = "labels"
    opens_as: ClassVar[str] = "AutoModelForSequenceClassification"

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"labels: smoothing {self.smoothing}: must be 0 or more and below 1, such as 0.1")

    @property
    def in_stage_one(self) -> "Labels":
        """The task objective of stage one, without smoothing or a weight of its own."""
        return Labels()

    def head(self, weights: "Weights") -> "Head":
        return weights.classifier_head()

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        if rows.labels is None:
            raise ValueError("labels: these rows have no labels; general text cannot train this objective")
        return rows.with_targets(self.name, Targets(rows.labels, None, len(rows.labels)))

    def loss(self, head: "Head", features: Any, prediction: Prediction) -> "torch.Tensor":
        from torch.nn.functional import cross_entropy

        logits = self.logits(head, features)
        if head.is_regression:
            apart = (logits.squeeze(-1) - prediction.values.float()) / head.scaled[0].sd
            return apart.square().sum()
        return cross_entropy(logits, prediction.values, reduction="sum", label_smoothing=self.smoothing)

    def logits(self, head: Any, features: Any) -> "torch.Tensor":
        """Return logits, float32 (rows, classes), or a regression's numbers, (rows, 1)."""
        return head(*features.rectangle).float()

    def logged_as(self, stream: str) -> str:
        """Return the task's own name."""
        return stream

    def export(self, model: Any, folder: Path) -> None:
        head = model.heads[self.name]
        for layer in head.scaled:
            layer.fold()
        head.export(model.encoder, folder)


@dataclass(frozen=True, kw_only=True)
class TaskLabels(Labels):
    """Learns the labels of one task among several, with a head of its own."""

    number: int
    """the task's number, which names its head: a task's own name may have a dot, which torch refuses"""
    labels: tuple[str, ...]
    """the task's classes, none for a regression"""

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"labels_{self.number}"

    def head(self, weights: "Weights") -> "Head":
        return weights.classifier_head(self.labels)
