"""Opening models of anybody's: weights are safetensors, no code of others is run, a revision may be named."""

import re
from pathlib import Path
from typing import Any

HUB_NAME = re.compile(r"([\w-][\w.-]*(?:/[\w.-]+)?)@([\w./-]+)")  # of a model in one revision: a tag, branch or commit


def open_pretrained(auto: Any, source: str | Path, **options: Any) -> Any:
    """Return a model, by one of transformers' Auto classes, of a hub name, perhaps with @revision, or a local folder.

    OSError or ValueError, those of transformers, where it is none; OSError names weights that are damaged.
    """
    from safetensors import SafetensorError

    try:
        return open_settings(auto, source, use_safetensors=True, **options)
    except SafetensorError as error:
        raise OSError(
            f"model {str(source)!r}: its weights cannot be read ({error}); fetch or make them anew"
        ) from error


def open_settings(auto: Any, source: str | Path, **options: Any) -> Any:
    """Return a configuration or a tokenizer likewise."""
    found = HUB_NAME.fullmatch(str(source))
    name, revision = (found[1], {"revision": found[2]}) if found else (str(source), {})
    return auto.from_pretrained(name, trust_remote_code=False, **revision, **options)
