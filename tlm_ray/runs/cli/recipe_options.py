"""Command-line options of experiments: the recipe, changes to it, and its budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tlm_ray import storage
from tlm_ray.console import print_once
from tlm_ray.corpus.cleaning import Cleaning
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.corpus.labelled.marks import marks_of
from tlm_ray.retrieval.methods import Dense, Given, Method, method_named
from tlm_ray.runs.cli.options import Cluster, Data, Place, settle
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.planning.minutes import is_enough, share_within, within
from tlm_ray.runs.recipes.adaptation import adapted
from tlm_ray.runs.recipes.budget import of_rows, part_of, scaled
from tlm_ray.runs.recipes.cpu import WORTH
from tlm_ray.runs.recipes.marking import reading_marks
from tlm_ray.runs.recipes.paper import baseline, recipe_for, size_of
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.recipes.resizing import resized
from tlm_ray.training.encoders.starts import Architecture

Before = Literal["plain", "mlm", "tapt", "dapt", "dapt+tapt", "tlm", "adapted"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The recipe."""

    scale: str = ""
    """tiny, mini or midi (for CPUs), small, medium or large (the paper's); if unset: mini, or tiny for docstrings"""

    def at(self, task: str, flow: Flow) -> str:
        """Return the scale of a task's recipe."""
        return self.scale or ("tiny" if flow.is_embedded(task) else "mini")

    def recipe(self, task: str, flow: Flow) -> Recipe:
        """Return a task's recipe at the scale."""
        size = {} if flow.is_embedded(task) else size_of(flow.read(task).train_texts)
        return recipe_for(short_name(task), self.at(task, flow), **size)


@dataclass(frozen=True, kw_only=True)
class Changes(Scale):
    """The recipe and changes to its settings."""

    precision: str = ""
    """fp32, bf16, or auto (bf16 if the hardware is fast at it); if unset: the recipe's"""
    architecture: str = ""
    """hub name or local folder of an encoder whose architecture is trained from scratch; if unset: the recipe's"""
    clean: bool = False
    """first drop lines, pages and repeated spans of the corpus by C4's rules (docs/your_data.md)"""
    marks: bool = False
    """the classifier also reads the states at the two spans that texts mark, such as [[ ... ]] and << ... >>"""
    batch_rows: int | None = None
    """rows per step of trainings from random weights, at as many rows in all; if unset: the recipe's"""
    steps: int | None = None
    """training steps of stage one; if unset: the recipe's"""
    steps_two: int | None = None
    """training steps of stage two; if unset: the recipe's"""

    def __post_init__(self) -> None:
        settle(self, storage.absolute_if_there, "architecture")
        if self.batch_rows is not None and self.batch_rows < 1:
            raise ValueError(f"--batch-rows {self.batch_rows}: must be 1 or more (rows per step)")

    def recipe(self, task: str, flow: Flow) -> Recipe:
        """Return a task's recipe at the scale, with these changes."""
        recipe = super().recipe(task, flow)
        if self.batch_rows is not None:
            recipe = of_rows(recipe, self.batch_rows)
        start = Architecture(self.architecture) if self.architecture else None
        if start is not None and recipe.counts is not None:  # the width is unknown before the encoder is opened
            print_once(f"--architecture {self.architecture}: embeddings start random instead of from token counts")
            recipe = replace(recipe, counts=None)
        cleaning = Cleaning() if self.clean else None
        asked: dict[str, Any] = {"precision": self.precision, "start": start, "cleaning": cleaning}
        for name, steps in (("stage_one", self.steps), ("stage_two", self.steps_two)):
            asked[name] = None if steps is None else getattr(recipe, name).of_steps(steps)
        return _changed(recipe, asked)

    def marked(self, recipe: Recipe, task: str, flow: Flow, tasks: Sequence[str]) -> Recipe:
        """Return a recipe whose classifier reads the marks, if asked and if the task's texts have some.

        tasks: all tasks of the experiment. ValueError if the texts of none of them mark two spans each.
        """
        if not self.marks:
            return recipe
        if found := _signs(task, flow):
            return reading_marks(recipe, found)
        if not any(_signs(other, flow) for other in tasks):
            named = ", ".join(map(short_name, tasks))
            raise ValueError(f"--marks: the texts of {named} do not mark two spans each; leave it out")
        print_once(f"--marks: the texts of {short_name(task)} do not mark two spans each, so its rows read none")
        return recipe


@dataclass(frozen=True, kw_only=True)
class Passages:
    """Numbers of passages per query."""

    k: int | None = None
    """passages used per query; if unset: the recipe's"""
    depth: int | None = None
    """passages retrieved per query, at least k; if unset: the largest k"""

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise ValueError(f"--depth {self.depth}: must be 1 or more (passages retrieved per query)")

    def change(self, recipe: Recipe) -> Recipe:
        """Return a recipe with these numbers of passages."""
        k = recipe.k if self.k is None else self.k
        return replace(recipe, k=k, depth=self.depth or max(recipe.depth, k))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The mix of batches in stage one."""

    rho1: int | None = None
    """general batches per task batch; if unset: the recipe's"""
    external_only: bool = False
    """train stage one on general batches only (table 5)"""
    rho2: float | None = None
    """weight of the MLM loss in task batches; if unset: the recipe's"""

    def __post_init__(self) -> None:
        if self.external_only:
            for name in ("rho1", "rho2"):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(f"--{name} {value:g}: has no effect with --external-only; give one of them")

    def change(self, recipe: Recipe) -> Recipe:
        """Return a recipe with this mixture."""
        changed = _changed(recipe, {"rho1": self.rho1, "rho2": self.rho2})
        return replace(changed, rho1=None) if self.external_only else changed


@dataclass(frozen=True, kw_only=True)
class EncoderSize:
    """The size of a pretrained encoder, where it is to be another than its own."""

    layers: int | None = None
    """keep N layers of --start, evenly spaced, and its 5,000 most frequent pieces; if unset: all"""
    new_words: int | None = None
    """add so many words that the tokenizer of --start splits, the frequent ones of the texts to train on, each
    initialised with the mean of its pieces; if unset: none"""

    def __post_init__(self) -> None:
        for name, count in (("layers", self.layers), ("new-words", self.new_words)):
            if count is not None and count < 1:
                raise ValueError(f"--{name} {count}: must be 1 or more")
        if self.layers and self.new_words:
            raise ValueError(f"--new-words {self.new_words}: --layers {self.layers} trims the pieces; give one of them")

    def change(self, recipe: Recipe) -> Recipe:
        """Return a recipe with this size of its encoder."""
        return resized(recipe, layers=self.layers, new_words=self.new_words)


OWN_SIZE = EncoderSize()


@dataclass(frozen=True, kw_only=True)
class Methods:
    """Methods of retrieving passages."""

    methods: list[str] = field(default_factory=lambda: ["bm25", "random"])
    """retrieval methods, such as bm25, random, rake, dense or dsir"""
    given: str = ""
    """file of texts with ranks, retrieved by another tool, as a further method; {task} is replaced by the task's
    name"""
    encoder: str = ""
    """hub name or local folder of the encoder of the retrieval method dense"""

    def __post_init__(self) -> None:
        if self.encoder and "dense" not in self.methods:
            raise ValueError(f"--encoder {self.encoder}: is used by the method dense only; add dense to --methods")
        settle(self, storage.absolute_if_there, "encoder")
        settle(self, storage.absolute, "given")

    def chosen(self) -> dict[str, Method]:
        """Return the chosen methods by name."""
        found = {name: method_named(name) for name in self.methods}
        found |= {"dense": Dense(encoder=self.encoder)} if self.encoder else {}
        return found | ({Given.name: Given(location=self.given)} if self.given else {})


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The budget per training; the recipe is shortened to fit."""

    tokens: int | None = None
    """maximum tokens per training, over both stages; reduces steps, then rows per step. Rows of a table that change
    the recipe afterwards, such as rho1 = 1, may take more"""
    minutes: float | None = None
    """maximum minutes per training (a student takes more), by the speed of recorded ones; reduces steps, and chooses
    an unset --scale"""
    part: float | None = None
    """share of the recipe's tokens to train on, below 1, such as 0.33; reduces steps, then rows per step"""

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) > 1:
            raise ValueError(f"{' and '.join(f'--{name}' for name in given)}: each sets the budget; give one of them")
        for name, value in given.items():
            if not 0 < value < math.inf:
                raise ValueError(f"--{name} {value:g}: must be more than 0")
        if self.part is not None and self.part >= 1:
            raise ValueError(f"--part {self.part:g}: must be less than 1, a share of the recipe's tokens")

    @property
    def given(self) -> str:
        """The option that sets a budget, with its value; "" if none does."""
        return next((f"--{name} {value:.12g}" for name, value in vars(self).items() if value is not None), "")

    def at_best_scale(self, changes: Changes, task: str, flow: Flow) -> Changes:
        """Return the changes at the scale that suits the minutes best, unless one is given; prints it if it differs."""
        given = changes.at(task, flow)
        if self.minutes is None or changes.scale or given not in WORTH or changes.architecture:
            return changes
        for scale, share in WORTH.items():
            found = replace(changes, scale=scale)
            if share_within(self.minutes, found.recipe(task, flow), flow.execution) >= share:
                break
        if scale != given:
            print_once(f"scale: {scale} instead of {given}")
        return found

    def cut(self, recipe: Recipe, flow: Flow) -> Recipe:
        """Return a recipe that fits the budget, and print what changed."""
        changes: Sequence[str] = []
        if self.minutes is not None:
            recipe, changes = within(self.minutes, recipe, flow.execution)
        elif self.tokens is not None:
            recipe, changes = scaled(recipe, self.tokens)
        elif self.part is not None:
            recipe, changes = part_of(recipe, self.part)
        for change in changes:
            print_once(change)
        return recipe

    def is_enough(self, recipe: Recipe, flow: Flow) -> bool:
        """Return whether the minutes are enough for a recipe as it is."""
        return is_enough(self.minutes, recipe, flow.execution)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of every experiment that trains; derive your own options from it."""

    data: Data = field(default_factory=Data)
    changes: Changes = field(default_factory=Changes)
    passages: Passages = field(default_factory=Passages)
    budget: Budget = field(default_factory=Budget)
    place: Place = field(default_factory=Place)
    cluster: Cluster = field(default_factory=Cluster)
    seeds: int = 2
    """trainings per cell, with seeds 0, 1, ..."""
    log_models: bool = False
    """also log the trained encoders to MLflow"""
    dry_run: bool = False
    """list all stages (cached or to run) with their cost, and stop"""
    price: float | None = None
    """price per GPU hour (per CPU hour without GPUs), for --dry-run"""
    why: bool = False
    """list the stages to run, each with the settings that differ from the nearest cached result, and stop"""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"--seeds {self.seeds}: must be 1 or more")
        check_price(self.price, dry_run=self.dry_run)

    def recipe(self, task: str, flow: Flow, mixture: Mixture) -> Recipe:
        """Return a task's recipe with the command line's changes, within the budget."""
        changes = self.budget.at_best_scale(self.changes, task, flow)
        recipe = mixture.change(self.passages.change(changes.recipe(task, flow)))
        return self.budget.cut(changes.marked(recipe, task, flow, self.data.tasks), flow)

    def fine_tuned(
        self, start: str, kind: Before, task: str, flow: Flow, mixture: Mixture, *, size: EncoderSize = OWN_SIZE
    ) -> Recipe:
        """Return the recipe of a pretrained encoder, with the same changes and the same budget.

        kind: what trains it before its fine-tuning, see `recipes.baseline`; "adapted" is `recipes.adaptation`. Of two
        trainings before it (dapt+tapt) the first has a budget of its own, as in the row that ends with it.
        """
        whole = self.whole_fine_tuned(start, kind, task, flow, mixture, size=size)
        after = None if whole.after is None else self.budget.cut(whole.after, flow)
        return self.budget.cut(replace(whole, after=after), flow)

    def whole_fine_tuned(
        self, start: str, kind: Before, task: str, flow: Flow, mixture: Mixture, *, size: EncoderSize = OWN_SIZE
    ) -> Recipe:
        """Return the recipe of a pretrained encoder before the budget cuts it."""
        changes, rows = replace(self.changes, batch_rows=None), flow.train_rows(task)
        recipe = mixture.change(self.passages.change(changes.recipe(task, flow)))
        if kind == "adapted":
            made = adapted(recipe, start, train_rows=rows, steps=self.changes.steps)
        else:
            made = baseline(recipe, start, kind, train_rows=rows)
        made = size.change(made)
        if self.changes.steps_two is not None:
            made = replace(made, stage_two=made.stage_two.of_steps(self.changes.steps_two))
        return self.changes.marked(made, task, flow, self.data.tasks)


def check_price(price: float | None, *, dry_run: bool) -> None:
    """Raise ValueError for a price that nothing would be multiplied by."""
    if price is not None and not dry_run:
        raise ValueError(f"--price {price:g}: is for --dry-run; add that, or leave it out")


def _changed(recipe: Recipe, asked: dict[str, Any]) -> Recipe:
    """Return a recipe with the given values; None and "" change nothing."""
    return replace(recipe, **{name: value for name, value in asked.items() if value not in (None, "")})


def _signs(task: str, flow: Flow) -> tuple[str, ...]:
    """Return the four signs that mark two spans in a task's texts, none if they do not."""
    found = None if flow.is_embedded(task) else marks_of(flow.read(task).train_texts)
    return () if found is None else found.signs
