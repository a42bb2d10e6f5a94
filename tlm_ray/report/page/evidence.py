"""Prepare the page's evidence: confusions, calibration, the worst errors, and what was retrieved."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from tlm_ray.evaluation.calibration import calibration_error
from tlm_ray.report.examined import Case, Examined, Passage
from tlm_ray.report.figures.reliability import reliability_figure
from tlm_ray.report.formats import cut
from tlm_ray.report.marking import mark
from tlm_ray.report.page.svg import inline
from tlm_ray.report.tables.exports import SPLIT_NAMES
from tlm_ray.retrieval.engine.analyzer import Analyzer

MOST_CLASSES = 20  # of a matrix; of more classes, the most frequent confusions are listed
MOST_PAIRS = 10


@dataclass(frozen=True, kw_only=True)
class Confusions:
    """A confusion matrix, or the most frequent confusions of many classes."""

    labels: Sequence[str]
    lines: Sequence[tuple[str, Sequence[tuple[int, float]]]]
    """each class with its rows by predicted class, and their share of the class; () for many classes"""
    pairs: Sequence[tuple[str, str, int]]
    """for many classes: class, predicted class, rows"""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the page shows of a task's best row."""

    title: str
    of: Examined
    split: str
    """the split's name"""
    confusions: Confusions
    reliability: Markup
    error: float
    """expected calibration error, in percent"""


@dataclass(frozen=True, kw_only=True)
class MarkedCase:
    """A training text and what was retrieved for it, with matching terms marked."""

    title: str
    text: str
    passages: Sequence[tuple[str, Markup]]
    """facts and text of each"""


def evidence_of(examined: Sequence[Examined]) -> list[Evidence]:
    """Return what the page shows of each task's best row."""
    return [
        Evidence(
            title=f"{each.task}: {each.row}",
            of=each,
            split=SPLIT_NAMES[each.split].lower(),
            confusions=_confusions(each),
            reliability=inline(reliability_figure(each.bins), f"{each.task}: accuracy over confidence"),
            error=100 * calibration_error(each.bins),
        )
        for each in examined
    ]


def _confusions(each: Examined) -> Confusions:
    counts, labels = each.counts, each.labels
    if len(labels) > MOST_CLASSES:
        wrong = counts * (1 - np.eye(len(labels), dtype=counts.dtype))
        order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
        places = [divmod(int(place), len(labels)) for place in order]
        pairs = [(labels[gold], labels[said], int(wrong[gold, said])) for gold, said in places if wrong[gold, said]]
        return Confusions(labels=labels, lines=(), pairs=pairs)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    lines = [
        (label, list(zip(map(int, own), map(float, share), strict=True)))
        for label, own, share in zip(labels, counts, shares, strict=True)
    ]
    return Confusions(labels=labels, lines=lines, pairs=())


def marked(cases: Sequence[Case]) -> list[MarkedCase]:
    """Return retrieved passages with the terms of their query marked."""
    analyzer = Analyzer()
    return [
        MarkedCase(
            title=f"{case.task}, by {case.method}",
            text=case.text,
            passages=[_passage(each, set(analyzer.terms(case.query)), analyzer) for each in case.passages],
        )
        for case in cases
    ]


def _passage(each: Passage, terms: set[str], analyzer: Analyzer) -> tuple[str, Markup]:
    facts = f"rank {each.rank + 1}, score {each.score:.2f}, {each.source}"
    return facts, Markup(mark(cut(each.text), terms, analyzer))  # `mark` escapes
