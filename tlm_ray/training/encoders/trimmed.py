"""Take the first layers of a pretrained encoder and its frequent pieces, as the start of a smaller one."""

from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tlm_ray.training.encoders.fewer_layers import SomeLayers, kept_layers
from tlm_ray.training.encoders.special_ids import SPECIAL_IDS, with_vocabulary
from tlm_ray.training.tokens.tokenizer import load_tokenizer
from tlm_ray.training.tokens.trimming import check_pieces


class TrimmedWeights(SomeLayers):
    """The weights of a trained encoder with its first layers and the pieces of a trimmed tokenizer.

    tokenizer: has some of the source's pieces, by any numbers; None keeps the vocabulary. ValueError for other pieces.
    """

    evenly = False
    restored = (*SomeLayers.restored, "vocab_size", *SPECIAL_IDS)

    def __init__(self, source: str, *, tokenizer: PreTrainedTokenizerBase | None, **options: Any):
        super().__init__(source, tokenizer=tokenizer, **options)
        self.rows = None if tokenizer is None else rows_of(tokenizer, load_tokenizer(source))
        if tokenizer is not None:
            with_vocabulary(self.config, tokenizer)

    def _open(self, model: Any, **options: Any) -> Any:
        found = super()._open(model, **options)
        opened: PreTrainedModel = found[0] if isinstance(found, tuple) else found
        if self.rows is not None:
            _keep_rows(opened, self.rows)
            with_vocabulary(opened.config, self.tokenizer)
        return found


def check_trimmed(source: str, config: PretrainedConfig, *, layers: int) -> None:
    """Raise ValueError if the encoder has too few layers, or pieces that cannot be trimmed."""
    kept_layers(config.num_hidden_layers, layers, evenly=False)
    check_pieces(load_tokenizer(source))


def rows_of(tokenizer: PreTrainedTokenizerBase, whole: PreTrainedTokenizerBase) -> list[int]:
    """Return the number in the whole vocabulary of each piece; ValueError for a piece that it lacks."""
    known, own = whole.get_vocab(), tokenizer.get_vocab()
    pieces = sorted(own, key=own.__getitem__)
    if unknown := [piece for piece in pieces if piece not in known]:
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
