"""What an experiment's trainings reached, read from their records: cells, differences, files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tlm_ray import storage
from tlm_ray.corpus.hub import short_name
from tlm_ray.corpus.scores import Metric
from tlm_ray.plain import PlainClassifier
from tlm_ray.plain.classifier import KEPT
from tlm_ray.plain.linear_model import LinearModel
from tlm_ray.report import Cell, Predictions, Results, View, compare, print_table, publish
from tlm_ray.runs.groups import Group, Mean
from tlm_ray.runs.pipeline import MODELS
from tlm_ray.runs.plain_rows import PlainStages
from tlm_ray.runs.recipe import Recipe
from tlm_ray.runs.rows import Training
from tlm_ray.runs.stages import Stage, Stages
from tlm_ray.runs.telling import Teller
from tlm_ray.training.settings import Compute

LINEAR = "linear"  # the folder, within an ensemble's, of the linear model

if TYPE_CHECKING:
    from tlm_ray.runs.tracking import Tracker


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment's trainings reached, read from their records."""

    name: str
    """the experiment's, which its files carry"""
    stages: Mapping[Training, Stages | PlainStages]
    """each training's"""
    root: str
    """location of all results"""
    tracker: "Tracker"
    """the experiment's MLflow run"""
    metric: str | Metric = ""
    """of the flow, "" for each task's own"""
    ensembles: tuple[str, ...] = ()
    """rows below which the table has the means of what they predict: over seeds, and with a linear model if `pooled`"""
    pooled: bool = False
    """whether each task's linear model that is best on dev has its share in such means"""
    compute: Compute | None = None
    """what each training ran on, None where that is not known"""
    is_tested: bool = True
    """trainings were scored on test; without, dev scores are those that they had while they trained"""

    def facts(self, training: Training) -> dict[str, Any]:
        """Return one training's scores and costs: dev, test, flops, flops_counted, data_bytes, seconds.

        What trains no encoder has 0 FLOPs.
        """
        stages, scores = self.stages[training], self._scores(self.stages[training])
        trained = [(stage, self._facts(stage)) for stage in stages.trained]
        counted = [facts.get("flops_counted", 0) for _, facts in trained]
        return {
            "dev": scores["dev"],
            "test": scores.get("test"),
            "metric": scores["metric"],
            "flops": sum(6.0 * stage.cost["tokens"] * facts["parameters"] for stage, facts in trained),
            "flops_counted": sum(counted) if all(counted) else 0,  # 0 where a stage's are not known
            "data_bytes": self._facts(stages.task)["train_bytes"] + self._general_bytes(stages, training.recipe),
            "seconds": sum(facts["seconds"] for _, facts in trained) if trained else scores["seconds"],
        }

    def _scores(self, stages: Stages | PlainStages) -> dict[str, Any]:
        if self.is_tested or isinstance(stages, PlainStages):
            return self._facts(stages.metrics)
        facts = self._facts(stages.last)  # stage one, where it is the last, has its scores in its history alone
        dev = facts["dev"] if "dev" in facts else facts["history"][-1]["dev"]
        return {"dev": dev, "metric": stages.task.parameters["metric"]}

    def _general_bytes(self, stages: Stages | PlainStages, recipe: Recipe | PlainClassifier) -> int:
        """Count the selected text that a training learns from, with that of the recipes before it, each text once."""
        sizes: dict[str, int] = {}
        own, made = (recipe, stages) if isinstance(recipe, Recipe) and isinstance(stages, Stages) else (None, None)
        while own is not None and made is not None:
            if made.neighbours is not None:
                size = sum(self._facts(made.neighbours).get("rank_bytes", [])[: own.k])
                sizes[made.neighbours.fingerprint] = max(size, sizes.get(made.neighbours.fingerprint, 0))
            own, made = own.after, made.before
        return sum(sizes.values())

    def _facts(self, stage: Stage | None) -> dict[str, Any]:
        """Return a stage's facts, empty where it is not needed or not recorded."""
        return {} if stage is None else (stage.record(self.root) or {}).get("facts", {})

    def model(self, training: Training) -> str:
        """Return the folder of a training's model, which opens as AutoModelForSequenceClassification.

        A plain classifier's opens with `experiments/predict.py`; ValueError for one that keeps none.
        """
        stages = self.stages[training]
        if isinstance(stages, Stages):
            return storage.join(stages.last.folder(self.root), MODELS[stages.last.name])
        folder = storage.join(stages.metrics.folder(self.root), KEPT)
        if not storage.exists(folder):
            raise ValueError(f"row {training.row!r}: keeps no model")
        return folder

    def log_model(self, training: Training, *, register: str = "") -> None:
        """Hand a training's encoder to MLflow, and register it under a name if one is given."""
        self.tracker.log_model(self.stages[training].metrics, self.model(training), register=register)

    def keep_ensemble(self, row: str, folder: str) -> list[str]:
        """Write the models of a row's seeds and the linear one that is pooled with them, of one task.

        Returns their folders. They predict together as the row's mean of seeds with a linear model does
        (`experiments/predict.py`).
        """
        kept = []
        for training in self.stages:
            if training.row == row:
                kept.append(storage.join(folder, f"seed-{training.seed}"))
                storage.copy_folder(self.model(training), kept[-1])
        means = [group for group in self.groups() if isinstance(group, Mean) and group.row == row]
        mean = next(each for each in means if each.of_seeds and each.beside)
        beside = next(one for one in self.stages if mean.beside and one.row == mean.beside.row)
        kept.append(storage.join(folder, LINEAR))
        replace(LinearModel.open(self.model(beside)), encoders_share=mean.encoders_share).save(kept[-1])
        return kept

    def results(self, view: View) -> Results:
        """Return what the experiment shows, looked at in one way."""
        groups = self.groups()
        predictions = [group.predictions(view.split) for group in groups]
        return Results(
            cells=[replace(group.cell(view.split), x=_number(group.recipe, view.varied)) for group in groups],
            view=view,
            differences=compare(predictions),
            notes=[*shared_texts(predictions, view.split), *self.notes],
        )

    def show(self, view: View, out: str, notes: Sequence[str] = ()) -> Results:
        """Print the table and what it shows, publish all of it under `out`, print where the page is; return it.

        notes: further ones, which are printed too.
        """
        results, console = self.results(view), Console()
        results = replace(results, notes=[*notes, *results.notes])
        print_table(replace(results, notes=[*notes, *self.warnings]), console)
        files = self.publish(results, out)
        page = f"{self.name}.html"
        others = ", ".join(name.removeprefix(self.name) for name in files if name != page)
        console.print(f"All intervals and notes: {files[page]} (beside it {others})", markup=False, soft_wrap=True)
        return results

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know: test rows whose text is trained on, what means cost."""
        notes = self.warnings
        if any(isinstance(group, Mean) and group.of_seeds for group in self.groups()):
            notes.append("A mean of seeds costs what its seeds cost; a jackknife estimates how it varies with them")
        pooled = {group.task: group.beside.short for group in self.groups() if isinstance(group, Mean) and group.beside}
        if pooled:
            models = ", ".join(f"{short} on {task}" for task, short in pooled.items())
            notes.append(f"Trainings are pooled with the linear model that is best on dev: {models}")
        if any(training.teachers for training in self.stages):
            notes.append("A student's costs, and its intervals, leave its teachers out, which are trained before it")
        return notes

    @property
    def warnings(self) -> list[str]:
        """What is wrong with the test sets: rows whose text is trained on."""
        tasks = {short_name(one.task): self._facts(stages.task) for one, stages in self.stages.items()}
        notes = [
            f"{name}: the text of {facts['test_in_train']} of {facts['test_rows']} test rows stands in the training "
            "set too, but for case, spaces and signs"
            for name, facts in tasks.items()
            if facts.get("test_in_train")
        ]
        uncounted = [name for name, facts in tasks.items() if "test_in_train" not in facts]
        if uncounted:
            notes.append(f"{', '.join(uncounted)}: made before test texts that are trained on were counted")
        return notes

    def publish(self, results: Results, out: str) -> dict[str, str]:
        """Write the results under `out`, named after the experiment, track the files, and return their locations."""
        story = Teller.of(self.stages, self.root).story(self.root, self.compute)
        files = publish(self.name, results, out, story)
        self.tracker.attach(files.values())
        return files

    def cells(self, split: str = "test") -> list[Cell]:
        """Return the table's cells, in the order of the trainings, seeds united."""
        return [group.cell(split) for group in self.groups()]

    def groups(self) -> list[Group]:
        """Return the trainings of each row and task, in their order; below a row of `ensembles`, its means."""
        trainings: dict[tuple[str, str], list[Training]] = {}
        for training in self.stages:
            trainings.setdefault((training.row, training.task), []).append(training)
        groups = {place: self._group(own) for place, own in trainings.items()}
        found: list[Group] = []
        for (row, task), group in groups.items():
            found += [group, *(self._means(group, self._beside(task, groups)) if row in self.ensembles else [])]
        return found

    def _means(self, group: Group, beside: Group | None) -> list[Mean]:
        """Return what a group's trainings say together, over seeds where there are two, and with a linear model."""
        return [
            Mean(**vars(group), of_seeds=of_seeds, beside=other)
            for other in ([None, beside] if beside else [None])
            for of_seeds in ([False, True] if len(group.facts) > 1 else [False])
            if other or of_seeds
        ]

    def _beside(self, task: str, groups: Mapping[tuple[str, str], Group]) -> Group | None:
        """Return the task's classifier that gives log odds and is best on dev, the first of equals; None for none."""
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
        )


def shared_texts(predictions: Sequence[Predictions], split: str) -> list[str]:
    """Say of each task whose rows share texts how many texts they are, which is what intervals are over."""
    counts = {
        each.task: (len(each.gold), 1 + int(each.groups.max())) for each in predictions if each.groups is not None
    }
    return [
        f"{task}: {rows:,} {split} rows of {texts:,} texts; intervals are over texts, not rows"
        for task, (rows, texts) in counts.items()
        if texts < rows
    ]


def _number(recipe: Recipe | PlainClassifier, field: str) -> float | None:
    """Return a recipe's number, None where it has none."""
    value = getattr(recipe, field, None)
    return float(value) if isinstance(value, int | float) else None
