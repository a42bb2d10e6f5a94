"""Read the results that `publish` wrote as JSON, and compare two of them row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from tlm_ray import storage
from tlm_ray.corpus.labelled.text_groups import read_text_groups
from tlm_ray.evaluation.predictions import has_predictions, read_predictions
from tlm_ray.evaluation.scores import METRICS
from tlm_ray.report.formats import ABSENT
from tlm_ray.report.statistics.differences import Difference, Predictions, compare, corrected

ONE, OTHER = "first", "second"  # the rows that are compared: one row of two tables

SECONDS = "seconds"  # of a plain classifier, which stand among its settings

Place = tuple[str, str]  # row and task


@dataclass(frozen=True, kw_only=True)
class Published:
    """A table as it was published."""

    location: str
    """of its JSON"""
    cells: Mapping[Place, Mapping[str, Any]]
    """scores of each row on each task"""
    settings: Mapping[Place, Mapping[str, Any]]
    """settings of each row on each task"""
    predictions: Mapping[Place, Mapping[str, Any]]
    """folders of the predictions of each row on each task"""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A row of both tables, on one task."""

    row: str
    task: str
    metric: str
    means: tuple[float, float]
    """scores in the first and in the second table, in percent"""
    difference: Difference | None
    """of the second from the first, corrected for all that are reported; None where it is not known"""
    why: str
    """why there is no interval; "" if there is one"""


@dataclass(frozen=True, kw_only=True)
class Changed:
    """A setting that differs between two tables."""

    name: str
    values: tuple[str, str]
    """in the first and in the second table"""
    places: Sequence[str]
    """the rows and tasks"""


def read_published(location: str) -> Published:
    """Read the JSON of a table; ValueError if it is none, FileNotFoundError if it is not there."""
    document = storage.read_json(location)
    if not isinstance(document, dict) or "cells" not in document:
        what = "a sweep's trials" if isinstance(document, dict) and "trials" in document else "no table"
        raise ValueError(f"{location}: has {what}; give the NAME.json of a table, such as results/main_table.json")
    try:
        return Published(
            location=location,
            cells=_by_place(document["cells"], "metric", "split", "mean"),
            settings={
                place: each["values"] for place, each in _by_place(document.get("settings", ()), "values").items()
            },
            predictions=_by_place(document.get("predictions", ()), "folders", "texts", "is_drawn"),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{location}: lacks {error} of a table; give a file as an experiment wrote it") from error


def _by_place(records: Sequence[Mapping[str, Any]], *needed: str) -> dict[Place, Mapping[str, Any]]:
    """Return records by their row and task; KeyError for one that lacks a needed field."""
    found = {(each["row"], each["task"]): each for each in records}
    for each in found.values():
        for name in needed:
            each[name]
    return found


def rows_beside(first: Published, second: Published) -> list[Beside]:
    """Return the rows that both tables have, with paired differences where the predictions of both are there."""
    common = [place for place in first.cells if place in second.cells]
    found = {place: _paired(first, second, place) for place in common}
    known = {place: each for place, each in found.items() if isinstance(each, Difference)}
    told = dict(zip(known, corrected(list(known.values())), strict=True))
    return [
        Beside(
            row=place[0],
            task=place[1],
            metric=first.cells[place]["metric"],
            means=(first.cells[place]["mean"], second.cells[place]["mean"]),
            difference=told.get(place),
            why=each if isinstance(each, str) else "",
        )
        for place, each in found.items()
    ]


def alone(first: Published, second: Published) -> list[str]:
    """Return the rows of the first table that the second lacks, with their tasks."""
    return [_words(place) for place in first.cells if place not in second.cells]


def settings_changed(first: Published, second: Published) -> list[Changed]:
    """Return the settings in which rows of both tables differ; equal changes of several rows together."""
    changes: dict[tuple[str, str, str], list[Place]] = {}
    for place in (place for place in first.settings if place in second.settings):
        one, other = first.settings[place], second.settings[place]
        for name in (name for name in dict.fromkeys(chain(one, other)) if name != SECONDS):
            values = (str(one.get(name, ABSENT)), str(other.get(name, ABSENT)))
            if values[0] != values[1]:
                changes.setdefault((name, *values), []).append(place)
    return [
        Changed(name=name, values=(one, other), places=list(map(_words, places)))
        for (name, one, other), places in changes.items()
    ]


def _words(place: Place) -> str:
    return f"{place[0]} on {place[1]}"


def _paired(first: Published, second: Published, place: Place) -> Difference | str:
    """Return the difference of the second table's row from the first's, or why it has no interval."""
    both = [each.cells[place] for each in (first, second)]
    if len({(cell["metric"], cell["split"]) for cell in both}) > 1:
        return "other metric or split"
    if both[0]["metric"] not in METRICS:
        return "metric of one's own"
    if not (place in first.predictions and place in second.predictions):
        return "no predictions listed: an ensemble, or an older file"
    one, other = first.predictions[place], second.predictions[place]
    if set(one["folders"]) == set(other["folders"]):
        return "the same trainings"
    if set(one["folders"]) & set(other["folders"]):
        return "some trainings are in both"
    metric, split = both[0]["metric"], both[0]["split"]
    for folder in [*one["folders"], *other["folders"], one["texts"], other["texts"]]:
        if not _has(folder, split):
            return f"no predictions or texts at {storage.shown(folder)}"
    made = [_predictions(name, scored, metric, split) for name, scored in ((ONE, one), (OTHER, other))]
    if len({(each.gold.tobytes(), each.groups.tobytes()) for each in made if each.groups is not None}) > 1:
        return "other rows of the task"
    return next(each for each in compare(made) if each.row == OTHER)


def _predictions(name: str, scored: Mapping[str, Any], metric: str, split: str) -> Predictions:
    read = [read_predictions(folder, split) for folder in scored["folders"]]
    return Predictions(
        row=name,
        task=scored["task"],
        metric=metric,
        gold=read[0].gold,
        predicted=np.array([each.predicted for each in read]),
        groups=read_text_groups(scored["texts"], split),
        is_drawn=scored["is_drawn"],
    )


def _has(folder: str, split: str) -> bool:
    """Return whether a folder of predictions, or of a task, can be read; one that denies access cannot."""
    try:
        return has_predictions(folder, split) or storage.exists(storage.join(folder, f"{split}.arrow"))
    except OSError:
        return False
