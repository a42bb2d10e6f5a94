"""The command line in groups of flags: which recipe, what it changes, and what it may cost. For experiments alone."""

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.corpus.hub import short_name
from tlm_ray.retrieval.methods import Dense, Given, Method, method_named
from tlm_ray.runs.cpu_recipes import WORTH
from tlm_ray.runs.estimates import training_seconds
from tlm_ray.runs.options import Cluster, Data, Place, settle
from tlm_ray.runs.paces import start_seconds
from tlm_ray.runs.pipeline import Flow
from tlm_ray.runs.recipe import Recipe
from tlm_ray.runs.recipes import baseline, recipe_for
from tlm_ray.runs.scaling import least_tokens, recipe_parameters, recipe_tokens, scaled
from tlm_ray.runs.sizes import sizes_of
from tlm_ray.training.starts import Architecture


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Which recipe."""

    scale: str = ""
    """tiny, mini or midi (CPUs: embedded data, real text, more of it), small, medium or large (the paper's); the
    default is tiny for the embedded task, mini for others"""

    def at(self, task: str, flow: Flow) -> str:
        """Return the scale of a task's recipe."""
        return self.scale or ("tiny" if flow.is_embedded(task) else "mini")

    def recipe(self, task: str, flow: Flow) -> Recipe:
        """Return a task's recipe at the scale."""
        return recipe_for(short_name(task), self.at(task, flow), **_size(task, flow))


@dataclass(frozen=True, kw_only=True)
class Changes(Scale):
    """Which recipe, and what is trained otherwise."""

    precision: str = ""
    """fp32, bf16, or auto (bf16 where the hardware multiplies it fast), instead of the recipe's"""
    architecture: str = ""
    """hub name or local folder of the encoder to build from random weights, instead of the recipe's geometry"""
    steps: int | None = None
    """steps of stage one, instead of the recipe's"""
    steps_two: int | None = None
    """steps of stage two, instead of the recipe's"""

    def __post_init__(self) -> None:
        settle(self, storage.absolute_if_there, "architecture")

    def recipe(self, task: str, flow: Flow) -> Recipe:
        """Return a task's recipe at the scale, changed."""
        recipe = super().recipe(task, flow)
        start = Architecture(self.architecture) if self.architecture else None
        if start is not None and recipe.counts is not None:  # its width is known when it is opened
            _print_once(f"--architecture {self.architecture}: begins with random embeddings, not with counts")
            recipe = replace(recipe, counts=None)
        asked: dict[str, Any] = {"precision": self.precision, "start": start}
        for name, steps in (("stage_one", self.steps), ("stage_two", self.steps_two)):
            asked[name] = None if steps is None else getattr(recipe, name).of_steps(steps)
        return _changed(recipe, asked)


@dataclass(frozen=True, kw_only=True)
class Passages:
    """How many passages per query."""

    k: int | None = None
    """passages kept per query, instead of the recipe's"""
    depth: int | None = None
    """passages retrieved per query, instead of the largest k asked for"""

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise ValueError(f"--depth {self.depth}: must be 1 or more, the passages retrieved per query")

    def change(self, recipe: Recipe) -> Recipe:
        """Return a recipe with these numbers of passages."""
        k = recipe.k if self.k is None else self.k
        return replace(recipe, k=k, depth=self.depth or max(recipe.depth, k))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """What stage one's batches are made of."""

    rho1: int | None = None
    """general batches per task batch, instead of the recipe's"""
    external_only: bool = False
    """no task batches in stage one (table 5)"""
    rho2: float | None = None
    """weight of the MLM loss in task batches, instead of the recipe's"""

    def __post_init__(self) -> None:
        if self.external_only:
            for name in ("rho1", "rho2"):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(f"--{name} {value:g}: --external-only leaves task batches out; give one of them")

    def change(self, recipe: Recipe) -> Recipe:
        """Return a recipe with this mixture."""
        changed = _changed(recipe, {"rho1": self.rho1, "rho2": self.rho2})
        return replace(changed, rho1=None) if self.external_only else changed


@dataclass(frozen=True, kw_only=True)
class Methods:
    """How passages are retrieved."""

    methods: list[str] = field(default_factory=lambda: ["bm25", "random"])
    """retrieval methods by name, such as rake, dense or dsir"""
    given: str = ""
    """file of texts with ranks, retrieved elsewhere, as one more method; {task} in it stands for the task's name"""
    encoder: str = ""
    """hub name or local folder whose embeddings the method "dense" compares, instead of its default"""

    def __post_init__(self) -> None:
        if self.encoder and "dense" not in self.methods:
            raise ValueError(f"--encoder {self.encoder}: is for the method dense; add it to --methods")
        settle(self, storage.absolute_if_there, "encoder")
        settle(self, storage.absolute, "given")

    def chosen(self) -> dict[str, Method]:
        """Return the methods by their names."""
        found = {name: method_named(name) for name in self.methods}
        found |= {"dense": Dense(encoder=self.encoder)} if self.encoder else {}
        return found | ({Given.name: Given(location=self.given)} if self.given else {})


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one training may cost; the recipe is cut to it."""

    tokens: int | None = None
    """tokens that one training may take over both stages: steps and, if need be, rows per step are cut to it"""
    minutes: float | None = None
    """minutes that one training may take, by the estimate of --dry-run: the recipe is cut to it likewise, mini or
    midi, whichever makes more of them"""

    def __post_init__(self) -> None:
        if self.tokens is not None and self.minutes is not None:
            raise ValueError("--tokens and --minutes: both are a budget; give one of them")
        for name in ("tokens", "minutes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"--{name} {value:g}: must be more than 0")

    def at_best_scale(self, changes: Changes, task: str, flow: Flow) -> Changes:
        """Return the changes at the scale that the minutes are best spent at, and print it where it is another."""
        given = changes.at(task, flow)
        if self.minutes is None or given not in WORTH or changes.architecture:
            return changes
        for scale, share in WORTH.items():
            found = replace(changes, scale=scale)
            recipe = found.recipe(task, flow)
            if _tokens_in(self.minutes, recipe, task, flow) >= share * recipe_tokens(recipe):
                break
        if scale != given:
            _print_once(f"scale: {scale} instead of {given}")
        return found

    def cut(self, recipe: Recipe, task: str, flow: Flow) -> Recipe:
        """Return a recipe within the budget, and print what that changes."""
        tokens = self.tokens if self.minutes is None else self._tokens(self.minutes, recipe, task, flow)
        if tokens is None:
            return recipe
        recipe, changes = scaled(recipe, tokens)
        for change in changes:
            _print_once(change)
        return recipe

    def _tokens(self, minutes: float, recipe: Recipe, task: str, flow: Flow) -> int:
        if recipe_parameters(recipe) is None:
            raise ValueError(f"--minutes {minutes:g}: the speed of --architecture is not known; give --tokens")
        tokens = _tokens_in(minutes, recipe, task, flow)
        if tokens < least_tokens(recipe):
            whole, fixed = training_seconds(recipe, task, flow), _fixed_seconds(recipe, flow)
            least = (fixed + (whole - fixed) * least_tokens(recipe) / recipe_tokens(recipe)) / 60
            raise ValueError(
                f"--minutes {minutes:g}: this recipe can be cut to {math.ceil(100 * least) / 100:g} minutes at least "
                f"({fixed:.0f} s of it start its processes); give that or more, or lower rho1 or the lengths of rows"
            )
        return tokens


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What every experiment of trainings takes; derive its options from it, with what else it uses."""

    data: Data = field(default_factory=Data)
    changes: Changes = field(default_factory=Changes)
    passages: Passages = field(default_factory=Passages)
    budget: Budget = field(default_factory=Budget)
    place: Place = field(default_factory=Place)
    cluster: Cluster = field(default_factory=Cluster)
    seeds: int = 2
    """trainings per cell, seeds 0, 1, ..."""
    log_models: bool = False
    """put the trained encoders into MLflow too"""
    dry_run: bool = False
    """list every stage as found or to make, with its cost, and stop"""
    price: float | None = None
    """price of an hour of a GPU, or of a CPU where there is none, for --dry-run"""
    why: bool = False
    """list every stage to make and how it differs from the nearest result, and stop"""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"--seeds {self.seeds}: must be 1 or more")

    def recipe(self, task: str, flow: Flow, mixture: Mixture) -> Recipe:
        """Return a task's recipe with the changes of the command line, within its budget."""
        changes = self.budget.at_best_scale(self.changes, task, flow)
        recipe = mixture.change(self.passages.change(changes.recipe(task, flow)))
        return self.budget.cut(recipe, task, flow)

    def fine_tuned(self, recipe: Recipe, start: str, kind: str, task: str, flow: Flow) -> Recipe:
        """Return the recipe of a pretrained encoder (`recipes.baseline`), with the same changes and the same budget."""
        if self.budget.minutes is not None:
            raise ValueError(
                f"--minutes {self.budget.minutes:g}: the speed of the encoder {start!r} is not known; give --tokens"
            )
        made = baseline(recipe, start, kind, train_rows=sizes_of(flow, recipe, task).queries)
        if self.changes.steps_two is not None:
            made = replace(made, stage_two=made.stage_two.of_steps(self.changes.steps_two))
        return self.budget.cut(made, task, flow)


def _changed(recipe: Recipe, asked: dict[str, Any]) -> Recipe:
    """Return a recipe with the values that were given."""
    return replace(recipe, **{name: value for name, value in asked.items() if value not in (None, "")})


def _tokens_in(minutes: float, recipe: Recipe, task: str, flow: Flow) -> int:
    """Return the tokens, as the paper counts them, that a recipe trains on in some minutes, by its pace here."""
    whole, fixed = training_seconds(recipe, task, flow), _fixed_seconds(recipe, flow)
    return int((60 * minutes - fixed) / (whole - fixed) * recipe_tokens(recipe))


def _fixed_seconds(recipe: Recipe, flow: Flow) -> float:
    """Return the seconds of a training's stages that do not grow with its tokens."""
    return start_seconds(flow.execution.compute) * ((recipe.stage_one is not None) + (not recipe.one_stage))


def _size(task: str, flow: Flow) -> dict[str, int]:
    """Return the size of a task's training set, on which recipes of ours, and of tasks that the paper lacks, depend."""
    if flow.is_embedded(task):
        return {}
    texts = flow.read(task).train_texts
    words = sorted(len(text.split()) for text in texts)
    return {"train_rows": len(words), "row_words": words[3 * len(words) // 4]}


@cache
def _print_once(line: str) -> None:
    console.print(line)  # the rows, tasks and trials of an experiment mostly share a schedule
