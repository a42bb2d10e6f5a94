"""Give a WordPiece tokenizer other pieces."""

import json
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

OF_THE_WHOLE = ("added_tokens_decoder", "vocab", "vocab_file")  # settings with numbers of all pieces


def check_pieces(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError for a tokenizer of another kind than WordPiece."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    kind = type(tokenizer).__name__ if backend is None else type(backend.model).__name__
    if kind != "WordPiece":
        raise ValueError(
            f"tokenizer {tokenizer.name_or_path!r}: is of the kind {kind}; only WordPiece, such as BERT's, can get "
            "other pieces: leave out the number of layers or of new words"
        )


def with_pieces(tokenizer: PreTrainedTokenizerBase, numbers: dict[str, int]) -> PreTrainedTokenizerBase:
    """Return the tokenizer with other numbers of its pieces, all else alike."""
    whole = json.loads(tokenizer.backend_tokenizer.to_str())
    whole["model"]["vocab"] = numbers
    kept = [token for token in whole["added_tokens"] if token["content"] in numbers]
    whole["added_tokens"] = [token | {"id": numbers[token["content"]]} for token in kept]
    _renumber(whole["post_processor"] or {}, numbers)
    how = {name: value for name, value in tokenizer.init_kwargs.items() if name not in OF_THE_WHOLE}
    return type(tokenizer)(tokenizer_object=Tokenizer.from_str(json.dumps(whole)), **how)


def _renumber(processor: dict[str, Any], numbers: dict[str, int]) -> None:
    """Set the numbers of the special tokens that a row begins and ends with."""
    for inner in processor.get("processors", ()):
        _renumber(inner, numbers)
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [numbers[piece] for piece in token["tokens"]]
    for name in ("cls", "sep"):
        if name in processor:
            processor[name] = [processor[name][0], numbers[processor[name][0]]]
