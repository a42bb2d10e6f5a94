"""Separate the decoder of an encoder-decoder from its encoder: hidden states and texts in, log-probabilities out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tlm_ray.training.encoders.heads import GivenStates, Head, sample_rows
from tlm_ray.training.tokens.estimated import name_tokens
from tlm_ray.training.tokens.masking import NONE, end_of

END = 1  # of T5's own vocabulary


class Decoder(Head):
    """An encoder-decoder of transformers without its encoder, once that is shared (`share`).

    `texts` has the tokens of each label's name, int64 (classes, length), and NONE after their ends. They come from the
    configuration's label_tokens. Without any, as where operations are planned, their lengths are estimated.
    """

    texts: torch.Tensor

    def __init__(self, model: PreTrainedModel):
        super().__init__(model)
        labels: dict[Any, str] = dict(model.config.id2label or {})
        names = getattr(model.config, "label_tokens", None) or [
            [number] * name_tokens(name) + [END] for number, name in labels.items()
        ]
        texts = pad_sequence([torch.tensor(name) for name in names], batch_first=True, padding_value=NONE)
        self.register_buffer("texts", texts)

    def share(self, encoder: Any = None) -> Any:
        """Detach the encoder and return it; `encoder` replaces the model's own first (None: keep it)."""
        if encoder is not None:
            self.model.encoder = encoder
        encoder, rows = self.model.encoder, sample_rows(self.model.config)
        with torch.no_grad():
            self.expected = self.model.eval()(**rows, decoder_input_ids=rows["input_ids"]).logits
        self.model.encoder = GivenStates(None)
        return encoder

    def forward(self, hidden: torch.Tensor, attention: torch.Tensor | None = None) -> torch.Tensor:
        """Map hidden states, (rows, length, width), to the log-probabilities of the labels' names, (rows, classes)."""
        texts = [text.expand(len(hidden), -1) for text in self.texts]
        return torch.stack([self.log_probabilities(hidden, attention, text) for text in texts], dim=1)

    def log_probabilities(
        self, hidden: torch.Tensor, attention: torch.Tensor | None, texts: torch.Tensor
    ) -> torch.Tensor:
        """Return the log-probability of a text per row, float32 (rows,); texts: int64 (rows, length), or NONE."""
        shifted: Any = self.model.prepare_decoder_input_ids_from_labels
        logits = self.next_tokens(hidden, attention, shifted(labels=texts)).float().transpose(1, 2)
        return -cross_entropy(logits, texts, reduction="none", ignore_index=NONE).sum(1)

    def written(self, hidden: torch.Tensor, attention: torch.Tensor | None) -> torch.Tensor:
        """Write the likeliest token after another; return the class that has this name, int64 (rows,), or -1."""
        read = torch.full((len(hidden), 1), self.model.config.decoder_start_token_id, device=hidden.device)
        for _ in range(self.texts.shape[1]):
            following = self.next_tokens(hidden, attention, read)[:, -1].argmax(-1)
            read = torch.cat([read, following[:, None]], dim=1)
        same = ((read[:, None, 1:] == self.texts) | (self.texts == NONE)).all(-1)
        return torch.where(same.any(-1), same.long().argmax(-1), -1)

    def logits(self, hidden: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
        """Return the logits of the sample rows, read by the decoder too."""
        return self.next_tokens(hidden, attention, sample_rows(self.model.config)["input_ids"])

    def next_tokens(self, hidden: torch.Tensor, attention: torch.Tensor | None, read: torch.Tensor) -> torch.Tensor:
        """Return logits, (rows, length, vocabulary), of the token after each one that the decoder reads."""
        options: dict[str, Any] = {"attention_mask": attention, "use_cache": False}
        return self.model(encoder_outputs=(hidden,), decoder_input_ids=read, **options).logits

    @contextmanager
    def whole(self, encoder: Any) -> Iterator[PreTrainedModel]:
        """Yield the model with its encoder put back."""
        given, self.model.encoder = self.model.encoder, encoder
        try:
            yield self.model
        finally:
            self.model.encoder = given


def with_label_tokens(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase | None) -> PretrainedConfig:
    """Write the tokens of the labels' names into a configuration, each with an end, and what a decoder begins with."""
    if tokenizer is not None and config.problem_type != "regression":
        end = end_of(tokenizer)
        labels: dict[Any, str] = dict(config.id2label or {})
        names = [labels[number] for number in sorted(labels)]
        texts = [[*tokenizer(name, add_special_tokens=False)["input_ids"], end] for name in names]
        _check_texts(names, texts, tokenizer)
        config.label_tokens, config.eos_token_id = texts, end
    if getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id
    return config


def _check_texts(names: list[str], texts: list[list[int]], tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError if a label's name has no tokens of its own."""
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        if len(text) < 2 or tokenizer.unk_token_id in text:
            raise ValueError(f"label {name!r}: the tokenizer does not know its characters; give it another name")
        if text in texts[:number]:
            same = names[texts.index(text)]
            raise ValueError(f"labels {same!r} and {name!r}: are the same to the tokenizer; give one another name")
