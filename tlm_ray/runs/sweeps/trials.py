"""Trials of a sweep: points of a space, trained on every task and seed, with their scores and costs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tlm_ray.corpus.hub import short_name
from tlm_ray.report import interval_of
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.outcome import Outcome
from tlm_ray.runs.planning.estimates import stage_seconds
from tlm_ray.runs.planning.plan import worker_hours
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.recipes.space import Point, Space, words_of
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage, Stages
from tlm_ray.runs.sweeps.searches import Chosen

if TYPE_CHECKING:
    from tlm_ray.runs.tracking.tracker import Tracker

REPEATED = 1_000  # consecutive duplicate draws after which a space counts as exhausted


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A point with its trainings on each task and seed."""

    chosen: Chosen
    """the point, and the share of the steps"""
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
        return _words(self.labels, self.chosen)

    def is_done(self, root: str) -> bool:
        """Return whether all its trainings are complete."""
        return all(stage.record(root) is not None for stage in self.lasts)


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

    def recipe(self, task: str, chosen: Chosen) -> Recipe:
        """Return a point's recipe for a task."""
        recipe = self.fit(self.space.recipe(self.bases[task], chosen.point), task)
        if chosen.share == 1:
            return recipe
        one = None if recipe.stage_one is None else recipe.stage_one.cut_to(chosen.share)
        return replace(recipe, stage_one=one, stage_two=recipe.stage_two.cut_to(chosen.share))

    def trial(self, chosen: Chosen) -> Trial:
        """Return a point's trial."""
        labels, stages = self.space.labels(chosen.point), {}
        row = _words(labels, chosen)
        for task in self.bases:
            recipe = self.recipe(task, chosen)
            for seed in range(self.seeds):
                training = Training(row=row, task=task, recipe=recipe, seed=seed)
                stages[training] = self.flow.stages(recipe, task, seed)
        return Trial(chosen=chosen, labels=labels, stages=stages)

    def key(self, point: Point) -> tuple[str, ...]:
        """Return a key that is equal for points with the same trainings."""
        return self.trial(Chosen(point)).key

    def distinct(self, points: Iterable[Point]) -> Iterator[Point]:
        """Yield points without duplicate trainings, until the space seems exhausted."""
        seen: set[tuple[str, ...]] = set()
        in_vain = 0
        for point in points:
            in_vain = in_vain + 1 if (key := self.key(point)) in seen else 0
            if in_vain > REPEATED:
                return
            if not in_vain:
                seen.add(key)
                yield point

    def result(self, trial: Trial, tracker: "Tracker") -> dict[str, Any]:
        """Return a finished trial for tables: values, dev, its 95 % interval over seeds, and the mean per task."""
        outcome = Outcome(
            name=trial.words,
            stages=trial.stages,
            records=tracker.records,
            tracker=tracker,
            metric=self.flow.metric,
            is_tested=False,
        )
        scores: dict[str, list[float]] = {task: [] for task in self.bases}
        for training in trial.stages:
            scores[training.task].append(outcome.facts(training)["dev"])
        over_seeds = [fmean(each) for each in zip(*scores.values(), strict=True)]
        interval = interval_of(over_seeds)
        ends = {} if interval is None else {"low": interval[0], "high": interval[1]}
        tasks = {short_name(task): fmean(own) for task, own in scores.items()} if len(scores) > 1 else {}
        return {**trial.labels, "dev": fmean(over_seeds), **ends, **tasks}

    def hours(self, trials: Iterable[Trial]) -> float:
        """Return the GPU or CPU hours of some trials' trainings, as recorded, else as estimated by the plan."""
        run = self.flow.execution
        seconds: dict[str, float] = {}
        there = Records(run.root)
        for trial in trials:
            records = {stage.fingerprint: there.of(stage) for stage in trial.trained}
            known = {name: record["seconds"] for name, record in records.items() if record}
            is_known = len(known) == len(records)
            expected = {} if is_known else stage_seconds(trial.trained, there, run.compute, assumed=True)
            if unknown := records.keys() - known.keys() - expected.keys():
                raise ValueError(
                    f"trial {trial.words}: the duration of {len(unknown)} of its trainings is unknown; "
                    "give --trials instead"
                )
            seconds |= {name: known.get(name, expected.get(name, 0.0)) for name in records}
        return worker_hours(sum(seconds.values()), run.compute)


def _words(labels: Mapping[str, Any], chosen: Chosen) -> str:
    return words_of(labels) + ("" if chosen.share == 1 else f", {chosen.share:.2g} of the steps")
