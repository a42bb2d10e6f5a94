"""Open models, tokenizers and configurations: safetensors weights only, no remote code, optionally a named revision."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

HUB_NAME = re.compile(r"([\w-][\w.-]*(?:/[\w.-]+)?)@([\w./-]+)")  # name@revision: a tag, branch or commit


def open_pretrained(auto: Any, source: str | Path, **options: Any) -> Any:
    """Return a model opened by one of transformers' Auto classes, in fp32 whatever its weights are stored in.

    source: a local folder, or a hub name with an optional @revision. Raises transformers' OSError or ValueError if the
    source is not a model. OSError names corrupt weights.
    """
    from safetensors import SafetensorError

    try:
        return open_settings(auto, source, **({"use_safetensors": True, "dtype": "float32"} | options))
    except SafetensorError as error:
        raise OSError(
            f"model {str(source)!r}: its weights cannot be read ({error}); download or train them again"
        ) from error


def open_trained_classifier(source: str | Path, *, name: str = "", **options: Any) -> Any:
    """Return a sequence classifier with all its weights, see `open_trained`."""
    from transformers import AutoModelForSequenceClassification

    return open_trained(AutoModelForSequenceClassification, source, name=name, **options)


def open_trained(auto: Any, source: str | Path, *, name: str = "", **options: Any) -> Any:
    """Return a model that classifies with all its weights; `name` replaces the source in errors.

    transformers would initialise missing weights at random, with only a warning. ValueError names the first missing
    one.
    """
    model, loading = open_pretrained(auto, source, output_loading_info=True, **options)
    if loading["missing_keys"]:
        prefix, name = f"{model.base_model_prefix}.", name or str(source)
        head_first = sorted(loading["missing_keys"], key=lambda key: (key.startswith(prefix), key))
        raise ValueError(
            f"model {name!r}: is no trained classifier, its weights lack {head_first[0]!r}, which would be random; "
            f"train it first (train.py --start {name})"
        )
    return model


def open_settings(auto: Any, source: str | Path, **options: Any) -> Any:
    """Return a configuration or tokenizer; source as in `open_pretrained`."""
    found = HUB_NAME.fullmatch(str(source))
    name, revision = (found[1], {"revision": found[2]}) if found else (str(source), {})
    is_here = Path(name).exists()
    if not is_here:
        _check_reachable(name, **revision)
    with _without_bars() if is_here else nullcontext():  # a download is long, what follows takes milliseconds
        return auto.from_pretrained(name, trust_remote_code=False, **revision, **options)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep transformers' progress bars off the terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _check_reachable(name: str, revision: str | None = None) -> None:
    """Raise OSError if a model is not cached and the hub has no address, where transformers would retry for 30 s."""
    from huggingface_hub import constants, try_to_load_from_cache

    try:
        kept = [try_to_load_from_cache(name, file, revision=revision) for file in ("config.json", "tokenizer.json")]
    except ValueError:  # no name that the hub could have; transformers says so
        return
    if constants.HF_HUB_OFFLINE or any(isinstance(path, str) for path in kept) or getproxies():
        return
    hub = urlsplit(constants.ENDPOINT)
    try:
        socket.getaddrinfo(hub.hostname, hub.port or 443)
    except OSError as error:
        raise OSError(
            f"{name!r} is no folder here, and {constants.ENDPOINT} cannot be reached ({error}); correct the name, give "
            "a folder, or connect to a network"
        ) from error
