"""Give a pretrained encoder embeddings for new words: the mean of the pieces into which its tokenizer splits them."""

from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tlm_ray.training.encoders.weights import TrainedWeights
from tlm_ray.training.tokens.tokenizer import load_tokenizer


class ExtendedWeights(TrainedWeights):
    """The weights of a trained encoder with the further words of an extended tokenizer.

    tokenizer: begins with the source's pieces; None adds `words` random embeddings, for the model's size.
    ValueError for other pieces.
    """

    def __init__(self, source: str, *, words: int, tokenizer: PreTrainedTokenizerBase | None, **options: Any):
        super().__init__(source, tokenizer=tokenizer, **options)
        self.size = self.config.vocab_size + words  # of a model without a tokenizer
        self.pieces = {} if tokenizer is None else pieces_of(tokenizer, load_tokenizer(source))

    def _open(self, model: Any, **options: Any) -> Any:
        found = super()._open(model, **options)
        opened: PreTrainedModel = found[0] if isinstance(found, tuple) else found
        if self.tokenizer is None:
            opened.resize_token_embeddings(self.size, mean_resizing=False)
            self.config.vocab_size = opened.config.vocab_size
        _begin_as_means(opened, self.pieces)
        return found


def pieces_of(tokenizer: PreTrainedTokenizerBase, whole: PreTrainedTokenizerBase) -> dict[int, list[int]]:
    """Return the pieces of the whole vocabulary for the number of each further word.

    ValueError if a piece has another number there.
    """
    known, own = whole.get_vocab(), tokenizer.get_vocab()
    if other := [piece for piece, number in known.items() if own.get(piece) != number]:
        raise ValueError(f"start Extended: its tokenizer has not the encoder's {other[0]!r}; extend that one")
    new = sorted(own.keys() - known.keys(), key=own.__getitem__)
    return {own[word]: whole(word, add_special_tokens=False)["input_ids"] for word in new}


@torch.no_grad()
def _begin_as_means(model: PreTrainedModel, pieces: dict[int, list[int]]) -> None:
    """Set the token embedding of each word, and the head's weights that predict it, to the mean of its pieces'."""
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    parameters = {id(p): p for end in ends if end is not None for p in end.parameters()}  # shared ones once
    for parameter in parameters.values():
        for word, own in pieces.items():
            parameter[word] = parameter[own].mean(dim=0)
