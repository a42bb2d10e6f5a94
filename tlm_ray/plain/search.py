"""Search the settings of a linear model on dev: sets of features first, then learners on the best."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tlm_ray.corpus.labelled.marks import Marks, marks_of
from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.evaluation.predictions import decide, shares
from tlm_ray.evaluation.scores import Metric, score
from tlm_ray.plain.learners import Fitted, Learner
from tlm_ray.plain.linear_model import LinearModel, joined
from tlm_ray.plain.terms import Terms, Vocabulary, learn

WORDS = Terms(kind="words", longest=2)
CHARACTERS = Terms(kind="characters", shortest=2, longest=5, least_texts=2)
FEATURES = {
    "words 1-2": (WORDS,),
    "words 1-3": (replace(WORDS, longest=3, least_texts=2),),
    "plain words": (Terms(kind="plain words"),),
    "plain words 1-2": (Terms(kind="plain words", longest=2),),
    "characters 2-5": (CHARACTERS,),
    "words 1-2 + characters 2-5": (WORDS, CHARACTERS),
    "windows": (Terms(kind="windows", weighting="presence"),),
    "windows by TF-IDF": (Terms(kind="windows"),),
}
FINALISTS = 2  # sets of features that every learner is tried on
MOST_CHARACTERS = 40_000_000  # of training texts, whose runs of characters take 4 GB; imdb has 26 million
SHARPEST = 30.0  # largest factor of scores: margins of an SVM are about 1, and no dev set can resolve e^30


class Features(NamedTuple):
    """A set of features of a task's training and dev rows."""

    name: str
    """of FEATURES"""
    vocabularies: tuple[Vocabulary, ...]
    """of each of its kinds of terms"""
    train: Any
    """sparse (rows, terms)"""
    dev: Any
    """likewise"""


class Trial(NamedTuple):
    """One choice of settings and its result."""

    dev: float
    """score of the dev rows"""
    settings: dict[str, Any]
    """features, learner, C and weights"""
    features: Features
    """what was learnt from"""
    fitted: Fitted
    """the linear model"""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Tries settings on one task."""

    task: Task
    """which rows"""
    metric: str | Metric
    """metric of the dev score"""
    learnt: dict[Terms, tuple[Vocabulary, Any, Any] | None] = field(default_factory=dict)
    """terms of training texts, with their weights in train and dev; sets of features share them"""

    def best(
        self, names: Sequence[str], weights: Sequence[str], learners: Sequence[Learner], *, coarse: Learner
    ) -> Trial:
        """Return the best trial of all learners on the sets of features that are best with the coarse learner.

        ValueError if no set has a term.
        """
        small = [name for name in names if name not in self.left_out(names)]
        features = [each for each in map(self._features, small) if each is not None]
        if not features:
            raise ValueError(f"split train: no text has a term of {', '.join(names)}; fix the texts or --text")
        compared = [_best(self._trials(each, coarse, weights)) for each in features]
        finalists = sorted(compared, key=lambda trial: -trial.dev)[:FINALISTS]
        return _best(
            trial
            for each in finalists
            for learner in learners
            for trial in self._trials(each.features, learner, [each.settings["weights"]])
        )

    def left_out(self, names: Sequence[str]) -> list[str]:
        """Return the sets of features that are too large for this much text, if others remain."""
        is_large = sum(map(len, self.task.train_texts)) > MOST_CHARACTERS
        found = [name for name in names if is_large and CHARACTERS in FEATURES[name]]
        return found if len(found) < len(names) else []

    def model(self, trial: Trial) -> LinearModel:
        """Return a trial's model, its scores scaled to log odds with the least cross-entropy on dev."""
        factor = 1.0
        if self.task.labels:
            factor = sharpness(self._labels["dev"], trial.fitted.scores(trial.features.dev, is_number=False))
        fitted = Fitted(factor * trial.fitted.weights, factor * trial.fitted.bias)
        return LinearModel(vocabularies=trial.features.vocabularies, fitted=fitted, labels=self.task.labels)

    def _trials(self, features: Features, learner: Learner, weightings: Sequence[str]) -> Iterator[Trial]:
        """Yield a learner's strengths with each class weight."""
        for weights in weightings:
            for strength in learner.strengths:
                fitted = learner.fit(features.train, self._labels["train"], strength=strength, weights=weights)
                logits = fitted.scores(features.dev, is_number=not self.task.labels)
                settings = {"features": features.name, "learner": learner.name, "C": strength, "weights": weights}
                yield Trial(score(self.metric, self._labels["dev"], decide(logits)), settings, features, fitted)

    def _features(self, name: str) -> Features | None:
        """Return a set of features, without kinds that no training text has; None if none is left."""
        kinds = [replace(kind, marks=self._marks) if kind.kind == "windows" else kind for kind in FEATURES[name]]
        found = [each for each in map(self._learn, kinds) if each is not None]
        if not found:
            return None
        vocabularies, train, dev = zip(*found, strict=True)
        return Features(name, vocabularies, joined(train), joined(dev))

    def _learn(self, kind: Terms) -> tuple[Vocabulary, Any, Any] | None:
        if kind not in self.learnt:
            own = learn(kind, self.task.train_texts)
            self.learnt[kind] = own and (*own, own[0].rows(self.task.texts("dev")))
        return self.learnt[kind]

    @cached_property
    def _labels(self) -> dict[str, np.ndarray]:
        return {split: self.task.splits[split]["label"].to_numpy() for split in ("train", "dev")}

    @cached_property
    def _marks(self) -> Marks:
        found = marks_of(self.task.train_texts)
        if found is None:
            raise ValueError(
                "split train: no two kinds of brackets mark a span each in 95 % of the texts; take TfIdf()"
            )
        return found


def _best(trials: Iterable[Trial]) -> Trial:
    return max(trials, key=lambda trial: trial.dev)  # the first of equals


def sharpness(gold: np.ndarray, logits: np.ndarray) -> float:
    """Return the factor of logits, (rows, classes), with the least cross-entropy on labelled rows."""
    from scipy.optimize import minimize_scalar

    def loss(log_factor: float) -> float:
        said = shares(np.exp(log_factor) * logits)[np.arange(len(gold)), gold]
        return float(-np.log(np.maximum(said, np.finfo(float).tiny)).mean())

    bounds = (-np.log(SHARPEST), np.log(SHARPEST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
