"""Trials of a sweep: points of a space, trained on every task and seed, with their scores and costs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.report import interval_of
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.recipes.space import Point, Space, words_of
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import DIGITS, Stage, Stages, fingerprint_of

REPEATED = 1_000  # consecutive duplicate or impossible draws after which a space counts as exhausted


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A point with its trainings on each task and seed."""

    point: Point
    """a value per varied path"""
    share: float = 1.0
    """of the steps of both stages that it is trained for"""
    own: bool = True
    """whether its sweep chose it; else another job trained it, and a searcher is told"""
    labels: Mapping[str, Any]
    """its values as shown in tables"""
    stages: Mapping[Training, Stages]
    """the stages of each training"""

    @cached_property
    def lasts(self) -> list[Stage]:
        """The last stage of each training, which has the dev score."""
        return [stages.last for stages in self.stages.values()]

    @cached_property
    def key(self) -> tuple[str, ...]:
        """A key that is equal for points with the same trainings."""
        return tuple(stage.fingerprint for stage in self.lasts)

    @property
    def trained(self) -> list[Stage]:
        """The training stages."""
        return [stage for stages in self.stages.values() for stage in stages.trained]

    @property
    def steps(self) -> int:
        """The optimizer steps of all its trainings."""
        return sum(stage.parameters["schedule"].steps for stage in self.trained)

    @property
    def words(self) -> str:
        """The point as a line of text."""
        return _words(self.labels, self.share)

    @property
    def evaluations(self) -> int:
        """How often its trainings are scored on dev."""
        schedules = [stage.parameters["schedule"] for stage in self.trained]
        return sum(-(-schedule.steps // schedule.evaluate_every) for schedule in schedules)

    @property
    def tasks(self) -> list[str]:
        """The short names of its tasks."""
        return list(dict.fromkeys(short_name(training.task) for training in self.stages))

    def is_done(self, records: Records) -> bool:
        """Return whether all its trainings are complete."""
        return all(records.of(stage) is not None for stage in self.lasts)


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The settings that all trials of a sweep share; turns points into trials and reads their scores."""

    space: Space
    """the search space"""
    bases: Mapping[str, Recipe]
    """base recipe per task"""
    flow: Flow
    """the flow that makes their stages"""
    seeds: int = 1
    """trainings per trial and task, seeds 0, 1, ..."""
    fit: Callable[[Recipe, str], Recipe] = lambda recipe, task: recipe
    """final change to each recipe, such as shortening it to the budget"""

    def recipe(self, task: str, point: Point, share: float = 1.0) -> Recipe:
        """Return a point's recipe for a task, trained for a share of its steps."""
        recipe = self.fit(self.space.recipe(self.bases[task], point), task)
        if share == 1:
            return recipe
        one = None if recipe.stage_one is None else recipe.stage_one.cut_to(share)
        return replace(recipe, stage_one=one, stage_two=recipe.stage_two.cut_to(share))

    def trial(self, point: Point, share: float = 1.0) -> Trial:
        """Return a point's trial."""
        labels, stages = self.space.labels(point), {}
        row = _words(labels, share)
        for task in self.bases:
            recipe = self.recipe(task, point, share)
            for seed in range(self.seeds):
                training = Training(row=row, task=task, recipe=recipe, seed=seed)
                stages[training] = self.flow.stages(recipe, task, seed)
        return Trial(point=point, share=share, labels=labels, stages=stages)

    def key_of(self, point: Point) -> tuple[str, ...]:
        """Return a key that is equal for points with the same trainings."""
        return self.trial(point).key

    def refusal_of(self, point: Point) -> ValueError | None:
        """Return why a point cannot be trained, such as a warm-up longer than its steps; None if it can."""
        try:
            self.key_of(point)
        except ValueError as error:
            return error
        return None

    def possible(self, points: Iterable[Point]) -> Iterator[Point]:
        """Yield the points that can be trained, until many in a row cannot; ValueError if none can."""
        refusals: list[ValueError] = []  # in a row
        found = False
        for point in points:
            if (refusal := self.refusal_of(point)) is None:
                found, refusals = True, []
                yield point
            elif len(refusals) < REPEATED:
                refusals.append(refusal)
            else:
                break
        if refusals and not found:
            raise refusals[0]

    def distinct(self, points: Iterable[Point]) -> Iterator[Point]:
        """Yield points without duplicate trainings, until the space seems exhausted."""
        seen: set[tuple[str, ...]] = set()
        in_vain = 0
        for point in points:
            in_vain = in_vain + 1 if (key := self.key_of(point)) in seen else 0
            if in_vain > REPEATED:
                return
            if not in_vain:
                seen.add(key)
                yield point

    @property
    def key(self) -> str:
        """A key of the sweep: of its space, its seeds, and all that a training of each base recipe depends on."""
        values = {
            path: [self.space.labels({path: value})[path] for value in self.space.lists[path]]
            if path in self.space.lists
            else f"{type(own).__name__} {own.domain_str} {own.sampler or ''}"
            for path, own in self.space.values.items()
        }
        trainings = {
            task: self.flow.stages(self.fit(base, task), task, 0).metrics.fingerprint
            for task, base in self.bases.items()
        }
        depth = {"depth": self.space.depth} if self.space.depth else {}  # without one a sweep keeps its former key
        return fingerprint_of({"values": values, "trainings": trainings, "seeds": self.seeds} | depth)[:DIGITS]

    def score(self, trial: Trial, records: Records) -> dict[str, Any]:
        """Return a finished trial's dev, its 95 % interval over seeds, and the mean per task."""
        scores: dict[str, list[float]] = {task: [] for task in self.bases}
        for training, stages in trial.stages.items():
            facts = records.facts(stages.last)
            scores[training.task].append(facts.get("dev", facts["history"][-1].get("dev")))
        over_seeds = [fmean(each) for each in zip(*scores.values(), strict=True)]
        interval = interval_of(over_seeds)
        ends = {} if interval is None else {"low": interval[0], "high": interval[1]}
        tasks = {short_name(task): fmean(own) for task, own in scores.items()} if len(scores) > 1 else {}
        return {"dev": fmean(over_seeds), **ends, **tasks}


def _words(labels: Mapping[str, Any], share: float) -> str:
    return words_of(labels) + ("" if share == 1 else f", {share:.2g} of the steps")
