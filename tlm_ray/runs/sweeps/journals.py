"""Journals of sweeps under the root: the points tried, to resume a killed search and to warm-start others."""

import itertools
from collections.abc import Iterator
from typing import Any

from tlm_ray import storage
from tlm_ray.runs.recipes.space import Point, Range
from tlm_ray.runs.stages.stage import DIGITS, fingerprint_of, plain
from tlm_ray.runs.sweeps.searches import Chosen, Search
from tlm_ray.runs.sweeps.trials import Trials
from tlm_ray.storage.listing import list_files

FOLDER = "sweeps"  # below the root
FIX = "delete this file; its search then restarts, reusing its trainings"
MOST = 1_000  # maximum grid points to look up


class Journal:
    """The points of one sweep, identified by its search, space, tasks, recipes and seeds."""

    def __init__(self, trials: Trials, search: Search):
        self.trials = trials
        self.folder = storage.join(trials.flow.execution.root, FOLDER)
        self.key = fingerprint_of({"search": search} | self._identity)[:DIGITS]
        self.uri = storage.join(self.folder, f"{self.key}.json")
        kept = storage.read_record(self.uri, fix=FIX)["points"] if storage.exists(self.uri) else []
        self.points = [point for labels in kept if (point := trials.space.point(labels)) is not None]

    @property
    def _identity(self) -> dict[str, Any]:
        space = self.trials.space
        values = {
            path: plain(values, path) if isinstance(values, Range) else [space.labels({path: v})[path] for v in values]
            for path, values in space.values.items()
        }
        recipes = {task: plain(recipe, "recipe") for task, recipe in self.trials.bases.items()}
        return {"values": values, "recipes": recipes, "seeds": self.trials.seeds}

    def add(self, point: Point) -> None:
        """Add a point if it is new."""
        if point not in self.points:
            self.points.append(point)
            storage.write_record(self.uri, {"points": [self.trials.space.labels(each) for each in self.points]})

    def recorded(self) -> Iterator[Point]:
        """Yield points that were trained before: for a grid by any sweep or table, for ranges by sweeps."""
        space = self.trials.space
        if space.is_grid:
            candidates = list(itertools.islice(space.points(), MOST))
        else:
            files = list_files(self.folder, ".json", missing_ok=True) if storage.exists(self.folder) else []
            kept = [labels for file in files for labels in storage.read_record(file.uri, fix=FIX)["points"]]
            candidates = [point for labels in kept if (point := space.point(labels)) is not None]
        root = self.trials.flow.execution.root
        others = (point for point in candidates if point not in self.points)
        yield from (point for point in others if self.trials.trial(Chosen(point)).is_done(root))
