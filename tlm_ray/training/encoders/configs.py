"""Change an encoder's configuration: its vocabulary with the special tokens, and its number of layers."""

from typing import Any

SPECIAL_IDS = ("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "mask_token_id")


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


def with_first_layers(config: Any, layers: int) -> Any:
    """Return a configuration with its first layers alone, which it changes."""
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    return config
