"""Which trials a sweep trains, and in which order: a list of points, successive halving, or Optuna's suggestions."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.markup import escape

from tlm_ray.console import console
from tlm_ray.runs.recipes.space import Point, Range, Space, words_of

Search = Literal["grid", "random", "asha", "optuna"]
RUNGS = 3  # of successive halving: a ninth of the steps, a third, all of them
KEPT_OF = 3  # one in three trials goes on to the next rung, whose trainings take three times as many steps
DRAWN_FIRST = 3  # the share of Optuna's trials, one in three, that are drawn at random before it learns of them
ATTEMPTS = 100  # suggestions asked for in vain, all of them trained already, before Optuna is done


@dataclass(frozen=True)
class Chosen:
    """A point to train."""

    point: Point
    """its values"""
    share: float = 1.0
    """of the steps of both stages that it is trained for"""


class Searcher(ABC):
    """Chooses what is trained next, told how it went."""

    @abstractmethod
    def next(self) -> Chosen | None:
        """Return what to train now; None: nothing more, or nothing before another has ended."""

    def tell(self, chosen: Chosen, dev: float | None) -> None:  # noqa: B027 - a list need not know
        """Take note of a score in percent, None for a training that failed."""


class Listed(Searcher):
    """Points in their order."""

    def __init__(self, points: Iterable[Point]):
        self.points = iter(points)

    def next(self) -> Chosen | None:
        """Return the next point."""
        point = next(self.points, None)
        return None if point is None else Chosen(point)


class Halving(Searcher):
    """Asynchronous successive halving (Li et al. 2020) over a list of points.

    All points are trained for a small share of the steps, with schedules of their own that fall to 0 there; the best
    third for three times as many, and so on to the whole. When no point is left to begin with, each goes on as soon as
    it is among the best third of those that have ended at its rung, so that no worker waits.
    """

    def __init__(self, points: Sequence[Point]):
        self.points = points
        self.shares = [KEPT_OF ** (rung - RUNGS + 1) for rung in range(RUNGS)]
        self.begun: list[list[int]] = [[] for _ in self.shares]  # points by their place in the list, a list a rung
        self.ended: list[dict[int, float | None]] = [{} for _ in self.shares]

    def next(self) -> Chosen | None:
        """Return the next point of the lowest rung, or one that may go on."""
        if len(self.begun[0]) < len(self.points):
            return self._begin(len(self.begun[0]), 0)
        for rung in range(RUNGS - 1):
            for place in self._best(rung):
                if place not in self.begun[rung + 1]:
                    return self._begin(place, rung + 1)
        return None

    def _begin(self, place: int, rung: int) -> Chosen:
        self.begun[rung].append(place)
        return Chosen(self.points[place], self.shares[rung])

    def _best(self, rung: int) -> list[int]:
        """Return the points that may leave a rung, the best first: one at least, once all have ended."""
        ended = self.ended[rung]
        all_ended = all(len(self.ended[each]) == len(self.begun[each]) for each in range(rung + 1))
        ranked = sorted((p for p in ended if ended[p] is not None), key=lambda p: -(ended[p] or 0.0))
        return ranked[: max(len(ended) // KEPT_OF, int(all_ended))]

    def tell(self, chosen: Chosen, dev: float | None) -> None:
        """Take note of a point's score at its rung."""
        place = next(place for place, point in enumerate(self.points) if point is chosen.point)
        self.ended[self.shares.index(chosen.share)][place] = dev


class Suggested(Searcher):
    """What Optuna's tree of Parzen estimators suggests, through Ray Tune.

    known: points with their scores, told to it. first: points to train before it suggests any. count: points in all,
    `first` among them. key: what is the same for points that come to the same training; none is trained twice.
    """

    def __init__(
        self,
        space: Space,
        *,
        count: int,
        seed: int,
        key: Any,
        known: Sequence[tuple[Point, float]] = (),
        first: Sequence[Point] = (),
    ):
        self.space, self.left, self.key, self.first = space, count, key, list(first)
        self.tune = _optuna(space, seed=seed + len(known), drawn=max(1, count // DRAWN_FIRST))
        self.asked = 0
        self.said: set[str] = set()
        self.scores: dict[Any, float | None] = {}
        self.names: dict[Any, str] = {}  # Tune's, of the points that it suggested
        for point, dev in known:
            self.scores[key(point)] = dev
            self.tune.add_evaluated_point(_numbers(space, point), dev)

    def next(self) -> Chosen | None:
        """Return a point that was begun before, or a suggestion that is new."""
        if self.left <= 0:
            return None
        point = self.first.pop(0) if self.first else self._new()
        if point is None:
            return None
        self.left -= 1
        self.scores.setdefault(self.key(point), None)
        return Chosen(point)

    def _new(self) -> Point | None:
        """Ask for a point that was not trained; of those that were, Optuna is told again what it knows."""
        for _ in range(ATTEMPTS):
            self.asked += 1
            name = str(self.asked)
            suggested = self.tune.suggest(name)
            point = _point(self.space, suggested)
            key = self._trainable(point)
            if key is None:
                # Pruned without a number, it ranks below every score. Of errors Optuna learns nothing: where half of a
                # range was refused it found 6 points of 20 before its attempts were spent, pruned all 20
                self.tune.on_trial_complete(name)
                continue
            if key not in self.scores:
                self.names[key] = name
                return point
            dev = self.scores[key]
            self.tune.on_trial_complete(name, {"dev": dev} if dev is not None else None, error=dev is None)
        known = {None, *self.scores}
        return next((p for p in self._left_of_grid() if self._trainable(p) not in known), None)

    def _trainable(self, point: Point) -> Any:
        """Return a point's key; None, and a line once, for values that do not go together, such as a long warm-up."""
        try:
            return self.key(point)
        except ValueError as error:
            line = f"no trial of {words_of(self.space.labels(point))}: {error}"
            if line not in self.said:
                self.said.add(line)
                console.print(escape(line))
            return None

    def _left_of_grid(self) -> Iterable[Point]:
        return self.space.draws(0) if self.space.is_grid else ()

    def tell(self, chosen: Chosen, dev: float | None) -> None:
        """Tell Optuna a score."""
        key = self.key(chosen.point)
        self.scores[key] = dev
        if name := self.names.get(key):
            self.tune.on_trial_complete(name, {"dev": dev} if dev is not None else None, error=dev is None)
        elif dev is not None:
            self.tune.add_evaluated_point(_numbers(self.space, chosen.point), dev)


def _optuna(space: Space, *, seed: int, drawn: int) -> Any:
    """Return Ray Tune's searcher of a space; a list is searched by the places of its values."""
    import optuna  # here, because a grid needs neither
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("ray.tune.search.optuna").setLevel(logging.WARNING)
    kinds: dict[str, Any] = {}
    for path, values in space.values.items():
        if not isinstance(values, Range):
            ordered = all(isinstance(value, int | float) for value in values)
            places = range(len(values))
            kinds[path] = (
                optuna.distributions.IntDistribution(0, len(values) - 1)
                if ordered
                else optuna.distributions.CategoricalDistribution(list(places))
            )
        elif values.whole:
            kinds[path] = optuna.distributions.IntDistribution(int(values.low), int(values.high), log=values.log)
        else:
            kinds[path] = optuna.distributions.FloatDistribution(values.low, values.high, log=values.log)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=drawn)
    return OptunaSearch(kinds, metric="dev", mode="max", sampler=sampler)


def _point(space: Space, suggested: Mapping[str, Any]) -> Point:
    return {
        path: suggested[path] if isinstance(values, Range) else values[suggested[path]]
        for path, values in space.values.items()
    }


def _numbers(space: Space, point: Point) -> dict[str, Any]:
    """Return a point as Optuna knows it."""
    return {
        path: point[path] if isinstance(values, Range) else list(values).index(point[path])
        for path, values in space.values.items()
    }
