"""Ray Tune's searchers and schedulers by name, and no training twice."""

import logging
from collections.abc import Sequence
from typing import Any, Literal

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler
from ray.tune.search import BasicVariantGenerator, Searcher
from ray.tune.search.optuna import OptunaSearch
from rich.markup import escape

from tlm_ray.console import console
from tlm_ray.runs.sweeps.trials import Trials

Search = Literal["grid", "random", "optuna"]
"""How trials are chosen: every combination, random ones, or those that Optuna's TPE suggests."""
Scheduler = Literal["none", "asha", "median", "halving"]
"""Which trials end early, by their scores on dev: none, or those that ASHA, the median rule or halving stops."""
EVALUATION = "evaluation"  # what a trial reports of its progress: its evaluations on dev so far
REDUCTION = 3  # ASHA's first rung is a ninth of a trial, its second a third; one in three goes on
DRAWN_FIRST = 3  # the share of Optuna's trials, one in three, drawn at random before TPE
ATTEMPTS = 100  # suggestions in a row without a new training, after which a search ends


def scheduler_named(name: Scheduler | TrialScheduler, evaluations: int) -> TrialScheduler:
    """Return Ray Tune's scheduler of a name, for trials of at most so many evaluations, or the one given.

    The last report has the number `evaluations + 1` and comes after the result is recorded: a scheduler ends a trial
    within the report that reaches `max_t`.
    """
    if not isinstance(name, str):
        return name
    first = max(1, evaluations // REDUCTION**2)
    if name == "asha":
        return ASHAScheduler(
            time_attr=EVALUATION, max_t=evaluations + 1, grace_period=first, reduction_factor=REDUCTION
        )
    if name == "median":
        return MedianStoppingRule(time_attr=EVALUATION, grace_period=first, min_samples_required=REDUCTION)
    return FIFOScheduler()


def listed(points: Sequence[dict[str, Any]]) -> BasicVariantGenerator:
    """Return a searcher of some points, given by their labels."""
    return BasicVariantGenerator(points_to_evaluate=list(points))


def optuna_search(*, seed: int, trials: int, known: Sequence[tuple[dict[str, Any], float]]) -> OptunaSearch:
    """Return Optuna's tree of Parzen estimators; known: points by their labels, with their scores."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("ray.tune.search.optuna").setLevel(logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed + len(known), n_startup_trials=max(1, trials // DRAWN_FIRST))
    told: dict[str, Any] = {}
    if known:
        told = {"points_to_evaluate": [p for p, _ in known], "evaluated_rewards": [dev for _, dev in known]}
    return OptunaSearch(metric="dev", mode="max", sampler=sampler, **told)


class Distinct(Searcher):
    """Another searcher's suggestions, without points that come to a training that was suggested before.

    first: points by their labels, suggested before all others. Of a repeated training the searcher is told the score
    again; a point that cannot be trained is pruned, without a number: any number may be a good score of a metric whose
    scores go below 0.
    """

    def __init__(self, searcher: Searcher, trials: Trials, *, known: dict[Any, float], first: Sequence[dict] = ()):
        super().__init__(metric="dev", mode="max")
        self.searcher, self.trials, self.first = searcher, trials, list(first)
        self.scores: dict[Any, float | None] = dict(known)
        self.names: dict[str, tuple[str, Any]] = {}  # of suggestions, by Tune's ids of trials
        self.said: set[str] = set()

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Pass the space on."""
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Any:
        """Return a point that is new, None if there is none now, or FINISHED after ATTEMPTS in vain."""
        if self.first:
            return self._new(trial_id, "", self.first.pop(0))
        for attempt in range(ATTEMPTS):
            name = f"{trial_id}-{attempt}"
            point = self.searcher.suggest(name)
            if point is None or point == Searcher.FINISHED:
                return point
            key = self._key(point)
            if key is None:
                self.searcher.on_trial_complete(name)
            elif key in self.scores:
                self._tell(name, self.scores[key])
            else:
                return self._new(trial_id, name, point)
        left = self._left_of_grid()
        return Searcher.FINISHED if left is None else self._new(trial_id, "", left)

    def _new(self, trial_id: str, name: str, point: dict[str, Any]) -> dict[str, Any]:
        key = self._key(point)
        self.scores.setdefault(key, None)
        self.names[trial_id] = name, key
        return point

    def _left_of_grid(self) -> dict[str, Any] | None:
        """Return a point that is not trained yet, of a space of lists."""
        space = self.trials.space
        labels = (space.labels(point) for point in (space.draws(0) if space.is_grid else ()))
        return next((point for point in labels if self._key(point) not in {None, *self.scores}), None)

    def _key(self, labels: dict[str, Any]) -> Any:
        """Return a point's key; None, and a line once, for values that do not go together, such as a long warm-up."""
        point = self.trials.space.point(labels)
        assert point is not None, f"{labels} is of another space"
        try:
            return self.trials.key_of(point)
        except ValueError as error:
            line = f"no trial of {labels}: {error}"
            if line not in self.said:
                self.said.add(line)
                console.print(escape(line))
            return None

    def _tell(self, name: str, dev: float | None) -> None:
        self.searcher.on_trial_complete(name, {"dev": dev} if dev is not None else None, error=dev is None)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Pass an evaluation on."""
        if name := self.names[trial_id][0]:
            self.searcher.on_trial_result(name, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the searcher a score."""
        name, key = self.names[trial_id]
        self.scores[key] = dev = None if error or not result or not is_number(result.get("dev")) else result["dev"]
        if name:
            self._tell(name, dev)

    def get_state(self) -> dict[str, Any]:
        """Return nothing to keep: stages are the state of a sweep."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take nothing over."""

    def save(self, checkpoint_path: str) -> None:
        """Save nothing."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""


def is_number(value: Any) -> bool:
    """Return whether a score is a number; a trial that failed reports NaN."""
    return isinstance(value, int | float) and value == value
