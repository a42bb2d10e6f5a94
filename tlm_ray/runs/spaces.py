"""What a sweep varies: fields of a recipe by their paths, and the values that each may take."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import product
from typing import Any, get_args

import numpy as np

from tlm_ray.retrieval.methods import Method, method_named
from tlm_ray.runs.recipe import Recipe
from tlm_ray.storage import shown
from tlm_ray.training.schedules import Schedule

Point = Mapping[str, Any]  # a value for each path


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers between two ends, for searches that draw; whole ones if both ends are."""

    low: float
    """the least"""
    high: float
    """the most"""
    log: bool = False
    """drawn evenly by their logarithm"""

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"{self}: low must be less than high, and more than 0 on a log scale")

    @property
    def whole(self) -> bool:
        """Whether its numbers are whole."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, share: float) -> float:
        """Return the number at a share, 0 to 1, of the way from low to high."""
        end = self.high + 1 if self.whole else self.high
        value = self.low * (end / self.low) ** share if self.log else self.low + share * (end - self.low)
        return min(int(value), int(self.high)) if self.whole else value


@dataclass(frozen=True)
class Space:
    """Paths of a recipe's fields, such as "k", "stage_one.learning_rate" or "method.b", each with a list or a Range."""

    values: Mapping[str, Sequence[Any] | Range]
    """of a grid each a list; methods by name or with their settings, other parts (start, objectives) as objects"""
    depth: int = 0
    """passages retrieved per query, which all share; 0 for the largest k"""

    def __post_init__(self) -> None:
        for path, values in self.values.items():
            if not isinstance(values, Range) and not len(values):
                raise ValueError(f"{path}: give at least one value to try")
        if not self.values:
            raise ValueError("values: vary one field of the recipe at least, such as k")

    @property
    def names(self) -> list[str]:
        """The paths."""
        return list(self.values)

    @property
    def is_grid(self) -> bool:
        """Whether every path has a list."""
        return not any(isinstance(values, Range) for values in self.values.values())

    def points(self) -> Iterator[Point]:
        """Yield all combinations; ValueError for a range, which has no end of values."""
        for path, values in self.values.items():
            if isinstance(values, Range):
                raise ValueError(f"{path}: a grid takes lists; give values, or search at random or with optuna")
        for combination in product(*self.values.values()):  # type: ignore[arg-type]
            yield dict(zip(self.values, combination, strict=True))

    def draws(self, seed: int) -> Iterator[Point]:
        """Yield points drawn at random, the same for the same seed; of a grid each once, of ranges without end."""
        generator = np.random.Generator(np.random.Philox(seed))
        if self.is_grid:
            points = list(self.points())
            yield from (points[place] for place in generator.permutation(len(points)))
            return
        while True:
            shares = generator.random(len(self.values))
            yield {
                path: values.at(share) if isinstance(values, Range) else values[int(share * len(values))]
                for (path, values), share in zip(self.values.items(), shares, strict=True)
            }

    def recipe(self, base: Recipe, point: Point) -> Recipe:
        """Return a base recipe with a point's values; ValueError names a path that is not there."""
        if "k" in point:
            base = replace(base, depth=max(base.depth, point["k"]))
        for path in sorted(point, key=_turn):
            base = _with(base, path, path.split("."), point[path])
        return base if "depth" in point else replace(base, depth=self._depth(base))

    def _depth(self, recipe: Recipe) -> int:
        """Return the passages retrieved, enough for every k of the space, so that they share a retrieval."""
        ks = self.values.get("k")
        if self.depth or ks is None:
            return self.depth or recipe.depth
        return max(1, int(ks.high) if isinstance(ks, Range) else max(ks))

    def labels(self, point: Point) -> dict[str, Any]:
        """Return a point's values as tables show them and files keep them: numbers and words."""
        return {path: self._label(path, value) for path, value in point.items()}

    def _label(self, path: str, value: Any) -> Any:
        values = self.values[path]
        if isinstance(values, Range):
            return value
        short = [label_of(each) for each in values]
        own = label_of(value)
        return own if short.count(own) == 1 else shown(repr(value))  # two settings of one method, say

    def point(self, labels: Mapping[str, Any]) -> Point | None:
        """Return the point of some labels, None if it is not in the space."""
        found: dict[str, Any] = {}
        for path, values in self.values.items():
            wanted = labels.get(path)
            if isinstance(values, Range):
                own = [wanted] if isinstance(wanted, int | float) and values.low <= wanted <= values.high else []
            else:
                own = [value for value in values if self._label(path, value) == wanted]
            if not own:
                return None
            found[path] = own[0]
        return found if labels.keys() == self.values.keys() else None


def label_of(value: Any) -> Any:
    """Return a value as a table shows it: a number or a word; of an object its name, if that says all.

    A location that it holds is told without credentials: labels are kept in files.
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        return "+".join(str(label_of(each)) for each in value)
    name = getattr(value, "name", "")
    plain = isinstance(value, Method) or not is_dataclass(value) or value == _default(type(value))
    return name if name and plain else shown(repr(value))


def _turn(path: str) -> tuple[int, bool]:
    """Say when a path is set: a method before its settings, and steps, which scale a warm-up, before the warm-up."""
    return path.count("."), not path.endswith(".steps")


def _default(kind: type) -> Any:
    try:
        return kind()
    except TypeError:  # it has settings that must be given
        return None


def words_of(labels: Mapping[str, Any]) -> str:
    """Return a point in a line of words."""
    return ", ".join(f"{n} {value:g}" if isinstance(value, float) else f"{n} {value}" for n, value in labels.items())


def read_values(text: str) -> Sequence[Any] | Range:
    """Read values of a command line: "5,20", "bm25,random", or "1e-4..1e-2" and "1e-4..1e-2:log" for a range."""
    low, dots, high = text.partition("..")
    if not dots:
        return [_value(word) for word in text.split(",")]
    high, _, scale = high.partition(":")
    ends = _value(low), _value(high)
    if scale not in ("", "log") or not all(isinstance(end, int | float) for end in ends):
        raise ValueError(f"{text!r}: a range is LOW..HIGH or LOW..HIGH:log, both numbers")
    return Range(low=ends[0], high=ends[1], log=scale == "log")


def _value(word: str) -> Any:
    named = {"none": None, "true": True, "false": False}
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return named.get(word, word)


def _with(owner: Any, path: str, parts: Sequence[str], value: Any) -> Any:
    """Return a dataclass with the value at a path within it."""
    name, *rest = parts
    if not is_dataclass(owner) or isinstance(owner, type):
        raise ValueError(f"{path}: this recipe has {owner!r} there, which has no fields; vary the field before it")
    known = {field.name: field.type for field in fields(owner) if field.init}
    if name not in known:
        raise ValueError(f"{path}: a {type(owner).__name__} has no {name!r}; it has {', '.join(known)}")
    there = getattr(owner, name)
    new = _with(there, path, rest, value) if rest else _fitting(path, there, known[name], value)
    if isinstance(owner, Schedule) and name == "steps":
        return owner.of_steps(new)
    return replace(owner, **{name: new})


def _fitting(path: str, there: Any, kind: Any, value: Any) -> Any:
    """Return a value that may stand for another one; ValueError for a word or a fraction where none can be."""
    if isinstance(there, Method):
        return method_named(value)
    if isinstance(value, str) and not isinstance(there, str):
        instead = "such an object, in Python, or vary a field of it" if is_dataclass(there) else "a number"
        raise ValueError(f"{path} {value!r}: stands for {there!r}; give {instead}")
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{path} {value}: give a number")
    kinds = get_args(kind) or (kind,)
    if isinstance(value, bool) and bool not in kinds:
        raise ValueError(f"{path} {value}: stands for {there!r}; give a number")
    if isinstance(value, float) and int in kinds and float not in kinds:
        if not value.is_integer():
            raise ValueError(f"{path} {value:g}: stands for {there!r}; give whole numbers, as both ends of a range too")
        return int(value)
    return value
