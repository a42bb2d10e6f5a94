"""Number the special tokens of a configuration as a tokenizer does."""

from typing import Any

SPECIAL_IDS = ("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "mask_token_id")


def with_vocabulary(config: Any, tokenizer: Any) -> Any:
    """Return a configuration with the vocabulary size and the special tokens of a tokenizer, which it changes."""
    ids = {name: getattr(tokenizer, name, None) for name in SPECIAL_IDS}
    own = {name: number for name, number in ids.items() if number is not None and hasattr(config, name)}
    for name, value in (own | {"vocab_size": len(tokenizer)}).items():
        setattr(config, name, value)
    return config
