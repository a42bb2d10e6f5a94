"""Trim a tokenizer: keep the pieces that are most frequent in some texts (Abdaoui et al. 2020).

Other words fall apart into shorter pieces that are kept.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from transformers import PreTrainedTokenizerBase

from tlm_ray.training.tokens.masking import CONTINUES
from tlm_ray.training.tokens.pieces import check_pieces, with_pieces

UNUSED = "[unused"  # begins the places that BERT's vocabulary keeps free
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
    return with_pieces(tokenizer, {pieces[number]: place for place, number in enumerate(kept)})


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
