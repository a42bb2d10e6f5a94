"""The protocol of an objective, with its rows and targets; imports torch only when a model is trained."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from tlm_ray.identity import LATER
from tlm_ray.training.tokens.masking import Vocabulary

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tlm_ray.training.encoders.weights import Weights


@dataclass(frozen=True)
class Targets:
    """Prediction targets of some rows: one value per row, or per chosen token."""

    values: np.ndarray
    """(rows, ...), or (rows, length) for tokens"""
    chosen: np.ndarray | None
    """bool (rows, length), the tokens to predict; None if each row is predicted"""
    total: int
    """number of predictions of the whole step, over all parts and workers"""
    is_text: bool = False
    """whether a row's values are tokens to write, which `total` counts"""

    @property
    def of_tokens(self) -> bool:
        """Whether tokens are predicted, so that long rows weigh more than short ones."""
        return self.is_text or self.chosen is not None

    def of(self, rows: slice, width: int | None = None) -> "Targets":
        """Return the targets of some rows, cut to `width` tokens; the total still counts the whole step."""
        if self.chosen is None:
            return replace(self, values=self.values[rows])
        return replace(self, values=self.values[rows, :width], chosen=self.chosen[rows, :width])

    @property
    def places(self) -> np.ndarray | None:
        """Flat indices of the chosen tokens in the array of rows, int64 (predictions,)."""
        return None if self.chosen is None else np.flatnonzero(self.chosen)

    @property
    def flat(self) -> np.ndarray:
        """The values to predict, (predictions, ...), in the order of `places`."""
        return self.values if self.chosen is None else self.values[self.chosen]


class Prediction(NamedTuple):
    """A batch's targets on the device, as passed to an objective's loss."""

    values: "torch.Tensor"
    """(predictions, ...)"""
    places: "torch.Tensor | None"
    """int64 (predictions,), indices of the predicted tokens in `Features.tokens`; None if each row is predicted"""


@dataclass(frozen=True)
class Rows:
    """The padded rows of a whole step, while the objectives of their stream prepare them in turn."""

    tokens: np.ndarray
    """int64 (rows, length)"""
    attention: np.ndarray
    """int64 (rows, length), 1 for tokens, 0 for padding"""
    labels: np.ndarray | None
    """(rows,) class ids or numbers; None for general text"""
    types: np.ndarray | None = None
    """int64 (rows, length), token types; None if all are 0"""
    targets: Mapping[str, Targets] = field(default_factory=dict)
    """by name of the objective"""

    def with_targets(self, name: str, targets: Targets) -> "Rows":
        """Return the rows with a further objective's targets."""
        return replace(self, targets=dict(self.targets) | {name: targets})


@dataclass(frozen=True)
class Keys:
    """The keys of a batch's random draws: equal keys give equal draws, on any number of workers."""

    seed: int
    step: int
    rows: np.ndarray
    """(rows,), numbers of the rows in their stream"""


@dataclass(frozen=True)
class Objective(ABC):
    """A training objective; derive from it and override what differs.

    A recipe's objectives prepare batches, and draw their random weights, in order.
    """

    name: ClassVar[str]
    """short lower-case name of its head, targets and logged loss"""
    opens_as: ClassVar[str] = "AutoModel"
    """the transformers class that opens the output of `export`"""
    needs: ClassVar[tuple[str, ...]] = ()
    """special tokens that the tokenizer must have, such as mask_token"""
    sentinels: ClassVar[int] = 0
    """sentinel tokens, `<extra_id_0>` and so on, that the tokenizer must have"""
    is_causal: ClassVar[bool] = False
    """whether a token's hidden state may depend on no later token, which a decoder alone ensures"""
    needs_teacher: ClassVar[bool] = False
    """whether `loss` reads `features.teacher`, so that the recipe needs a teacher"""
    in_stage_two: ClassVar[bool] = True
    """whether stage two can learn it beside the labels"""
    reads_layers: ClassVar[bool] = False
    """whether `loss` reads `features.layers`, of all layers, which only then are kept"""

    times: float = field(default=1.0, kw_only=True, metadata=LATER)
    """weight of this objective's mean loss beside those of others"""

    @property
    def weight(self) -> float:
        """The weight; derived objectives may compute it."""
        return self.times

    @abstractmethod
    def head(self, weights: "Weights") -> "nn.Module":
        """Return the prediction head, created or read by `weights`; ValueError if the weights do not support it."""

    @abstractmethod
    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        """Return the rows, possibly corrupted, with this objective's targets; without targets there is no loss.

        It sees the whole step, so only here can totals be counted. Rows may become wider or narrower and get token
        types. `rows.targets` has the targets of the objectives before it. Values may have further axes, such as a
        token and a draw. Draws come from `tlm_ray.training.tokens.masking.uniform`, so that workers do not change them.
        """

    @abstractmethod
    def loss(self, head: Any, features: Any, prediction: Prediction) -> "torch.Tensor":
        """Return the sum of the losses of all predictions, a float32 scalar.

        features: `tlm_ray.training.model.joint.Features`, the encoder's view of the batch. `features.read` replaces the
        tokens before the encoder reads them, `features.model.heads` has the other objectives' heads, and
        `features.teacher` is a trained model's view of the same batch.
        """

    def check(self, *, tokens: int, before: Collection[str]) -> None:  # noqa: B027 - most objectives take any rows
        """Raise ValueError if rows cannot be prepared; a recipe asks before anything is made.

        tokens: the rows' longest. before: names of the objectives that prepare them earlier.
        """

    def logged_as(self, stream: str) -> str:
        """Return the name of this objective's loss on a stream, for the history of a training."""
        return f"{stream}_{self.name}"

    def projection(self, head: Any) -> "nn.Linear | None":
        """Return the projection to the vocabulary that `loss` uses in every batch; None if there is none."""
        return None

    def export(self, model: Any, folder: Path) -> None:
        """Write the trained model (here the encoder only) to a folder that `opens_as` can open.

        model: `tlm_ray.training.model.joint.JointModel`.
        """
        model.encoder.save_pretrained(folder)
