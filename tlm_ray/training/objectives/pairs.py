"""Objectives on two segments of a passage: is the second one its own (BERT), and which comes first (ALBERT)?

A recipe lists one of them before the masks, whose model stage two starts from: `objectives=(Sop(), Mlm())` with
`exported="mlm"`.
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets
from tlm_ray.training.tokens.masking import Vocabulary, uniform

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tlm_ray.training.encoders.weights import Weights

DRAWS = 0x9A125  # keys the draws apart from those of masks
NEITHER = -100  # the value of a row that is no pair, which torch's cross-entropy leaves out
Segments = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Pairs(Objective):
    """Rows of two segments, [CLS] A [SEP] B [SEP], half of them as in the text (0), half not (1).

    A passage is cut at the end of a sentence. A passage without such a place stays as it is and predicts nothing. So do
    the task's rows, and a step with a single pair. A row keeps to the step's width by dropping the end of its longer
    segment.
    """

    needs: ClassVar[tuple[str, ...]] = ("cls_token", "sep_token")
    in_stage_two: ClassVar[bool] = False

    least: int = 4
    """minimum tokens of a segment"""

    def __post_init__(self) -> None:
        if self.least < 1:
            raise ValueError(f"{self.name} least {self.least}: must be 1 or more, the tokens of a segment")

    def head(self, weights: "Weights") -> "nn.Module":
        """Return BERT's pooler and its classifier of the first token's state."""
        from torch import nn

        width = weights.config.hidden_size
        return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))

    def check(self, *, tokens: int, before: Collection[str]) -> None:
        """Raise ValueError if another objective comes before it."""
        if before:
            raise ValueError(f"objective {self.name}: lays out the rows, so it must be the first of the objectives")

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        """Lay out the rows of text as pairs; ValueError after an objective that has chosen tokens of the rows."""
        self.check(tokens=rows.tokens.shape[1], before=rows.targets)
        if rows.labels is not None:
            return rows
        draws = uniform(seed=keys.seed ^ DRAWS, step=keys.step, rows=keys.rows, columns=1, draws=3)[:, :, 0]
        cuts: list[Any] = [
            _cut(row[1 : size - 1], draw, vocabulary.ending_ids, self.least)
            for row, size, draw in zip(rows.tokens, rows.attention.sum(axis=1), draws[0], strict=True)
        ]
        whole = [number for number, cut in enumerate(cuts) if cut is not None]
        whole = whole if len(whole) > 1 else []  # a single one finds no other segment
        other = draws[1] < 0.5
        segments = self.paired([cuts[row] for row in whole], other[whole], draws[2][whole])
        values = np.full(len(cuts), NEITHER)
        values[whole] = other[whole]
        laid_out = _laid_out(rows, vocabulary.pad_id, dict(zip(whole, segments, strict=True)))
        return laid_out.with_targets(self.name, Targets(values, None, len(whole)))

    @abstractmethod
    def paired(self, segments: Sequence[Segments], other: np.ndarray, draws: np.ndarray) -> list[Segments]:
        """Return the segments of each row, changed where `other` is True; draws: uniform, one per row."""

    def loss(self, head: Any, features: Any, prediction: Prediction) -> "torch.Tensor":
        from torch.nn.functional import cross_entropy

        first = features.rectangle[0][:, 0]
        return cross_entropy(head(first).float(), prediction.values, ignore_index=NEITHER, reduction="sum")


@dataclass(frozen=True)
class Sop(Pairs):
    """Whether two segments are swapped (Lan et al. 2020, section 3.1)."""

    name: ClassVar[str] = "sop"

    def paired(self, segments: Sequence[Segments], other: np.ndarray, draws: np.ndarray) -> list[Segments]:
        return [(b, a) if swapped else (a, b) for (a, b), swapped in zip(segments, other, strict=True)]


@dataclass(frozen=True)
class Nsp(Pairs):
    """Whether the second segment is of another row of the step (Devlin et al. 2019, section 3.1)."""

    name: ClassVar[str] = "nsp"

    def paired(self, segments: Sequence[Segments], other: np.ndarray, draws: np.ndarray) -> list[Segments]:
        count = len(segments)
        others = [(row + 1 + int(draw * (count - 1))) % count for row, draw in enumerate(draws)]
        return [(a, segments[others[row]][1] if other[row] else b) for row, (a, b) in enumerate(segments)]


def _cut(text: np.ndarray, draw: float, endings: tuple[int, ...], least: int) -> Segments | None:
    """Cut a text behind one of its sentences, or return None if no place leaves both segments long enough."""
    places = np.flatnonzero(np.isin(text, endings)) + 1
    places = places[(places >= least) & (places <= len(text) - least)]
    if not len(places):
        return None
    place = places[int(draw * len(places))]
    return text[:place], text[place:]


def _laid_out(rows: Rows, pad_id: int, pairs: dict[int, Segments]) -> Rows:
    """Return the rows, some of them replaced by pairs."""
    tokens, attention = rows.tokens.copy(), rows.attention.copy()
    types = np.zeros_like(tokens) if rows.types is None else rows.types.copy()
    most = tokens.shape[1]
    for row, (a, b) in pairs.items():
        first, last = tokens[row, 0], tokens[row, attention[row].sum() - 1]
        while len(a) + len(b) + 3 > most:
            a, b = (a[:-1], b) if len(a) > len(b) else (a, b[:-1])
        made = np.concatenate([[first], a, [last], b, [last]])
        tokens[row], attention[row], types[row] = pad_id, 0, 0
        tokens[row, : len(made)], attention[row, : len(made)] = made, 1
        types[row, len(a) + 2 : len(made)] = 1
    return replace(rows, tokens=tokens, attention=attention, types=types)
