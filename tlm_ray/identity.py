"""Which settings identify a result: all that change it, but those that came later and are not used.

A field with the metadata LATER was added after results had been made without it. At its default it is no part of the
identity, so those results are still found.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

LATER: Mapping[str, bool] = {"later": True}
NO_RESULT: Mapping[str, bool] = {"result": False}  # of a field that changes what is told of a result, not the result


def is_unset(value: Any, field: Field) -> bool:
    """Say whether a dataclass' field is no part of the identity: it changes no result, or came later and is unused."""
    if not field.metadata.get("result", True):
        return True
    if not field.metadata.get("later"):
        return False
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return getattr(value, field.name) == default


def set_later(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that came later and are not at their defaults."""
    return {f.name: getattr(value, f.name) for f in fields(value) if f.metadata.get("later") and not is_unset(value, f)}
