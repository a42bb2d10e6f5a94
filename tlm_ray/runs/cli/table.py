"""Run an experiment as a table: a row per recipe, on every task and seed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tlm_ray.plain import PlainClassifier
from tlm_ray.report import TABLE_2, PaperTable, Results, View
from tlm_ray.runs.cli.connection import ray_options
from tlm_ray.runs.cli.errors import plain_errors
from tlm_ray.runs.cli.options import open_flow, parse
from tlm_ray.runs.cli.recipe_options import Mixture, TrainingOptions
from tlm_ray.runs.experiment import run, show_plan, show_reasons
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.training import Training, plain_trainings
from tlm_ray.runs.groups import names_of_means
from tlm_ray.runs.outcome import Outcome
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.storage import shown


@dataclass(frozen=True, kw_only=True)
class Table(TrainingOptions, ABC):
    """The command line, rows and view of an experiment; derive yours from it."""

    name: ClassVar[str]
    """name of the experiment and its files"""
    varied: ClassVar[str] = ""
    """the number of the recipe that the rows vary, as x axis of the figure; "" for the cost"""
    cost: ClassVar[Literal["FLOPs", "minutes"]] = "FLOPs"
    """the x axis of the figure where no number is varied"""
    paper: ClassVar[PaperTable] = TABLE_2
    """the paper's table to compare with"""
    split: ClassVar[str] = "dev"
    """the split of the scores: dev, as in the paper's ablations, or test"""
    ensembles: ClassVar[Sequence[str]] = ()
    """rows whose ensembles of seeds the table has too"""
    needs_general: ClassVar[bool] = False
    """whether some rows differ in their general text alone, so that without any they are one training"""
    pooled: ClassVar[bool] = False
    """whether such ensembles include the linear model that is best on dev"""

    mixture: Mixture = field(default_factory=Mixture)
    seeds: int = 3
    """trainings per cell, with seeds 0, 1, ..."""
    against: str = ""
    """row to compare with all others, also one of an ensemble or of a linear model (default: the experiment's own)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("k", self.passages.k), ("rho1", self.mixture.rho1)):
            if self.needs_general and value == 0:
                raise ValueError(f"--{name} 0: rows that differ in general text would be one training; give 1 or more")
        if self.varied and getattr(self.mixture, self.varied, None) is not None:
            raise ValueError(f"--{self.varied}: is what this experiment varies; give --{self.varied}s")
        if self.varied in ("rho1", "rho2") and self.mixture.external_only:
            raise ValueError(f"--external-only: leaves out the task batches whose {self.varied} this experiment varies")

    def flow(self) -> Flow:
        """Open the corpus and return the flow that makes stages."""
        return open_flow(self.data, self.place, self.cluster)

    def recipes(self, task: str, flow: Flow) -> Mapping[str, Recipe]:
        """Return the rows of a task."""
        return self.vary(self.recipe(task, flow, self.mixture))

    @abstractmethod
    def vary(self, recipe: Recipe) -> Mapping[str, Recipe]:
        """Return the rows of the table: a name and how to train, made of a task's recipe."""

    @abstractmethod
    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Return pairs of rows, the first expected above the second."""

    def main_row(self, rows: list[str]) -> str:
        """Return the row that is compared with all others without --against: the first expected, or the last row."""
        return next((above for above, _ in self.expected(rows)), rows[-1] if rows else "")

    def notes(self, outcome: Outcome) -> list[str]:
        """Return further sentences about the outcome, printed below the table."""
        return []

    def trainings(self, flow: Flow) -> list[Training]:
        """Return one training per row, task and seed, after the plain classifiers of each task."""
        tasks = self.data.tasks
        rows = {task: self.recipes(task, flow) for task in tasks}
        names = dict.fromkeys(name for own in rows.values() for name in own)
        return plain_trainings(flow, tasks) + [
            Training(row=shown(name), task=task, recipe=rows[task][name], seed=seed)
            for name in names
            for task in tasks
            if name in rows[task]
            for seed in range(self.seeds)
        ]

    def rows_with_ensembles(self, trainings: Sequence[Training]) -> Sequence[str]:
        """Return the rows whose ensembles the table has too."""
        return self.ensembles

    def view(self, trainings: Sequence[Training]) -> View:
        """Return the view of its scores; without --against students are compared only if there is no other training.

        ValueError if --against names no row.
        """
        if self.against:
            self._check_against(trainings)
        trained = [one for one in trainings if isinstance(one.recipe, Recipe)]
        compared = [one for one in trained if not one.teaching] or trained
        rows = list(dict.fromkeys(one.row for one in compared))
        return View(
            against=self.against or self.main_row(rows),
            split=self.split,
            varied=self.varied,
            cost=self.cost,
            paper=self.paper,
            expected=self.expected(rows),
        )

    def _check_against(self, trainings: Sequence[Training]) -> None:
        """Raise ValueError if --against names no row of the table."""
        has_linear = any(isinstance(one.recipe, PlainClassifier) and one.recipe.short for one in trainings)
        rows = dict.fromkeys(one.row for one in trainings)
        for row in (one for one in self.rows_with_ensembles(trainings) if one in rows):
            seeds = len({one.seed for one in trainings if one.row == row})
            rows |= dict.fromkeys(names_of_means(row, seeds, with_linear=self.pooled and has_linear))
        if self.against not in rows:
            raise ValueError(f"--against {self.against!r}: allowed are {', '.join(map(repr, rows))}")


def chosen(recipes: Mapping[str, Recipe], rows: Sequence[str]) -> Mapping[str, Recipe]:
    """Return the recipes that --rows names, all without any; ValueError names an unknown row."""
    if unknown := [row for row in rows if row not in recipes]:
        raise ValueError(f"--rows {unknown[0]!r}: allowed are {', '.join(map(repr, recipes))}")
    return {row: recipe for row, recipe in recipes.items() if not rows or row in rows}


def main(kind: type[Table], doc: str | None, connect: Callable[..., Any]) -> None:
    """Run a table as a script: parse its options, connect to Ray, show the results.

    doc: its `__doc__`, for --help. connect: `ray.init`, called with `ray_options()`. An error that a user can fix ends
    the script with one message.
    """
    with plain_errors():
        present(parse(kind, doc), connect=lambda: connect(**ray_options()))


def present(table: Table, connect: Callable[[], Any]) -> Results | None:
    """Run the experiment and print its results, or its plan with --dry-run or --why.

    connect: connects the script to Ray.
    """
    flow = table.flow()
    trainings = table.trainings(flow)
    view = table.view(trainings)
    if table.dry_run or table.why:
        show_plan(trainings, flow, price=table.price) if table.dry_run else show_reasons(trainings, flow)
        return None
    connect()
    outcome = run(
        trainings,
        flow,
        name=table.name,
        tracking_uri=table.place.tracking_uri,
        log_models=table.log_models,
        ensembles=table.rows_with_ensembles(trainings),
        pooled=table.pooled,
    )
    return outcome.show(view, table.place.out, table.notes(outcome))
