"""Search the settings of a linear model by cross-validation: sets of features first, then learners on the best."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np

from tlm_ray.corpus.labelled.marks import Marks, marks_of
from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.evaluation.predictions import decide, shares
from tlm_ray.evaluation.scores import Metric, score
from tlm_ray.plain.features import Features, Texts
from tlm_ray.plain.folds import Fold, folds_of
from tlm_ray.plain.learners import Fitted, Learner
from tlm_ray.plain.linear_model import LinearModel

FINALISTS = 2  # sets of features that every learner is tried on
SHARPEST = 30.0  # largest factor of scores: margins of an SVM are about 1, and no dev set can resolve e^30


class Setting(NamedTuple):
    """One choice of settings."""

    features: str
    """of FEATURES"""
    learner: Learner
    strength: float
    """C, the inverse of the regularisation"""
    weights: str
    """class weights, none or balanced"""

    @property
    def told(self) -> dict[str, Any]:
        """The settings by name, for a record."""
        return {"features": self.features, "learner": self.learner.name, "C": self.strength, "weights": self.weights}


@dataclass(frozen=True, kw_only=True)
class Search:
    """Tries settings on one task."""

    task: Task
    """which rows"""
    metric: str | Metric
    """metric of the held-out rows of all folds together"""

    @cached_property
    def folds(self) -> list[Fold]:
        """The folds that settings are compared on."""
        return folds_of(self.task)

    @cached_property
    def marks(self) -> Marks | None:
        """The brackets of two spans that nearly all training texts mark."""
        return marks_of(self.task.train_texts)

    def best(
        self, names: Sequence[str], weights: Sequence[str], learners: Sequence[Learner], *, coarse: Learner
    ) -> tuple[Setting, float]:
        """Return the best setting and its score: all learners on the sets that are best with the coarse learner.

        Of equals the first is taken. ValueError if no set has a term.
        """
        compared = self.scores([each for name in names for each in _grid(name, [coarse], weights)])
        of_sets = [_best({each: compared[each] for each in own}) for _, own in groupby(compared, _features)]
        ranked = sorted(of_sets, key=lambda setting: -compared[setting])
        finalists = list(islice((each for each in ranked if self._of_train(each.features)), FINALISTS))
        if not finalists:
            raise ValueError(f"split train: no text has a term of {', '.join(names)}; fix the texts or --text")
        tried = [each for final in finalists for each in _grid(final.features, learners, [final.weights])]
        scores = self.scores(tried)
        best = _best(scores)
        return best, scores[best]

    def scores(self, settings: Sequence[Setting]) -> dict[Setting, float]:
        """Return the score of each setting on all held-out rows; none for features that a fold has no term of."""
        said: dict[Setting, list[np.ndarray]] = {setting: [] for setting in settings}
        for fold in self.folds:
            texts = Texts(learned=fold.texts, held=fold.held_texts, marks=self.marks)
            for name, own in groupby(settings, _features):
                if (features := texts.features(name)) is None:
                    continue
                for setting in own:
                    fitted = setting.learner.fit(
                        features.learned, fold.labels, strength=setting.strength, weights=setting.weights
                    )
                    said[setting].append(fitted.scores(features.held, is_number=not self.task.labels))
        gold = np.concatenate([fold.held_labels for fold in self.folds])
        return {
            setting: score(self.metric, gold, decide(np.concatenate(rows)))
            for setting, rows in said.items()
            if len(rows) == len(self.folds)
        }

    def fitted(self, setting: Setting) -> tuple[LinearModel, np.ndarray]:
        """Return a setting's model, fitted on train, and its logits of dev.

        One factor scales its scores to log odds, with the least cross-entropy on dev.
        """
        dev, labels = self.task.splits["dev"]["label"].to_numpy(), self.task.splits["train"]["label"].to_numpy()
        features = self._of_train(setting.features)
        assert features is not None, "train has terms of the finalists"
        raw = setting.learner.fit(features.learned, labels, strength=setting.strength, weights=setting.weights)
        factor = sharpness(dev, raw.scores(features.held, is_number=False)) if self.task.labels else 1.0
        fitted = Fitted(factor * raw.weights, factor * raw.bias)
        model = LinearModel(vocabularies=features.vocabularies, fitted=fitted, labels=self.task.labels)
        return model, fitted.scores(features.held, is_number=not self.task.labels)

    def _of_train(self, name: str) -> Features | None:
        """Return a set of features of train and dev; learned anew each time, because characters may take 4 GB."""
        return Texts(learned=self.task.train_texts, held=self.task.texts("dev"), marks=self.marks).features(name)


def _grid(name: str, learners: Sequence[Learner], weights: Sequence[str]) -> Iterable[Setting]:
    return (
        Setting(name, learner, strength, each)
        for learner in learners
        for each in weights
        for strength in learner.strengths
    )


def _features(setting: Setting) -> str:
    return setting.features


def _best(scores: dict[Setting, float]) -> Setting:
    return max(scores, key=lambda setting: scores[setting])  # the first of equals


def sharpness(gold: np.ndarray, logits: np.ndarray) -> float:
    """Return the factor of logits, (rows, classes), with the least cross-entropy on labelled rows."""
    from scipy.optimize import minimize_scalar

    def loss(log_factor: float) -> float:
        said = shares(np.exp(log_factor) * logits)[np.arange(len(gold)), gold]
        return float(-np.log(np.maximum(said, np.finfo(float).tiny)).mean())

    bounds = (-np.log(SHARPEST), np.log(SHARPEST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
