"""The head of a classifier that reads the states at two marked spans, and the marks in a configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from tlm_ray.training.encoders.heads import Head
from tlm_ray.training.encoders.marked import MarkedConfig, MarkedForSequenceClassification, MarkedStates
from tlm_ray.training.tokens.blocks import Blocks

FEWEST = 0.5  # share of training rows that must have all marks; long rows lose some, where they are cut
AutoConfig.register(MarkedConfig.model_type, MarkedConfig)
AutoModelForSequenceClassification.register(MarkedConfig, MarkedForSequenceClassification)


class MarkedHead(Head):
    """A classifier without its encoder, and what reads the states at the marks; states: None for new ones.

    The configuration has the marks' token ids as `marks`.
    """

    def __init__(self, plain: PreTrainedModel, states: MarkedStates | None = None):
        super().__init__(plain)
        config = plain.config
        self.states = states or MarkedStates(config.hidden_size, config.num_labels or 0, config.marks)

    def at_marks(self, hidden: torch.Tensor, attention: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor:
        """Map hidden states, (rows, length, width), and token ids, (rows, length), to logits, (rows, classes)."""
        return self(hidden, attention) + self.states(hidden, attention, ids)

    def export(self, encoder: Any, folder: Path) -> None:
        """Write the whole model and a copy of its code."""
        with self.whole(encoder) as plain, torch.device("meta"):
            model = MarkedForSequenceClassification(MarkedConfig.of(plain.config))
            model.plain, model.marked = plain, self.states
            model.save_pretrained(folder)


def with_marks(config: PretrainedConfig, tokenizer: Tokenizer | None, marks: Sequence[str]) -> None:
    """Write the token ids of the marks into a configuration, without a tokenizer 0; ValueError for unknown signs."""
    config.marks = [[0]] * len(marks) if tokenizer is None else [ids_of(tokenizer, mark) for mark in marks]


def ids_of(tokenizer: Tokenizer, mark: str) -> list[int]:
    """Return the token ids of a mark that follows a space; ValueError for an unknown sign."""
    ids: list[int] = tokenizer(f" {mark}", add_special_tokens=False)["input_ids"]
    if not ids or tokenizer.unk_token_id in ids:
        raise ValueError(
            f"marks {mark!r}: the tokenizer does not know it; mark the spans by other signs, or leave out marks"
        )
    return ids


def check_marks(rows: Blocks, tokenizer: Tokenizer, marks: Sequence[str]) -> None:
    """Raise ValueError if less than half of the rows have all marks, as they are after a space.

    A tokenizer of bytes, as RoBERTa's, has other tokens for a mark at the start of a text or inside a word.
    """
    with_all = np.logical_and.reduce([_rows_with(rows, ids_of(tokenizer, mark)) for mark in marks])
    if with_all.sum() < FEWEST * len(rows):
        raise ValueError(
            f"labels: marks {' '.join(marks)}: the tokens of all four are in {with_all.sum():,} of {len(rows):,} "
            "training rows; put a space before and after each mark and a word before the first, give a recipe of more "
            "task_tokens where rows are cut, or leave out marks"
        )


def _rows_with(rows: Blocks, ids: Sequence[int]) -> np.ndarray:
    """Return whether each row has these tokens one after another, bool (rows,)."""
    starts = np.arange(max(0, len(rows.tokens) - len(ids) + 1))
    there = np.logical_and.reduce([rows.tokens[starts + shift] == token for shift, token in enumerate(ids)])
    found = np.zeros(len(rows), bool)
    found[np.searchsorted(rows.offsets, np.flatnonzero(there), side="right") - 1] = True
    return found
