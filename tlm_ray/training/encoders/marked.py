"""A classifier that also reads the hidden states at two marked spans.

Sources: Wu and He 2019 (R-BERT); Baldini Soares et al. 2019 (entity start). This file needs torch and transformers
alone, because each exported model has a copy: `from_pretrained(folder, trust_remote_code=True)` runs it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

# of a configuration, what users of the whole model ask for
SHARED = (
    "id2label",
    "label2id",
    "problem_type",
    "pad_token_id",
    "max_position_embeddings",
    "type_vocab_size",
    "trained_precision",
)
STATES = 5  # the opening mark and the inside of each span, and what is between them


class MarkedConfig(PretrainedConfig):
    """The configuration of a classifier without marks, and the marks.

    plain: that configuration as a dictionary. marks: token ids of each mark, the first span's opening and closing one,
    then the second's.
    """

    model_type = "marked"

    def __init__(self, plain: dict[str, Any] | None = None, marks: Sequence[Sequence[int]] = (), **others: Any):
        self.plain, self.marks = plain or {}, [list(mark) for mark in marks]
        super().__init__(**others)

    @classmethod
    def of(cls, plain: PretrainedConfig) -> "MarkedConfig":
        """Return the configuration of a whole model; plain: has the marks' token ids as `marks`."""
        own = {name: getattr(plain, name) for name in SHARED if hasattr(plain, name)}
        kept = {name: value for name, value in plain.to_dict().items() if name not in ("_name_or_path", *own)}
        return cls(plain=kept, **own, marks=plain.marks)

    @property
    def of_plain(self) -> PretrainedConfig:
        """The configuration of the classifier without marks, which keeps their token ids."""
        own = {name: getattr(self, name) for name in SHARED if hasattr(self, name)}
        return AutoConfig.for_model(**self.plain, **own)


class MarkedStates(nn.Module):
    """Maps the states at the marks to logits; a span that a row does not mark counts as zeros."""

    def __init__(self, width: int, classes: int, marks: Sequence[Sequence[int]]):
        super().__init__()
        self.marks = [list(mark) for mark in marks]
        self.dense, self.out = nn.Linear(STATES * width, width), nn.Linear(width, classes)
        for layer in (self.dense, self.out):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: torch.Tensor, attention: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor:
        """Return logits, (rows, classes).

        hidden: (rows, length, width). attention: (rows, length), 1 for tokens; None if all are. ids: (rows, length).
        """
        place = torch.arange(ids.shape[1], device=ids.device)
        first, first_end, second, second_end = (_place(ids, mark) for mark in self.marks)
        tokens = torch.ones_like(ids) if attention is None else attention
        after = [len(mark) for mark in self.marks]

        def mean(start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
            inside = ((place >= start[:, None]) & (place < end[:, None]) & (tokens == 1)).to(hidden.dtype)
            return (inside[:, None] @ hidden)[:, 0] / inside.sum(1, keepdim=True).clamp(min=1)

        is_before = first < second
        between = (
            torch.where(is_before, first_end + after[1], second_end + after[3]),
            torch.where(is_before, second, first),
        )
        states = [
            mean(first, first + 1),
            mean(second, second + 1),
            mean(first + after[0], first_end),
            mean(second + after[2], second_end),
            mean(*between),
        ]
        return self.out(nn.functional.gelu(self.dense(torch.cat(states, dim=1))))


class MarkedForSequenceClassification(PreTrainedModel):
    """Adds the logits of the states at the marks to those of a classifier without marks."""

    config_class = MarkedConfig
    base_model_prefix = "plain"
    _supports_sdpa = True  # its encoder uses what it supports

    def __init__(self, config: MarkedConfig):
        super().__init__(config)
        own = config.of_plain
        self.plain = AutoModelForSequenceClassification.from_config(own)
        self.marked = MarkedStates(own.hidden_size, own.num_labels or 0, config.marks)
        self.post_init()

    @property
    def base_model(self) -> Any:
        """The encoder."""
        return self.plain.base_model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **others: Any
    ) -> SequenceClassifierOutput:
        """Return logits, (rows, classes)."""
        found = self.plain(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **others)
        more = self.marked(found.hidden_states[-1], attention_mask, input_ids)
        return SequenceClassifierOutput(logits=found.logits + more)


def _place(ids: torch.Tensor, mark: Sequence[int]) -> torch.Tensor:
    """Return where a mark is first in each row, (rows,); the rows' length if it is not there."""
    length = ids.shape[1]
    padded = nn.functional.pad(ids, (0, len(mark) - 1), value=-1)
    there = torch.stack([padded[:, shift : shift + length] == token for shift, token in enumerate(mark)]).all(0)
    place = torch.arange(length, device=ids.device)
    return torch.where(there, place, length).amin(1)


MarkedConfig.register_for_auto_class()
MarkedForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
