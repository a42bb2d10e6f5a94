"""Trim a tokenizer: keep the pieces that are most frequent in some texts (Abdaoui et al. 2020).

Other words fall apart into shorter pieces that are kept.
"""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

CONTINUES = "##"  # begins a piece that continues a word
UNUSED = "[unused"  # begins the places that BERT's vocabulary keeps free
OF_THE_WHOLE = ("added_tokens_decoder", "vocab", "vocab_file")  # settings with numbers of all pieces
TEXTS = 1_000  # tokenised together


def trim_tokenizer(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], *, vocabulary: int
) -> PreTrainedTokenizerBase:
    """Return a WordPiece tokenizer with `vocabulary` of its pieces, in their order.

    Special tokens and the characters of the texts are kept in any case. Then come the most frequent pieces, ties by
    their order, and no other single characters. ValueError for pieces of another kind.
    """
    check_pieces(tokenizer)
    numbers = tokenizer.get_vocab()
    if vocabulary >= len(numbers):
        return tokenizer
    counts = _counts(tokenizer, texts)
    least = set(map(int, tokenizer.all_special_ids)) | _characters(numbers, counts)
    others = [n for piece, n in numbers.items() if not (n in least or _is_single(piece) or piece.startswith(UNUSED))]
    ranked = sorted(others, key=lambda number: (-counts[number], number))
    kept = sorted(least.union(ranked[: max(0, vocabulary - len(least))]))
    pieces = {number: piece for piece, number in numbers.items()}
    return _with_pieces(tokenizer, {pieces[number]: place for place, number in enumerate(kept)})


def check_pieces(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError for a tokenizer that cannot be trimmed."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    kind = type(tokenizer).__name__ if backend is None else type(backend.model).__name__
    if kind != "WordPiece":
        raise ValueError(
            f"tokenizer {tokenizer.name_or_path!r}: is of the kind {kind}; only WordPiece, such as BERT's, can be "
            "trimmed: leave out the number of layers"
        )


def _counts(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Counter[int]:
    """Count each token in the texts."""
    counts: Counter[int] = Counter()
    left = iter(texts)
    while some := list(islice(left, TEXTS)):
        for tokens in tokenizer(some, add_special_tokens=False)["input_ids"]:
            counts.update(tokens)
    return counts


def _characters(numbers: dict[str, int], counts: Counter[int]) -> set[int]:
    """Return the single characters into which counted pieces can fall apart, and those of ASCII."""
    needed = {piece for piece in numbers if _is_single(piece) and piece[-1].isascii()}
    for piece, number in numbers.items():
        if counts[number]:
            letters = piece.removeprefix(CONTINUES)
            begins = 0 if letters != piece else 1  # the letters that begin a word
            needed |= set(letters[:begins]) | {f"{CONTINUES}{letter}" for letter in letters[begins:]}
    return {numbers[piece] for piece in needed if piece in numbers}


def _is_single(piece: str) -> bool:
    return len(piece.removeprefix(CONTINUES)) == 1


def _with_pieces(tokenizer: PreTrainedTokenizerBase, numbers: dict[str, int]) -> PreTrainedTokenizerBase:
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
