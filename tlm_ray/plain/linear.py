"""Fit linear baselines on terms of texts (scikit-learn)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tlm_ray.corpus.labelled.marks import marks_of
from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.evaluation.scores import Metric
from tlm_ray.plain.classifier import PlainClassifier, Predicted
from tlm_ray.plain.features import FEATURES, too_large
from tlm_ray.plain.learners import Learner, Logistic, NbSvm, Ridge, Svm
from tlm_ray.plain.search import Search

COARSE = (0.1, 1.0)  # strengths by which sets of features are compared


@dataclass(frozen=True, kw_only=True)
class Linear(PlainClassifier):
    """A linear model whose features, learner, strength and class weights are chosen by cross-validation.

    First a linear SVM (ridge for a regression task) of two strengths and both class weights is tried on every set of
    features. The two best sets, each with its best class weights, are then tried with every learner and strength. Ties
    take the first. The folds are of train and dev together, because a small dev set alone chose worse: 87.0 instead of
    90.5 on amazon_mds (600 dev rows). Dev alone chooses if it has 2,000 rows, or a class has fewer texts than folds.

    The model is fitted on train. One factor turns the scores into log odds (Guo et al. 2017) and changes no prediction.
    It is fitted on dev, since training rows that share a sentence would make it overconfident. Character n-grams are
    skipped if they take over 4 GB. Both sides of a pair are one text.
    """

    features: tuple[str, ...]
    """sets of features to try, of FEATURES"""
    learners: tuple[Learner, ...] = (Logistic(), Svm(), NbSvm())
    """linear models to try"""
    numbers: tuple[Learner, ...] = (Ridge(),)
    """linear models to try for a regression"""
    weights: tuple[str, ...] = ("none", "balanced")
    """class weights to try: none, or balanced (equal for all classes); unused by a regression"""

    def __post_init__(self) -> None:
        if not (self.features and self.learners and self.numbers and self.weights):
            raise ValueError(f"{type(self).__name__}: give features, learners and weights to try")
        if unknown := [name for name in self.features if name not in FEATURES]:
            raise ValueError(f"features {unknown[0]!r}: allowed are {', '.join(map(repr, FEATURES))}")

    def predict(self, task: Task, metric: str | Metric) -> Predicted:
        """Fit on the training rows; ValueError if no training text has a term."""
        search = Search(task=task, metric=metric)
        coarse: Learner = Svm(strengths=COARSE) if task.labels else Ridge(strengths=COARSE)
        learners, weights = (self.learners, self.weights) if task.labels else (self.numbers, ("none",))
        left_out = too_large(self.features, task.train_texts)
        tried = [name for name in self.features if name not in left_out]
        best, found = search.best(tried, weights, learners, coarse=coarse)
        model, dev = search.fitted(best)
        chosen = best.told | {"folds": len(search.folds), "score over folds": found}
        chosen |= {"left out for size": ", ".join(left_out)} if left_out else {}
        return Predicted({"dev": dev, "test": model.logits(task.texts("test"))}, chosen, model)


@dataclass(frozen=True, kw_only=True)
class TfIdf(Linear):
    """A linear model on TF-IDF of words, signs and characters."""

    name: ClassVar[str] = "TF-IDF + linear model"
    short: ClassVar[str] = "TF-IDF"
    version: ClassVar[int] = 5  # since 5 settings are chosen by cross-validation
    features: tuple[str, ...] = (
        "words 1-2", "words 1-3", "plain words", "plain words 1-2", "characters 2-5", "words 1-2 + characters 2-5",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Windows(Linear):
    """A linear model on windows of two spans, which the texts mark (`tlm_ray.corpus.labelled.marks`)."""

    name: ClassVar[str] = "windows of the marks + linear model"
    short: ClassVar[str] = "windows"
    version: ClassVar[int] = 2  # since 2 settings are chosen by cross-validation
    features: tuple[str, ...] = ("windows", "windows by TF-IDF")
    learners: tuple[Learner, ...] = (Logistic(), Svm())

    def suits(self, texts: Sequence[str]) -> bool:
        """Return whether nearly all training texts mark two spans."""
        return marks_of(texts) is not None
