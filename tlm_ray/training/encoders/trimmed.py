"""Take some layers of a pretrained encoder and its frequent pieces, as the start of a smaller one."""

from typing import Any, ClassVar

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tlm_ray.training.encoders.configs import SPECIAL_IDS, with_vocabulary, with_vocabulary_size
from tlm_ray.training.encoders.fewer_layers import SomeLayers
from tlm_ray.training.tokens.tokenizer import load_tokenizer


class TrimmedWeights(SomeLayers):
    """The weights of a trained encoder with evenly spaced layers and the pieces of a trimmed tokenizer.

    tokenizer: has some of the source's pieces, by any numbers; None keeps the first `vocabulary` ones, for the model's
    size. ValueError for other pieces.
    """

    with_last: ClassVar[bool] = False
    restored: ClassVar[tuple[str, ...]] = (*SomeLayers.restored, "vocab_size", *SPECIAL_IDS)

    def __init__(self, source: str, *, vocabulary: int, tokenizer: PreTrainedTokenizerBase | None, **options: Any):
        super().__init__(source, tokenizer=tokenizer, **options)
        whole = self.whole.vocab_size
        self.rows = (
            list(range(min(vocabulary, whole)))
            if tokenizer is None
            else rows_of(tokenizer, load_tokenizer(source), whole)
        )
        self._number(self.config)

    def _open(self, model: Any, **options: Any) -> Any:
        found = super()._open(model, **options)
        opened: PreTrainedModel = found[0] if isinstance(found, tuple) else found
        _keep_rows(opened, self.rows)
        self._number(opened.config)
        table = opened.get_input_embeddings()
        if getattr(table, "padding_idx", None) is not None:  # its row gets no gradient
            table.padding_idx = opened.config.pad_token_id  # type: ignore[assignment]
        return found

    def _number(self, config: PretrainedConfig) -> None:
        if self.tokenizer is None:
            with_vocabulary_size(config, len(self.rows))
        else:
            with_vocabulary(config, self.tokenizer)


def rows_of(tokenizer: PreTrainedTokenizerBase, whole: PreTrainedTokenizerBase, size: int) -> list[int]:
    """Return the number of each piece in the whole vocabulary.

    size: of the encoder's table. ValueError for a piece that is not there.
    """
    known, own = whole.get_vocab(), tokenizer.get_vocab()
    pieces = sorted(own, key=own.__getitem__)
    if unknown := [piece for piece in pieces if known.get(piece, size) >= size]:
        raise ValueError(f"start Trimmed: its tokenizer has {unknown[0]!r}, which the encoder's has not; trim that one")
    return [known[piece] for piece in pieces]


@torch.no_grad()
def _keep_rows(model: PreTrainedModel, rows: list[int]) -> None:
    """Keep these rows of the token embeddings, and of the head that predicts tokens."""
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    parameters = {id(p): p for end in ends if end is not None for p in end.parameters()}  # shared ones once
    for parameter in parameters.values():
        parameter[: len(rows)] = parameter[rows]
    model.resize_token_embeddings(len(rows))
