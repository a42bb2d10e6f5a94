"""Read the story behind an experiment's scores from the records of its stages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tlm_ray.compute import Compute
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.corpus.labelled.task_files import SPLITS
from tlm_ray.plain import PlainClassifier
from tlm_ray.report.examined import Case
from tlm_ray.report.story import AFTER, Learned, Made, Scored, Selected, Settings, Story, TaskData
from tlm_ray.retrieval.selection import has_selection
from tlm_ray.runs.examining import cases, examined
from tlm_ray.runs.flow.plain import PlainStages
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.groups import Group, Mean
from tlm_ray.runs.planning.plan import worker_hours
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.provenance import describe_run
from tlm_ray.runs.stages.records import Record, Records
from tlm_ray.runs.stages.stage import Stage, Stages, flatten, unique
from tlm_ray.storage import shown, without_credentials
from tlm_ray.training.cost import flops_of
from tlm_ray.training.loop.progress import NOT_LOSSES

NOT_CURVES = NOT_LOSSES - {"step", "dev"}


@dataclass(frozen=True, kw_only=True)
class Teller:
    """Tells the story of some trainings."""

    stages: Mapping[Training, Stages | PlainStages]
    """stages of each training"""
    records: Records
    """their records"""
    groups: Sequence[Group] = ()
    """rows whose predictions are examined; () for none"""

    def story(self, compute: Compute | None, split: str = "test") -> Story:
        """Return the whole story; compute: resources of each training, None if unknown. split: that of the scores."""
        lasts = [own.metrics for own in self.stages.values()]
        found = self.records.found(lasts)
        made = [_made(stage, found[stage.fingerprint]) for stage in unique(lasts) if stage.fingerprint in found]
        return Story(
            learned=list(self._learned()),
            settings=list(self._settings()),
            scored=[_scored(group) for group in self.groups if not isinstance(group, Mean)],
            examined=list(examined(self.groups, split)),
            selected=list(self._selected()),
            cases=self._cases(),
            tasks=self._tasks(),
            made=made,
            hours=_hours(sum(each.seconds for each in made if each.flops), compute) if compute else {},
            provenance=describe_run(self.records.root),
        )

    def _learned(self) -> Iterator[Learned]:
        """Yield each training stage once, with the first row that uses it."""
        seen: set[str] = set()
        for one, own in self.stages.items():
            told = learned_of(own, self.records, row=one.row, task=short_name(one.task), seed=one.seed)
            for stage, learned in zip(own.trained, told, strict=True):
                if stage.fingerprint not in seen:
                    seen.add(stage.fingerprint)
                    yield learned

    def _settings(self) -> Iterator[Settings]:
        """Yield the settings of each row and task once; all seeds share them."""
        seen: set[tuple[str, str]] = set()
        for one, own in self.stages.items():
            if (one.row, one.task) not in seen:
                seen.add((one.row, one.task))
                values = settings_of(one.recipe) | ({"teachers": one.teaching.teachers} if one.teaching else {})
                values |= self._chosen(own.metrics) if isinstance(own, PlainStages) else {}
                kind = type(one.recipe).__name__
                yield Settings(row=one.row, task=short_name(one.task), kind=kind, values=values)

    def _chosen(self, metrics: Stage) -> dict[str, Any]:
        """Return the settings that a plain classifier chose, and its seconds."""
        facts = self.records.facts(metrics)
        chosen = {f"chosen: {name}": value for name, value in facts.get("chosen", {}).items()}
        return chosen | ({"seconds": facts["seconds"]} if chosen else {})

    def _selected(self) -> Iterator[Selected]:
        """Yield the general text of each row and task, recipes before it included; all seeds share it."""
        seen: set[tuple[str, str]] = set()
        for one, own in self.stages.items():
            if (one.row, one.task) in seen:
                continue
            seen.add((one.row, one.task))
            for recipe, neighbours in _sources(one.recipe, own):
                yield self._selection(one, recipe, self.records.facts(neighbours))

    def _selection(self, one: Training, recipe: Recipe, facts: Mapping[str, Any]) -> Selected:
        ranks = facts.get("rank_bytes", [])
        return Selected(
            row=one.row,
            task=short_name(one.task),
            method=recipe.method.name,
            k=recipe.k,
            passages=facts.get("selected") if recipe.k >= len(ranks) else None,
            text_bytes=sum(ranks[: recipe.k]),
            sources={shown(name): n / facts["selected"] for name, n in facts.get("sources", {}).items()},
        )

    def _cases(self) -> list[Case]:
        """Return what was retrieved for each task, by the last row of the table that has text chosen per query."""
        found: dict[str, list[Case]] = {}
        tried: set[str] = set()  # seeds share a selection, and methods without queries have no cases
        for one, own in reversed(list(self.stages.items())):
            name = short_name(one.task)
            for recipe, neighbours in _sources(one.recipe, own):
                folder, asked = neighbours.folder(self.records.root), neighbours.inputs.get("task")
                is_own = asked is not None and asked.fingerprint == own.task.fingerprint  # else rows of several tasks
                if is_own and name not in found and folder not in tried and has_selection(folder):
                    tried.add(folder)
                    told = cases(name, own.task.folder(self.records.root), folder, recipe.method)
                    found |= {name: told} if told else {}
        return [case for task in reversed(list(found.values())) for case in task]

    def _tasks(self) -> list[TaskData]:
        facts = {short_name(one.task): self.records.facts(own.task) for one, own in self.stages.items()}
        return [
            TaskData(
                task=task,
                rows={split: own[f"{split}_rows"] for split in SPLITS if f"{split}_rows" in own},
                train_bytes=own.get("train_bytes", 0),
                test_in_train=own.get("test_in_train"),
            )
            for task, own in facts.items()
        ]


def _scored(group: Group) -> Scored:
    return Scored(
        row=group.row,
        task=group.task,
        folders=list(map(without_credentials, group.folders)),
        texts=without_credentials(group.task_folder),
        is_drawn=isinstance(group.recipe, Recipe),
    )


def learned_of(own: Stages | PlainStages, records: Records, *, row: str, task: str, seed: int) -> list[Learned]:
    """Return the histories of a training's stages, in order."""
    return [
        Learned(
            row=row,
            task=task,
            seed=seed,
            stage=stage.name.replace("_", " ") + (f" ({number})" if stage.name == "stage_one" and number > 1 else ""),
            history=curves_of(records.facts(stage).get("history", ())),
        )
        for number, stage in enumerate(own.trained, start=1)
    ]


def curves_of(history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return the entries of a training's history with steps, losses and dev scores alone."""
    return [{name: value for name, value in entry.items() if name not in NOT_CURVES} for entry in history]


def _made(stage: Stage, record: Record) -> Made:
    facts = record["facts"]
    return Made(
        name=stage.name,
        fingerprint=stage.fingerprint,
        seconds=record.get("seconds", 0.0),
        estimated_s=record.get("expected_s"),
        flops=flops_of(stage.cost, facts) if _is_training(stage, facts) else 0.0,
        flops_counted=facts.get("flops_counted", 0.0),
    )


def _sources(
    recipe: Recipe | PlainClassifier | None, own: Stages | PlainStages | None
) -> Iterator[tuple[Recipe, Stage]]:
    """Yield a recipe and the stage that chose its general text, then those of the recipes before it."""
    while isinstance(recipe, Recipe) and isinstance(own, Stages):
        if own.neighbours is not None:
            yield recipe, own.neighbours
        recipe, own = recipe.after, own.before


def _is_training(stage: Stage, facts: Mapping[str, Any]) -> bool:
    return "tokens" in stage.cost and "parameters" in facts


def _hours(seconds: float, compute: Compute) -> dict[str, float]:
    """Convert seconds of training to GPU or CPU hours."""
    kind = "GPU" if compute.gpu else "CPU"
    return {f"{kind} hours of training, with this run's compute": worker_hours(seconds, compute)}


def settings_of(recipe: Recipe | PlainClassifier) -> dict[str, Any]:
    """Return a recipe's settings, and those of the recipe before it that differ."""
    values, prefix = {name: _told(value) for name, value in flatten(recipe) if name}, f"{AFTER}."
    return {
        name: value
        for name, value in values.items()
        if not name.startswith(prefix) or value != values.get(name.removeprefix(prefix), ())
    }


def _told(value: Any) -> Any:
    """Return a setting for a page: lists as text, locations without credentials."""
    told = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return shown(told) if isinstance(told, str) else told
