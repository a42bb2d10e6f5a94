"""Extend a tokenizer: add the frequent words that it splits (Yao, Huang et al. 2021, AdaLM; Gee et al. 2022, FVT).

Texts then have fewer tokens. A word that begins with a new one may be split at another place than before, or become
unknown where the vocabulary lacks a piece that continues it. BERT's uncased one has a piece for each character.
"""

from collections import Counter
from collections.abc import Iterable

from transformers import PreTrainedTokenizerBase

from tlm_ray.training.tokens.pieces import check_pieces, with_pieces


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], *, words: int
) -> PreTrainedTokenizerBase:
    """Return a WordPiece tokenizer with so many further pieces, whole words, numbered after its own.

    They are those that save most tokens in the texts, ties in alphabetical order; fewer if the texts have fewer words
    that are split. ValueError for pieces of another kind, or whose numbers have gaps.
    """
    check_pieces(tokenizer)
    own = tokenizer.get_vocab()
    if (most := max(own.values())) >= len(own):
        raise ValueError(
            f"tokenizer {tokenizer.name_or_path!r}: has {len(own)} pieces with numbers up to {most}; number them "
            "without gaps, or leave out the number of new words"
        )
    saved = _saved(tokenizer, _words(tokenizer, texts))
    new = sorted(saved, key=lambda word: (-saved[word], word))[:words]
    return with_pieces(tokenizer, own | {word: len(own) + place for place, word in enumerate(new)})


def _words(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts, as the tokenizer sees them before it splits any."""
    parts = tokenizer.backend_tokenizer
    counts: Counter[str] = Counter()
    for text in texts:
        normal = parts.normalizer.normalize_str(text) if parts.normalizer else text
        counts.update(word for word, _ in parts.pre_tokenizer.pre_tokenize_str(normal))
    return counts


def _saved(tokenizer: PreTrainedTokenizerBase, counts: Counter[str]) -> dict[str, int]:
    """Return how many tokens each word would save that the tokenizer splits; a word of unknown characters is one."""
    model, known = tokenizer.backend_tokenizer.model, tokenizer.get_vocab()
    pieces = {word: len(model.tokenize(word)) for word in counts if word not in known}
    return {word: counts[word] * (number - 1) for word, number in pieces.items() if number > 1}
