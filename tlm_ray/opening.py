"""Opening a model of anybody's: its weights are safetensors, and no code that comes with it is run."""

from pathlib import Path
from typing import Any


def open_pretrained(auto: Any, source: str | Path, **options: Any) -> Any:
    """Return what one of transformers' Auto classes makes of a hub name or a local folder.

    OSError or ValueError, those of transformers, where it is none; OSError names weights that are damaged.
    """
    from safetensors import SafetensorError

    try:
        return auto.from_pretrained(str(source), use_safetensors=True, trust_remote_code=False, **options)
    except SafetensorError as error:
        raise OSError(
            f"model {str(source)!r}: its weights cannot be read ({error}); fetch or make them anew"
        ) from error
