"""Read and change an encoder's configuration: its token types, vocabulary, special tokens and number of layers."""

from collections.abc import Sequence
from typing import Any

SPECIAL_IDS = ("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "mask_token_id")


def reads_types(config: Any) -> bool:
    """Return whether an encoder tells token types apart; GPT-2 would add words for them, RoBERTa has one type alone."""
    return getattr(config, "type_vocab_size", 1) > 1


def with_vocabulary(config: Any, tokenizer: Any) -> Any:
    """Return a configuration with the vocabulary size and the special tokens of a tokenizer, which it changes."""
    ids = {name: getattr(tokenizer, name, None) for name in SPECIAL_IDS}
    own = {name: number for name, number in ids.items() if number is not None and hasattr(config, name)}
    for name, value in (own | {"vocab_size": len(tokenizer)}).items():
        setattr(config, name, value)
    return config


def with_vocabulary_size(config: Any, vocabulary: int) -> Any:
    """Return a configuration of so many tokens before a tokenizer is known, which it changes."""
    config.vocab_size = vocabulary
    for name in SPECIAL_IDS:
        number = getattr(config, name, None)
        if isinstance(number, int) and number >= vocabulary:
            setattr(config, name, 0)
    return config


def with_kept_layers(config: Any, kept: Sequence[int]) -> Any:
    """Return a configuration with the layers of these numbers alone, which it changes."""
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[number] for number in kept]
    return config


def kept_layers(of: int, layers: int, *, with_last: bool) -> list[int]:
    """Return the numbers of evenly spaced layers from the first one: 0 and 3 for two of 6.

    with_last: the last is among them, so 0, 2, 4, 7, 9 and 11 for 6 of 12. ValueError for more layers than there are.
    """
    if layers > of:
        raise ValueError(f"start with {layers} layers: these are more than the encoder's {of}; give fewer")
    if not with_last:
        return [number * of // layers for number in range(layers)]
    return [0] if layers == 1 else [round(number * (of - 1) / (layers - 1)) for number in range(layers)]
