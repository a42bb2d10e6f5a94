"""The protocol of an objective, and the rows and targets that it works on; free of torch until a model is trained."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from tlm_ray.training.masking import Vocabulary

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tlm_ray.training.model import JointModel
    from tlm_ray.training.weights import Weights


@dataclass(frozen=True)
class Targets:
    """What is to be predicted of some rows: of each row one value, or of each chosen token."""

    values: np.ndarray
    """(rows, ...) or, of tokens, (rows, length)"""
    chosen: np.ndarray | None
    """bool (rows, length), the tokens that are predicted; None where each row is"""
    total: int
    """predictions of the whole step, over all parts and workers"""

    def of(self, rows: slice, width: int | None = None) -> "Targets":
        """Return the targets of some rows, cut to `width` tokens; the total goes on counting the whole step."""
        if self.chosen is None:
            return replace(self, values=self.values[rows])
        return replace(self, values=self.values[rows, :width], chosen=self.chosen[rows, :width])

    @property
    def places(self) -> np.ndarray | None:
        """Flat places of the chosen tokens in the rectangle of rows, int64 (predictions,)."""
        return None if self.chosen is None else np.flatnonzero(self.chosen)

    @property
    def flat(self) -> np.ndarray:
        """The values to predict, (predictions, ...), in the order of `places`."""
        return self.values if self.chosen is None else self.values[self.chosen]


class Prediction(NamedTuple):
    """A batch's targets on the device, as an objective's loss gets them."""

    values: "torch.Tensor"
    """(predictions, ...)"""
    places: "torch.Tensor | None"
    """int64 (predictions,), of the predicted tokens among `Features.tokens`; None where each row is predicted"""


@dataclass(frozen=True)
class Rows:
    """The rows of a whole step, padded, as the objectives of their stream prepare them one after the other."""

    tokens: np.ndarray
    """int64 (rows, length)"""
    attention: np.ndarray
    """int64 (rows, length), 1 where there is a token"""
    labels: np.ndarray | None
    """(rows,) class ids or numbers; None for general text"""
    types: np.ndarray | None = None
    """int64 (rows, length) token types; None where all are 0"""
    targets: Mapping[str, Targets] = field(default_factory=dict)
    """by the name of the objective"""

    def with_targets(self, name: str, targets: Targets) -> "Rows":
        """Return the rows with one more objective's targets."""
        return replace(self, targets=dict(self.targets) | {name: targets})


@dataclass(frozen=True)
class Keys:
    """What keys the draws of a batch: equal keys, equal draws, on any number of workers."""

    seed: int
    step: int
    rows: np.ndarray
    """(rows,) numbers of the rows in their stream"""


@dataclass(frozen=True)
class Objective(ABC):
    """Something to learn of text; derive from it, and give what is not as here.

    The order of a recipe's objectives is the order in which they prepare a batch and take their random weights.
    """

    name: ClassVar[str]
    """short and lower-case: of its head, its targets and its logged loss"""
    opens_as: ClassVar[str] = "AutoModel"
    """the class of transformers that opens what `export` writes"""

    @property
    def weight(self) -> float:
        """Of this objective's mean loss beside those of others."""
        return 1.0

    @abstractmethod
    def head(self, weights: "Weights") -> "nn.Module":
        """Return the module that predicts, made or read by `weights`; ValueError if the weights cannot serve it."""

    @abstractmethod
    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        """Return the rows, perhaps corrupted, with this objective's targets; without any, it has no loss of them."""

    @abstractmethod
    def loss(self, head: Any, features: Any, prediction: Prediction) -> "torch.Tensor":
        """Return the sum of the losses of all predictions, a float32 scalar.

        features: `tlm_ray.training.model.Features`, the encoder's view of the batch.
        """

    def logged_as(self, stream: str) -> str:
        """Return the name of this objective's loss on a stream's batches in the history of a training."""
        return f"{stream}_{self.name}"

    def projection(self, head: Any) -> "nn.Linear | None":
        """Return the product with the vocabulary that `loss` takes in each batch, None if there is none."""
        return None

    def export(self, model: "JointModel", folder: Path) -> None:
        """Write the trained model into a folder that `opens_as` opens; here the encoder alone."""
        model.encoder.save_pretrained(folder)
