"""The head of a classifier that reads the states at two marked spans, and the marks in a configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from tlm_ray.training.encoders.heads import Head
from tlm_ray.training.encoders.marked import MarkedConfig, MarkedForSequenceClassification, MarkedStates

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
