"""Define a sweep's search space: paths of a recipe's fields, with lists or ranges of values."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import product
from typing import Any, get_args

import numpy as np

from tlm_ray.retrieval.methods import Method, method_named
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.storage import shown
from tlm_ray.training.loop.schedules import Schedule

Point = Mapping[str, Any]  # a value per path


@dataclass(frozen=True)
class Space:
    """A search space: paths of recipe fields ("k", "stage_one.steps", "method.b"), each with values to try.

    Values are a list, or what Ray Tune offers: `tune.grid_search([...])`, `tune.choice([...])`, `tune.uniform(...)`,
    `tune.loguniform(...)`, `tune.randint(...)` and the like.
    """

    values: Mapping[str, Any]
    """lists only, for a grid; methods by name or with settings, other parts (start, objectives) as objects"""
    depth: int = 0
    """passages retrieved per query, shared by all points; 0 for the largest k"""

    def __post_init__(self) -> None:
        for path, values in self.values.items():
            listed = _listed(values)
            if isinstance(values, str | bytes):
                raise ValueError(f"{path} {values!r}: is one value; give a list, such as [{values!r}]")
            if listed is not None and not listed:
                raise ValueError(f"{path}: give at least one value to try")
            if listed is None and not (hasattr(values, "sample") and hasattr(values, "lower")):
                raise ValueError(
                    f"{path} {values!r}: give a list of values, or a range of Ray Tune (tune.uniform, ...)"
                )
        if not self.values:
            raise ValueError("values: give at least one field of the recipe to vary, such as k")
        if self.depth and "depth" in self.values:
            raise ValueError(f"depth {self.depth}: has no effect, because its values are given; leave it out")

    @property
    def names(self) -> list[str]:
        """The paths."""
        return list(self.values)

    @property
    def lists(self) -> dict[str, Sequence[Any]]:
        """The paths with a list of values, and the list."""
        return {path: listed for path, values in self.values.items() if (listed := _listed(values)) is not None}

    @property
    def ranges(self) -> dict[str, bool]:
        """The paths with a range, and whether it is on a logarithmic scale, such as `tune.loguniform`."""
        from ray.tune.search.sample import LogUniform

        samplers = {path: own.sampler for path, own in self.values.items() if path not in self.lists}
        bare = {path: getattr(sampler, "sampler", sampler) for path, sampler in samplers.items()}  # of quantized ones
        return {path: isinstance(sampler, LogUniform) for path, sampler in bare.items()}

    @property
    def is_grid(self) -> bool:
        """Whether every path has a list of values."""
        return len(self.lists) == len(self.values)

    def points(self) -> Iterator[Point]:
        """Yield all combinations; ValueError for a range, which has unlimited values."""
        for path in self.values:
            if path not in self.lists:
                raise ValueError(f"{path}: a grid needs lists of values; give values, or use --search random or optuna")
        for combination in product(*self.lists.values()):
            yield dict(zip(self.values, combination, strict=True))

    def draws(self, seed: int) -> Iterator[Point]:
        """Yield random points, deterministic per seed: each once for a grid, without end for ranges."""
        generator = np.random.Generator(np.random.Philox(seed))
        if self.is_grid:
            points = list(self.points())
            yield from (points[place] for place in generator.permutation(len(points)))
            return
        lists = self.lists
        while True:
            yield {
                path: lists[path][int(generator.integers(len(lists[path])))]
                if path in lists
                else values.sample(random_state=generator)
                for path, values in self.values.items()
            }

    def as_tune(self) -> dict[str, Any]:
        """Return the space as Ray Tune's `param_space`; values of lists are their labels."""
        from ray import tune

        labelled = {path: tune.choice([self._label(path, value) for value in own]) for path, own in self.lists.items()}
        return {path: labelled.get(path, values) for path, values in self.values.items()}

    def recipe(self, base: Recipe, point: Point) -> Recipe:
        """Return a base recipe with a point's values; ValueError names an unknown path."""
        if "k" in point:
            base = replace(base, depth=max(base.depth, point["k"]))
        base = _with(base, point)
        return base if "depth" in point else replace(base, depth=self._depth(base))

    def _depth(self, recipe: Recipe) -> int:
        """Return the passages to retrieve, enough for every k of the space, so that all points share a retrieval."""
        if self.depth or "k" not in self.values:
            return self.depth or recipe.depth
        return max(1, max(self.lists["k"]) if "k" in self.lists else int(self.values["k"].upper))

    def labels(self, point: Point) -> dict[str, Any]:
        """Return a point's values for tables and files: numbers and words."""
        return {path: self._label(path, value) for path, value in point.items()}

    def _label(self, path: str, value: Any) -> Any:
        if path not in self.lists:
            return value
        short = [label_of(each) for each in self.lists[path]]
        own = label_of(value)
        return own if short.count(own) == 1 else shown(repr(value))  # such as two settings of one method

    def point(self, labels: Mapping[str, Any]) -> Point | None:
        """Return the point with these labels; None if it is not in the space."""
        found: dict[str, Any] = {}
        for path, values in self.values.items():
            wanted = labels.get(path)
            if path in self.lists:
                own = [value for value in self.lists[path] if self._label(path, value) == wanted]
            else:
                own = [wanted] if isinstance(wanted, int | float) and _is_within(values, wanted) else []
            if not own:
                return None
            found[path] = own[0]
        return found if labels.keys() == self.values.keys() else None


def _listed(values: Any) -> Sequence[Any] | None:
    """Return the values of a list, of `tune.grid_search` or of `tune.choice`; None for a range."""
    if isinstance(values, Mapping):
        return values.get("grid_search")
    return getattr(values, "categories", values if isinstance(values, Sequence) else None)


def _is_within(values: Any, wanted: float) -> bool:
    """Return whether a range has a value; a rounded one may lie above by the last bits, such as 3 * 0.1."""
    slack = 1e-9 * (values.upper - values.lower)
    return values.lower - slack <= wanted <= values.upper + slack


def label_of(value: Any) -> Any:
    """Return a value for tables: a number, a word, or an object's name if that identifies it.

    Credentials in locations are left out, because labels are written to files.
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


def _default(kind: type) -> Any:
    try:
        return kind()
    except TypeError:  # it has required settings
        return None


def words_of(labels: Mapping[str, Any]) -> str:
    """Return a point as a line of text."""
    return ", ".join(f"{n} {value:g}" if isinstance(value, float) else f"{n} {value}" for n, value in labels.items())


def read_values(text: str) -> Any:
    """Parse values of a command line: "5,20", "bm25,random", or a range "1e-4..1e-2" or "1e-4..1e-2:log".

    Ranges are those of Ray Tune: whole numbers if both ends are, and both ends included.
    """
    low, dots, high = text.partition("..")
    if not dots:
        return [_value(word) for word in text.split(",")]
    from ray import tune

    high, _, scale = high.partition(":")
    ends = _value(low), _value(high)
    if scale not in ("", "log") or not all(isinstance(end, int | float) for end in ends):
        raise ValueError(f"{text!r}: a range must be LOW..HIGH or LOW..HIGH:log, with two numbers")
    if not ends[0] < ends[1] or (scale and ends[0] <= 0):
        raise ValueError(f"{text!r}: LOW must be below HIGH, and above 0 on a log scale")
    if all(isinstance(end, int) for end in ends):
        return (tune.lograndint if scale else tune.randint)(ends[0], ends[1] + 1)
    return (tune.loguniform if scale else tune.uniform)(*ends)


def _value(word: str) -> Any:
    named = {"none": None, "true": True, "false": False}
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return named.get(word, word)


def _with(owner: Any, point: Point, above: str = "") -> Any:
    """Return a dataclass with the values at paths within it; all of its fields change at once, as it checks them so.

    above: the path of the dataclass itself, with a final dot.
    """
    inner: dict[str, dict[str, Any]] = {}
    for path, value in point.items():
        name, _, rest = path.partition(".")
        _check_path(owner, name, f"{above}{path}")
        inner.setdefault(name, {})[rest] = value
    kinds = {field.name: field.type for field in fields(owner)}
    new: dict[str, Any] = {}
    for name, below in inner.items():
        new[name] = getattr(owner, name)
        if "" in below:  # a method before its settings
            new[name] = _fitting(f"{above}{name}", new[name], kinds[name], below.pop(""))
        if below:
            new[name] = _with(new[name], below, f"{above}{name}.")
    if isinstance(owner, Schedule) and "steps" in new:
        owner = owner.of_steps(new["steps"])  # which scales the warm-up, unless that is given too
    return replace(owner, **new)


def _check_path(owner: Any, name: str, path: str) -> None:
    if not is_dataclass(owner) or isinstance(owner, type):
        raise ValueError(f"{path}: its parent is {owner!r} in this recipe, which has no fields; vary the parent")
    known = [field.name for field in fields(owner) if field.init]
    if name not in known:
        raise ValueError(f"{path}: a {type(owner).__name__} has no {name!r}; it has {', '.join(known)}")


def _fitting(path: str, there: Any, kind: Any, value: Any) -> Any:
    """Return a value checked against the one it replaces; ValueError for a word or fraction of the wrong type."""
    if isinstance(there, Method):
        return method_named(value)
    if isinstance(value, str) and not isinstance(there, str):
        instead = "such an object (in Python), or vary one of its fields" if is_dataclass(there) else "a number"
        raise ValueError(f"{path} {value!r}: would replace {there!r}; give {instead}")
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{path} {value}: give a number")
    kinds = get_args(kind) or (kind,)
    if isinstance(value, bool) and bool not in kinds:
        raise ValueError(f"{path} {value}: would replace {there!r}; give a number")
    if isinstance(value, float) and int in kinds and float not in kinds:
        if not value.is_integer():
            raise ValueError(f"{path} {value:g}: would replace {there!r}; give whole numbers, also as ends of a range")
        return int(value)
    return value
