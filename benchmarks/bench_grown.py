"""Measure the cost of growing a corpus by a tenth, relative to a fresh run: passages, statistics and selection.

    python benchmarks/bench_grown.py --corpus data/corpus --task-root data/tasks --task sciie --gb 1

The corpus is a set of JSONL files of recombined documents, made once, in `--folder`. Each repetition makes all its
stages twice: under a root that already has those of ten elevenths of it, and under an empty root. Selections must be
equal.
"""

import json
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import ray
import tyro
from rich.console import Console
from rich.table import Table

from tlm_ray import plain_errors, ray_options
from tlm_ray.corpus.general.documents import read_columns
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.retrieval.selection import SelectionStore
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.cpu import MINI_RECIPE
from tlm_ray.runs.stages.making import Execution, make
from tlm_ray.runs.stages.stage import Stage

OLD, NEW = 20, 2  # files


@dataclass(frozen=True, kw_only=True)
class Grown:
    """What to measure on."""

    corpus: str
    """documents to recombine: file, folder, glob or URI"""
    task_root: str
    """folder with one subfolder per task"""
    task: str = "sciie"
    """task whose training texts are the queries"""
    folder: str = "/tmp/grown"
    """folder for the corpus and results"""
    gb: float = 1.0
    """size of the corpus before it grows"""
    turns: int = 5
    """repetitions per measurement"""


def main() -> None:
    options = tyro.cli(Grown, description=__doc__)
    folder = Path(options.folder)
    if not (folder / "corpus").exists():
        make_files(options, folder / "corpus")
    ray.init(**ray_options(), num_cpus=2)
    make(list(stages(options, "old-*.jsonl", "grown")), str(folder / "grown"))
    sides = ("grown", "anew")
    taken: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for turn in range(options.turns + 1):
        for side in sides:
            seconds = timed(options, folder, side)
            if turn:  # the first is a warm-up
                taken[side].append(seconds)
        check_equal(options, folder)
        for stage in stages(options, "*.jsonl", "grown"):
            shutil.rmtree(stage.folder(str(folder / "grown")))
        shutil.rmtree(folder / "anew")
    table = Table("stage", "s grown, median", "s anew", "grown / fresh", box=None, header_style="dim")
    for name in taken["grown"][0]:
        pairs = [(grown[name], anew[name]) for grown, anew in zip(*taken.values(), strict=True)]
        grown, anew = (statistics.median(times) for times in zip(*pairs, strict=True))
        table.add_row(name, f"{grown:.1f}", f"{anew:.1f}", f"{statistics.median(a / b for a, b in pairs):.3f}")
    Console().print(table)


def stages(options: Grown, files: str, root: str) -> Iterator[Stage]:
    """Return the stages for some files: passages, statistics and the selection, after the task."""
    place = Path(options.folder)
    corpus = open_corpus(str(place / "corpus" / files), column="text", digests=str(place / "digests.json"))
    flow = Flow(execution=Execution(root=str(place / root), workers=2), corpus=corpus, task_root=options.task_root)
    laid = flow.stages(MINI_RECIPE, options.task, 0)
    assert laid.passages is not None and laid.neighbours is not None
    yield laid.passages
    yield laid.neighbours.inputs["statistics"]
    yield laid.neighbours


def timed(options: Grown, folder: Path, side: str) -> dict[str, float]:
    """Make the stages of the whole corpus; return the seconds of each, and in all."""
    seconds: dict[str, float] = {}
    for stage in stages(options, "*.jsonl", side):
        started = time.monotonic()
        make([stage], str(folder / side))
        seconds[stage.name] = time.monotonic() - started
    return seconds | {"all": sum(seconds.values())}


def check_equal(options: Grown, folder: Path) -> None:
    """Assert that both sides have equal selections."""
    *_, stage = stages(options, "*.jsonl", "grown")
    grown, anew = (SelectionStore.open(stage.folder(str(folder / side))).read() for side in ("grown", "anew"))
    assert grown.equals(anew), "the selections differ"


def make_files(options: Grown, folder: Path) -> None:
    """Write files of equal size, of front and back halves of different documents."""
    corpus = open_corpus(options.corpus, column="text")
    batches = (batch for file in corpus.files for batch in read_columns(file.uri, ["text"]))
    texts = [text for batch in batches for text in batch[0].to_pylist() if text]
    numbers = count()
    folder.mkdir(parents=True)
    for name in [*(f"old-{i:02d}" for i in range(OLD)), *(f"{'abz'[i % 3]}new-{i}" for i in range(NEW))]:
        with open(folder / f"{name}.jsonl", "w") as file:
            while file.tell() < options.gb * 1e9 / OLD:
                number = next(numbers)
                front, back = texts[number % len(texts)], texts[(number * 7919 + 13) % len(texts)]
                text = f"{front[: len(front) // 2]} {back[len(back) // 2 :]}"
                file.write(json.dumps({"text": text}) + "\n")


if __name__ == "__main__":
    with plain_errors():
        main()
