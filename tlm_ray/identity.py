"""Decide which settings identify a result: all that change it, except unused ones that were added later.

A field with the metadata LATER was added after results had been made without it. At its default it is not part of the
identity, so those results are still reused.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

LATER: Mapping[str, bool] = {"later": True}
NO_RESULT: Mapping[str, bool] = {"result": False}  # for a field that changes how a result is shown, not the result


def is_unset(value: Any, field: Field) -> bool:
    """Return whether a field is not part of the identity: it changes no result, or was added later and is unused."""
    if not field.metadata.get("result", True):
        return True
    if not field.metadata.get("later"):
        return False
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return getattr(value, field.name) == default


def set_later(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that were added later and are not at their defaults."""
    return {f.name: getattr(value, f.name) for f in fields(value) if f.metadata.get("later") and not is_unset(value, f)}
