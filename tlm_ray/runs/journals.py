"""The points that searches began, kept under the root: what a killed search goes on with, and others are told."""

import itertools
from collections.abc import Iterator
from typing import Any

from tlm_ray import storage
from tlm_ray.listing import list_files
from tlm_ray.runs.searches import Chosen
from tlm_ray.runs.spaces import Point, Range
from tlm_ray.runs.stages import fingerprint_of, plain
from tlm_ray.runs.trials import Trials

FOLDER = "sweeps"  # below the root
MOST = 1_000  # points of a grid that are looked for


class Journal:
    """The points of one sweep that suggests them: of its space, tasks, recipes and seeds."""

    def __init__(self, trials: Trials):
        self.trials = trials
        self.folder = storage.join(trials.flow.execution.root, FOLDER)
        self.uri = storage.join(self.folder, f"{fingerprint_of(self._identity)[:20]}.json")
        kept = storage.read_json(self.uri)["points"] if storage.exists(self.uri) else []
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
        """Keep a point that was not kept before."""
        if point not in self.points:
            self.points.append(point)
            storage.write_json(self.uri, {"points": [self.trials.space.labels(each) for each in self.points]})

    def recorded(self) -> Iterator[Point]:
        """Yield points of the space that were trained before, by whatever sweep or table: of its grid, or kept."""
        space = self.trials.space
        if space.is_grid:
            candidates = list(itertools.islice(space.points(), MOST))
        else:
            files = list_files(self.folder, ".json", missing_ok=True) if storage.exists(self.folder) else []
            kept = [labels for file in files for labels in storage.read_json(file.uri)["points"]]
            candidates = [point for labels in kept if (point := space.point(labels)) is not None]
        root = self.trials.flow.execution.root
        yield from (point for point in candidates if self.trials.trial(Chosen(point)).is_done(root))
