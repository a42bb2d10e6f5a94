"""What an experiment's trainings reached, read from their records: cells, differences, files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tlm_ray import storage
from tlm_ray.corpus.hub import short_name
from tlm_ray.corpus.scores import Metric
from tlm_ray.plain import PlainClassifier
from tlm_ray.plain.classifier import KEPT
from tlm_ray.plain.linear_model import LinearModel
from tlm_ray.report import Cell, Comparison, Score, compare, publish_scores, publish_table
from tlm_ray.runs.groups import Group, Mean
from tlm_ray.runs.plain_rows import PlainStages
from tlm_ray.runs.recipe import Recipe
from tlm_ray.runs.rows import Training
from tlm_ray.runs.stages import Stage, Stages
from tlm_ray.runs.tracking import Tracker
from tlm_ray.training.settings import MODEL
from tlm_ray.training.starts import Pretrained


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment's trainings reached, read from their records."""

    name: str
    """the experiment's, which its files carry"""
    stages: Mapping[Training, Stages | PlainStages]
    """each training's"""
    root: str
    """location of all results"""
    tracker: Tracker
    """the experiment's MLflow run"""
    metric: str | Metric = ""
    """of the flow, "" for each task's own"""
    ensembles: tuple[str, ...] = ()
    """rows below which the table has the means of what they predict: over seeds, and with `beside`"""
    beside: str = ""
    """the row of a plain classifier for those means, "" for none"""

    def facts(self, training: Training) -> dict[str, Any]:
        """Return one training's scores and costs: dev, test, flops, flops_counted, data_bytes, seconds.

        What trains no encoder has 0 FLOPs.
        stage_one_dev: the score of stage one's own task head at its end, None where it has none.
        """
        stages, scores = self.stages[training], self._facts(self.stages[training].metrics)
        trained = [(stage, self._facts(stage)) for stage in stages.trained]
        counted = [facts.get("flops_counted", 0) for _, facts in trained]
        learned = next((facts for stage, facts in trained if stage.name == "stage_one"), {})
        return {
            "stage_one_dev": learned.get("history", [{}])[-1].get("dev"),
            "dev": scores["dev"],
            "test": scores["test"],
            "metric": scores["metric"],
            "flops": sum(6.0 * stage.cost["tokens"] * facts["parameters"] for stage, facts in trained),
            "flops_counted": sum(counted) if all(counted) else 0,  # 0 where a stage's are not known
            "data_bytes": self._facts(stages.task)["train_bytes"] + self._general_bytes(training),
            "seconds": sum(facts["seconds"] for _, facts in trained) if trained else scores["seconds"],
        }

    def _general_bytes(self, training: Training) -> int:
        """Count the selected text that a training learns from."""
        stages, recipe = self.stages[training], training.recipe
        if isinstance(stages, PlainStages) or isinstance(recipe, PlainClassifier):
            return 0
        return sum(self._facts(stages.neighbours).get("rank_bytes", [])[: recipe.k])

    def _facts(self, stage: Stage | None) -> dict[str, Any]:
        """Return a stage's facts, empty where it is not needed or not recorded."""
        return {} if stage is None else (stage.record(self.root) or {}).get("facts", {})

    def model(self, training: Training) -> str:
        """Return the folder of a training's model, which opens as AutoModelForSequenceClassification.

        A plain classifier's opens with `experiments/predict.py`; ValueError for one that keeps none.
        """
        stages = self.stages[training]
        if isinstance(stages, Stages):
            return storage.join(stages.stage_two.folder(self.root), MODEL)
        folder = storage.join(stages.metrics.folder(self.root), KEPT)
        if not storage.exists(folder):
            raise ValueError(f"row {training.row!r}: keeps no model")
        return folder

    def keep_ensemble(self, row: str, folder: str) -> list[str]:
        """Write the models of a row's seeds and of the plain classifier beside them, of one task; return their folders.

        They predict together as the row's mean of seeds with the classifier does (`experiments/predict.py`).
        """
        kept = []
        for training in self.stages:
            if training.row == row:
                kept.append(storage.join(folder, f"seed-{training.seed}"))
                storage.copy_folder(self.model(training), kept[-1])
        means = [group for group in self.groups() if isinstance(group, Mean) and group.row == row]
        mean = next(each for each in means if each.of_seeds and each.beside)
        beside = next(training for training in self.stages if training.row == self.beside)
        kept.append(storage.join(folder, mean.short.lower()))
        replace(LinearModel.open(self.model(beside)), encoders_share=mean.encoders_share).save(kept[-1])
        return kept

    def comparison(self, row: str) -> Comparison:
        """Return how far a row of the table lies above the others, on test rows, and what of that is shown."""
        predictions = [group.predictions() for group in self.groups()]
        return Comparison(row=row, differences=tuple(compare(predictions)))

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know: test rows whose text is trained on, what means cost."""
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
        if any(isinstance(group, Mean) and group.of_seeds for group in self.groups()):
            notes.append("A mean of seeds costs what its seeds cost; how it varies with them is told by a jackknife")
        if any(training.teachers for training in self.stages):
            notes.append("A student's costs, and its intervals, leave its teachers out, which are trained before it")
        return notes

    def publish(self, out: str, comparison: Comparison | None = None) -> dict[str, str]:
        """Write the table under `out`, named after the experiment, track its files, and return their locations."""
        return self._tracked(publish_table(self.name, self.cells(), out, comparison, notes=self.notes))

    def publish_scores(self, scores: Sequence[Score], out: str) -> dict[str, str]:
        """Write a table of scores alone instead, such as an ablation's."""
        return self._tracked(publish_scores(self.name, scores, out))

    def _tracked(self, files: dict[str, str]) -> dict[str, str]:
        self.tracker.attach(files.values())
        return files

    def cells(self) -> list[Cell]:
        """Return the table's cells, in the order of the trainings, seeds united."""
        return [group.cell() for group in self.groups()]

    def groups(self) -> list[Group]:
        """Return the trainings of each row and task, in their order; below a row of `ensembles`, its means."""
        trainings: dict[tuple[str, str], list[Training]] = {}
        for training in self.stages:
            trainings.setdefault((training.row, training.task), []).append(training)
        groups = {place: self._group(own) for place, own in trainings.items()}
        found: list[Group] = []
        for (row, task), group in groups.items():
            found += [group, *(self._means(group, groups.get((self.beside, task))) if row in self.ensembles else [])]
        return found

    def _means(self, group: Group, beside: Group | None) -> list[Mean]:
        """Return what a group's trainings say together, over seeds where there are two, and with a plain classifier."""
        plain = {one.row: one.recipe.short for one in self.stages if isinstance(one.recipe, PlainClassifier)}
        short = plain[beside.row] if beside else ""
        return [
            Mean(**vars(group), of_seeds=of_seeds, beside=other, short=short)
            for other in ([None, beside] if beside else [None])
            for of_seeds in ([False, True] if len(group.facts) > 1 else [False])
            if other or of_seeds
        ]

    def _group(self, trainings: Sequence[Training]) -> Group:
        first = trainings[0]
        start = first.recipe.start if isinstance(first.recipe, Recipe) else None
        facts = [self.facts(training) for training in trainings]
        return Group(
            row=first.row,
            task=short_name(first.task),
            metric=self.metric or facts[0]["metric"],
            facts=facts,
            folders=[self.stages[training].metrics.folder(self.root) for training in trainings],
            is_drawn=isinstance(first.recipe, Recipe),
            pretrained=start.source if isinstance(start, Pretrained) else "",
        )
