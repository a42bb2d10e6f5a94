"""Trim a tokenizer: keep the pieces that are most frequent in some texts (Abdaoui et al. 2020).

Other words fall apart into shorter pieces that are kept.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

CONTINUES = "##"  # begins a piece that continues a word
UNUSED = "[unused"  # begins the places that BERT's vocabulary keeps free
OF_THE_WHOLE = ("added_tokens_decoder", "vocab", "vocab_file")  # settings with numbers of all pieces
TEXTS = 1_000  # tokenised together


def trimmed(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], *, vocabulary: int) -> PreTrainedTokenizerBase:
    """Return a WordPiece tokenizer with `vocabulary` of its pieces, in their order.

    Special tokens are kept, then the characters of the texts, then the most frequent pieces, ties by their order.
    ValueError for pieces of another kind, and for a vocabulary too small for the first two.
    """
    check_pieces(tokenizer)
    found = tokenizer.get_vocab()
    if vocabulary >= len(found):
        return tokenizer
    counts = _counts(tokenizer, texts)
    special = set(map(int, tokenizer.all_special_ids))
    seen = {character for piece, number in found.items() if counts[number] for character in _letters(piece)}
    least = special | {number for piece, number in found.items() if _is_character(piece, seen)}
    if len(least) > vocabulary:
        raise ValueError(
            f"vocabulary {vocabulary}: {len(least):,} are special tokens and single characters of the texts; give more"
        )
    others = (n for piece, n in found.items() if n not in least and not piece.startswith(UNUSED))
    ranked = sorted(others, key=lambda number: (-counts[number], number))
    kept = sorted(least | set(ranked[: vocabulary - len(least)]))
    pieces = {number: piece for piece, number in found.items()}
    return _with_pieces(tokenizer, {pieces[number]: place for place, number in enumerate(kept)})


def check_pieces(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError for a tokenizer that cannot be trimmed."""
    kind = type(tokenizer.backend_tokenizer.model).__name__
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


def _letters(piece: str) -> Iterator[str]:
    yield from piece.removeprefix(CONTINUES)


def _is_character(piece: str, seen: set[str]) -> bool:
    """Return whether a piece is a single character, of ASCII or of what was seen."""
    letters = piece.removeprefix(CONTINUES)
    return len(letters) == 1 and (letters.isascii() or letters in seen)


def _with_pieces(tokenizer: PreTrainedTokenizerBase, numbers: dict[str, int]) -> PreTrainedTokenizerBase:
    """Return the tokenizer with other numbers of its pieces, all else alike."""
    whole = json.loads(tokenizer.backend_tokenizer.to_str())
    whole["model"]["vocab"] = numbers
    kept = [token for token in whole["added_tokens"] if token["content"] in numbers]
    whole["added_tokens"] = [token | {"id": numbers[token["content"]]} for token in kept]
    _renumber(whole["post_processor"], numbers)
    how = {name: value for name, value in tokenizer.init_kwargs.items() if name not in OF_THE_WHOLE}
    return type(tokenizer)(tokenizer_object=Tokenizer.from_str(json.dumps(whole)), **how)


def _renumber(processor: dict[str, Any], numbers: dict[str, int]) -> None:
    """Set the numbers of the special tokens that a row begins and ends with."""
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [numbers[piece] for piece in token["tokens"]]
    for name in ("cls", "sep"):
        if name in processor:
            processor[name] = [processor[name][0], numbers[processor[name][0]]]
