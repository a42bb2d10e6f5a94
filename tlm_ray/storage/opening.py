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


def open_trained_classifier(source: str | Path, *, name: str = "", **options: Any) -> Any:
    """Return a sequence classifier, likewise, of which no weight is missing; name: what errors call it.

    transformers gives missing weights random values with no more than a warning. ValueError names the missing ones.
    """
    from transformers import AutoModelForSequenceClassification

    options |= {"output_loading_info": True}
    model, loading = open_pretrained(AutoModelForSequenceClassification, source, **options)
    if loading["missing_keys"]:
        prefix, name = f"{model.base_model_prefix}.", name or str(source)
        head_first = sorted(loading["missing_keys"], key=lambda key: (key.startswith(prefix), key))
        raise ValueError(
            f"model {name!r}: is no trained classifier, its weights lack {head_first[0]!r}, which would be random; "
            f"train it first: experiments/train.py --start {name}"
        )
    return model


def open_settings(auto: Any, source: str | Path, **options: Any) -> Any:
    """Return a configuration or a tokenizer likewise."""
    found = HUB_NAME.fullmatch(str(source))
    name, revision = (found[1], {"revision": found[2]}) if found else (str(source), {})
    return auto.from_pretrained(name, trust_remote_code=False, **revision, **options)
