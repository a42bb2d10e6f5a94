"""Read an experiment's results from its records: cells, differences, files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.evaluation.scores import Metric
from tlm_ray.plain import PlainClassifier
from tlm_ray.plain.classifier import KEPT
from tlm_ray.plain.linear_model import FACTS, TERMS, LinearModel, is_linear
from tlm_ray.report import Cell, Predictions, Results, View, compare, kept_at, print_table, publish
from tlm_ray.runs.card import drop_card, keep_card, model_card, scores_of
from tlm_ray.runs.facts import facts_of
from tlm_ray.runs.flow.each_stage import MODELS
from tlm_ray.runs.flow.plain import PlainStages
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.groups import Group, Mean
from tlm_ray.runs.naming import kept_key
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stages, fingerprint_of
from tlm_ray.runs.telling import Teller
from tlm_ray.storage.folders import SUMS

LINEAR_FILES, ENCODER_FILES = (FACTS, TERMS), ("config.json", "model.safetensors")  # by which a folder is opened
LINEAR = "linear"  # the folder, within an ensemble's, of the linear model

if TYPE_CHECKING:
    import pandas as pd

    from tlm_ray.runs.tracking.tracker import Tracker


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of an experiment's trainings, read from their records."""

    name: str
    """name of the experiment and its files"""
    stages: Mapping[Training, Stages | PlainStages]
    """stages of each training"""
    records: Records
    """records of all results"""
    tracker: "Tracker"
    """the experiment's MLflow run"""
    metric: str | Metric = ""
    """metric of the flow, "" for each task's own"""
    ensembles: tuple[str, ...] = ()
    """rows whose ensembles the table has too: the mean over seeds, and with a linear model if `pooled`"""
    pooled: bool = False
    """whether such ensembles include the linear model that is best on the task's dev set"""
    compute: Compute | None = None
    """compute of each training, None if unknown"""

    def __repr__(self) -> str:
        rows, tasks = ({getattr(one, name): 0 for one in self.stages} for name in ("row", "task"))
        on = ", ".join(map(short_name, tasks))
        return f"<Outcome {self.name}: {len(self.stages)} trainings of {len(rows)} rows on {on}>"

    def _repr_html_(self) -> str:
        return self._results._repr_html_()

    def to_pandas(self) -> "pd.DataFrame":
        """Return the test scores and costs, see `tlm_ray.report.frames.results_frame`."""
        return self._results.to_pandas()

    @cached_property
    def _results(self) -> Results:
        """The test scores, with the differences of the last row from the others."""
        return self.results(View(against=list(self.stages)[-1].row))

    @property
    def root(self) -> str:
        """The location of all results."""
        return self.records.root

    def facts(self, training: Training) -> dict[str, Any]:
        """Return one training's scores and costs: dev, test, flops, flops_counted, data_bytes, seconds.

        Of a student also seconds_taught, 0 for all others: those of its teachers' trainings, which exclude models given
        as teachers, and of their predictions, summed over workers.
        And what its classifier takes: parameters and texts_per_s, 0 if unknown. Of a stage one of several tasks, each
        task bears an equal share.

        A row that trains no encoder has 0 FLOPs.
        """
        return facts_of(training, self.stages[training], self.records)

    def model(self, training: Training) -> str:
        """Return the folder of a training's model, which opens as AutoModelForSequenceClassification.

        A plain classifier's opens with `experiments/predict.py`; ValueError if it keeps no model.
        """
        stages = self.stages[training]
        if isinstance(stages, Stages):
            return storage.join(stages.last.folder(self.root), MODELS[stages.last.name])
        folder = storage.join(stages.metrics.folder(self.root), KEPT)
        if not storage.exists(folder):
            raise ValueError(f"row {training.row!r}: keeps no model")
        return folder

    def keep_model(self, training: Training, folder: str) -> None:
        """Copy a training's model to a folder, in place of a model of the other kind, by which it would be opened."""
        source = self.model(training)
        for name in (*ENCODER_FILES, SUMS) if is_linear(source) else LINEAR_FILES:
            if storage.exists(uri := storage.join(folder, name)):
                storage.delete(uri)
        storage.copy_folder(source, folder)
        stages = self.stages[training]
        if isinstance(stages, Stages):
            scores = scores_of(stages, self.records, self.metric)
            keep_card(folder, model_card(stages, self.records, task=short_name(training.task), scores=scores))
        else:
            drop_card(folder)

    def log_model(self, training: Training, *, register: str = "") -> None:
        """Log a training's encoder to MLflow, and register it if a name is given."""
        self.tracker.log_model(self.stages[training].metrics, self.model(training), register=register)

    def keep_ensemble(self, row: str, folder: str) -> list[str]:
        """Copy the models of a row's seeds and the linear model of their ensemble, for one task.

        Returns their folders, `seed-0`, ... and `linear`. Together (`experiments/predict.py`) they predict like the
        row's ensemble.
        """
        kept = []
        for training in self.stages:
            if training.row == row:
                kept.append(storage.join(folder, f"seed-{training.seed}"))
                self.keep_model(training, kept[-1])
        means = [group for group in self.groups if isinstance(group, Mean) and group.row == row]
        mean, linear = next((each, each.beside) for each in means if each.beside)
        beside = next(one for one in self.stages if one.row == linear.row)
        kept.append(storage.join(folder, LINEAR))
        replace(LinearModel.open(self.model(beside)), encoders_share=mean.encoders_share).save(kept[-1])
        return kept

    def results(self, view: View) -> Results:
        """Return the results of the experiment in one view."""
        groups = self.groups
        predictions = [group.predictions(view.split) for group in groups]
        return Results(
            cells=[replace(group.cell(view.split), x=_number(group.recipe, view.varied)) for group in groups],
            view=view,
            differences=compare(predictions),
            notes=[*shared_texts(predictions, view.split), *self.notes],
        )

    def show(self, view: View, out: str, notes: Sequence[str] = ()) -> Results:
        """Print the table and its summary, publish all of it under `out`, and print the page's location.

        notes: further notes to print. Returns the results.
        """
        results, console = self.results(view), Console()
        results = replace(results, notes=[*notes, *results.notes])
        print_table(replace(results, notes=[*notes, *self.warnings]), console)
        files = self.publish(results, out)
        page = f"{self.name}.html"
        others = ", ".join(name.removeprefix(self.name) for name in files if name != page)
        kept = storage.shown(kept_at(self.name, out, self._key(view)))
        console.print(f"Kept when another table of this name is written: {kept}", markup=False, soft_wrap=True)
        console.print(
            f"All intervals and notes: {storage.shown(files[page])} (next to it: {others})",
            markup=False,
            soft_wrap=True,
        )
        return results

    @property
    def notes(self) -> list[str]:
        """Notes for the reader: test rows whose text is in the training set, the cost of ensembles."""
        notes = self.warnings
        if any(isinstance(group, Mean) and group.of_seeds for group in self.groups):
            notes.append("A mean of seeds costs as much as all its seeds; a jackknife estimates its spread over seeds")
        pooled = {group.task: group.beside.short for group in self.groups if isinstance(group, Mean) and group.beside}
        if pooled:
            models = ", ".join(f"{short} on {task}" for task, short in pooled.items())
            notes.append(f"Ensembles include the linear model that is best on dev: {models}")
        if any(training.teaching for training in self.stages):
            notes.append("Times of a student include those of its teachers, FLOPs and intervals do not")
        return notes

    @property
    def warnings(self) -> list[str]:
        """Warnings about the test sets: rows whose text is in the training set."""
        tasks = {short_name(one.task): self.records.facts(stages.task) for one, stages in self.stages.items()}
        notes = [
            f"{name}: the text of {facts['test_in_train']} of {facts['test_rows']} test rows is also in the training "
            "set (ignoring case, spaces and punctuation)"
            for name, facts in tasks.items()
            if facts.get("test_in_train")
        ]
        uncounted = [name for name, facts in tasks.items() if "test_in_train" not in facts]
        if uncounted:
            notes.append(f"{', '.join(uncounted)}: recorded before test texts in the training set were counted")
        return notes

    def publish(self, results: Results, out: str) -> dict[str, str]:
        """Write the results under `out`, named after the experiment, track the files, and return their locations.

        Copies under a name with tasks, scales and fingerprint stay when another table of this name is written.
        """
        teller = Teller(stages=self.stages, records=self.records, groups=self.groups)
        story = teller.story(self.compute, results.split)
        files = publish(self.name, results, out, story, key=self._key(results.view))
        self.tracker.attach(files.values())
        return files

    def _key(self, view: View) -> str:
        """What tells these results in a view from others of this name."""
        scored = sorted(own.metrics.fingerprint for own in self.stages.values())
        recipes, tasks = (list(map(attrgetter(name), self.stages)) for name in ("recipe", "task"))
        seen = {"scored": scored, "against": view.against, "split": view.split}
        return kept_key(tasks, recipes, fingerprint_of(seen))

    def cells(self) -> list[Cell]:
        """Return the table's cells of the test split, one per row and task, in the order of the trainings."""
        return [group.cell() for group in self.groups]

    @cached_property
    def groups(self) -> list[Group]:
        """Return the trainings by row and task, in order; each row of `ensembles` is followed by its ensembles."""
        trainings: dict[tuple[str, str], list[Training]] = {}
        for training in self.stages:
            trainings.setdefault((training.row, training.task), []).append(training)
        groups = {place: self._group(own) for place, own in trainings.items()}
        found: list[Group] = []
        for (row, task), group in groups.items():
            found += [group, *(self._means(group, self._beside(task, groups)) if row in self.ensembles else [])]
        return found

    def _means(self, group: Group, beside: Group | None) -> list[Mean]:
        """Return a group's ensembles: over seeds if there are two, and with a linear model."""
        return [
            Mean(**vars(group), of_seeds=of_seeds, beside=other)
            for other in ([None, beside] if beside else [None])
            for of_seeds in ([False, True] if len(group.facts) > 1 else [False])
            if other or of_seeds
        ]

    def _beside(self, task: str, groups: Mapping[tuple[str, str], Group]) -> Group | None:
        """Return the task's classifier with log odds that is best on dev (first of equals), or None."""
        known = [each for (_, other), each in groups.items() if other == task and each.short] if self.pooled else []
        return max(known, key=lambda group: group.facts[0]["dev"], default=None)

    def _group(self, trainings: Sequence[Training]) -> Group:
        first = trainings[0]
        facts = [self.facts(training) for training in trainings]
        return Group(
            row=first.row,
            task=short_name(first.task),
            metric=self.metric or facts[0]["metric"],
            facts=facts,
            folders=[self.stages[training].metrics.folder(self.root) for training in trainings],
            task_folder=self.stages[first].task.folder(self.root),
            recipe=first.recipe,
            taught_by=first.teaching.recipe if first.teaching else None,
        )


def shared_texts(predictions: Sequence[Predictions], split: str) -> list[str]:
    """Return a note per task whose rows share texts: intervals are over texts."""
    counts = {
        each.task: (len(each.gold), 1 + int(each.groups.max())) for each in predictions if each.groups is not None
    }
    return [
        f"{task}: {rows:,} {split} rows of {texts:,} texts; intervals are over texts, not rows"
        for task, (rows, texts) in counts.items()
        if texts < rows
    ]


def _number(recipe: Recipe | PlainClassifier, field: str) -> float | None:
    """Return a number of a recipe, None if it has none."""
    value = getattr(recipe, field, None)
    return float(value) if isinstance(value, int | float) else None
