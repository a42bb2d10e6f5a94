"""Compare the recipes of a table's rows: settings that differ and settings in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tlm_ray.report.formats import ABSENT
from tlm_ray.report.story import AFTER, Settings


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Rows with settings of the same kind."""

    kind: str
    rows: Sequence[str]
    differing: Sequence[tuple[str, Sequence[str]]]
    """settings by name, a value per row"""
    common: Sequence[tuple[str, str]]
    """settings with the same value in all rows, or in all rows whose part (such as a schedule) has the setting"""


def compared(settings: Sequence[Settings]) -> list[Compared]:
    """Return the differences between the rows of each kind, in order of first appearance."""
    return [_compared([each for each in settings if each.kind == kind]) for kind in _unique(settings, "kind")]


def _compared(settings: Sequence[Settings]) -> Compared:
    rows = _unique(settings, "row")
    names = dict.fromkeys(name for each in settings for name in each.values)
    lines = {name: [_value([each for each in settings if each.row == row], name) for row in rows] for name in names}
    common = {name: _in_common(name, values) for name, values in lines.items()}
    return Compared(
        kind=settings[0].kind,
        rows=rows,
        differing=[(name, values) for name, values in lines.items() if common[name] is None],
        common=[(name, value) for name, value in common.items() if value is not None],
    )


def _in_common(name: str, values: Sequence[str]) -> str | None:
    """Return a setting's common value, or None if rows differ; rows without its part are ignored."""
    is_of_part = "." in name.removeprefix(f"{AFTER}.")
    known = set(values) - ({ABSENT} if is_of_part else set())
    return known.pop() if len(known) == 1 else None


def _value(settings: Sequence[Settings], name: str) -> str:
    """Return a row's setting in words; if its tasks differ, each value with its tasks."""
    tasks: dict[str, list[str]] = {}
    for each in settings:
        tasks.setdefault(_text(each.values, name), []).append(each.task)
    if len(tasks) == 1:
        return next(iter(tasks))
    return "; ".join(f"{text} ({', '.join(own)})" for text, own in tasks.items())


def _text(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return ABSENT
    value = values[name]
    return f"{value:g}" if isinstance(value, float) else "none" if value in (None, "") else str(value)


def _unique(settings: Sequence[Settings], field: str) -> list[str]:
    return list(dict.fromkeys(getattr(each, field) for each in settings))
