"""Plot scores over minutes: the best model that some minutes of training buy, on test scores.

    python experiments/frontier.py                                                       # embedded data
    python experiments/frontier.py --tasks sciie --larger midi --task-root data/tasks --corpus data/corpus
    python experiments/frontier.py --start FOLDER --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/frontier.py --dry-run

    TF-IDF, windows, BM25 neighbours   as in every table
    TLM                                parts of the recipe, all of it, larger ones
    NAME frozen, fine-tuned, adapted   with --start: a pretrained encoder, without the time of its pretraining; the
                                       last two as --before says, also parts of them
    NAME, N of its layers              with --layers N: a smaller encoder cut from it, fine-tuned
    ROW, student of N                  with --student-of ROW: small models that learn what N seeds of the row predict

Rows that train an encoder also have ensembles: the mean of their seeds, and each with the better linear model.
Minutes are those of training, as measured, without the retrieval that rows share. Those of a student include its
teachers. They are comparable if nothing else ran beside: give `--side-by-side 1`. Below the table: the rows that are
better on dev than all faster ones and, with several tasks, how far each is above the better linear model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import ray

from tlm_ray import Flow, Outcome, Recipe, TfIdf, Training, View, Windows, main, storage
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.plain import FrozenEncoder
from tlm_ray.report.tables.best_of import best_of_notes
from tlm_ray.report.tables.frontier import frontier_notes
from tlm_ray.runs.cli.options import settle
from tlm_ray.runs.cli.recipe_options import EncoderSize
from tlm_ray.runs.cli.taught_table import TaughtTable
from tlm_ray.runs.recipes.budget import parts_of

OURS = "TLM"
Kind = Literal["plain", "adapted"]
KINDS: dict[Kind, str] = {"plain": "fine-tuned", "adapted": "adapted"}


@dataclass(frozen=True, kw_only=True)
class Frontier(TaughtTable):
    """Options of the figure."""

    name, split, cost, pooled = "frontier", "test", "minutes", True

    parts: list[float] = field(default_factory=lambda: [0.25, 0.5])
    """shares of the tokens to train on, a row each, beside the whole: of TLM and of each row of --before"""
    larger: list[str] = field(default_factory=list)
    """further scales, a row each, such as midi"""
    start: str = ""
    """hub name or local folder of a pretrained encoder: a row of it frozen, and those of --before"""
    layers: list[int] = field(default_factory=list)
    """so many layers of --start, evenly spaced, and its 5,000 most frequent pieces, fine-tuned: a row each"""
    before: list[Kind] = field(default_factory=lambda: list(KINDS))
    """training before the fine-tuning of --start, a row each: plain (none), adapted (retrieved text)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, storage.absolute_if_there, "start")
        if self.larger and self.budget.minutes is not None:
            raise ValueError(f"--minutes {self.budget.minutes:g}: gives every row the same time; leave out --larger")
        if self.before != list(KINDS) and not self.start:
            raise ValueError(f"--before {' '.join(self.before)}: applies to a pretrained encoder; give --start too")
        if self.layers and not self.start:
            given = " ".join(map(str, self.layers))
            raise ValueError(f"--layers {given}: applies to a pretrained encoder; give --start too")
        if self.layers and min(self.layers) < 1:
            raise ValueError(f"--layers {min(self.layers)}: must be 1 or more")
        for part in self.parts:
            if not 0 < part < 1:
                raise ValueError(f"--parts {part:g}: must be between 0 and 1, a share of the recipe's tokens")

    def recipes(self, task: str, flow: Flow) -> Mapping[str, Recipe]:
        """Return the rows that train an encoder."""
        found = dict(super().recipes(task, flow))
        for scale in self.larger:
            own = replace(self, changes=replace(self.changes, scale=scale))
            found[f"{OURS} {scale}"] = own.recipe(task, flow, self.mixture)
        if self.larger and len(set(found.values())) < len(found):
            raise ValueError(f"--larger {' '.join(self.larger)}: give scales other than the table's own, each once")
        return found | (self._of_encoder(task, flow) if self.start else {})

    def _of_encoder(self, task: str, flow: Flow) -> dict[str, Recipe]:
        how = task, flow, self.mixture
        sizes = {self._cut(count): EncoderSize(layers=count) for count in self.layers}
        found = {row: self.fine_tuned(self.start, "plain", *how, size=size) for row, size in sizes.items()}
        for kind in self.before:
            found |= self._with_parts(self._whole(kind), self.fine_tuned(self.start, kind, *how))
        return found

    def _cut(self, layers: int) -> str:
        return f"{short_name(self.start)}, {layers} of its layers"

    def _whole(self, kind: Kind) -> str:
        return f"{short_name(self.start)} {KINDS[kind]}"

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return parts of the recipe, then all of it."""
        return self._with_parts(OURS, recipe)

    def _with_parts(self, row: str, recipe: Recipe) -> dict[str, Recipe]:
        try:
            parts = parts_of(recipe, self.parts)
        except ValueError as error:
            given = " ".join(f"{part:g}" for part in self.parts)
            raise ValueError(f"--parts {given}: a part of {row!r} is too short; give larger parts ({error})") from error
        return {f"{row}, {part:g} of it": own for part, own in parts.items()} | {row: recipe}

    def trainings(self, flow: Flow) -> list[Training]:
        """Return all rows, the frozen encoder first."""
        row, frozen = f"{short_name(self.start)} frozen", FrozenEncoder(source=self.start)
        own = [Training(row=row, task=task, recipe=frozen) for task in self.data.tasks] if self.start else []
        return own + super().trainings(flow)

    def rows_with_ensembles(self, trainings: Sequence[Training]) -> list[str]:
        """Return all rows that train an encoder."""
        return list(dict.fromkeys(one.row for one in trainings if isinstance(one.recipe, Recipe)))

    def main_row(self, rows: list[str]) -> str:
        """Return the whole recipe."""
        return OURS

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect more training to be better."""
        return [(OURS, row) for row in rows if row.startswith(f"{OURS},") and "of it" in row]

    def notes(self, outcome: Outcome) -> list[str]:
        """Return the frontier of each task, and how far rows are above the better linear model."""
        results = outcome.results(View(split=self.split))
        linear = best_of_notes(results, [TfIdf.name, Windows.name], name="the better linear model on dev")
        return [*frontier_notes(results), *linear]


if __name__ == "__main__":
    main(Frontier, __doc__, ray.init)
