"""Measure the speed of cutting a corpus into passages: one large JSONL file (one or two workers), many small files.

    python benchmarks/bench_passages.py --corpus data/corpus --gb 2 --files 20000

The large file repeats the corpus' documents; the small ones hold one each. All are made once, in `--folder`.
"""

import json
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import ray
import tyro
from rich.console import Console
from rich.table import Table

from tlm_ray import plain_errors, ray_options
from tlm_ray.corpus.general.documents import read_columns
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.general.passages import cut_passages

TOKENS = 128  # per passage, as in the recipes


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """What to measure on."""

    corpus: str
    """documents to repeat: file, folder, glob or URI"""
    folder: str = "/tmp/cutting"
    """folder for the corpora"""
    gb: float = 2.0
    """size of the large file"""
    files: int = 20_000
    """small ones"""
    turns: int = 5
    """repetitions per measurement"""


def main() -> None:
    options = tyro.cli(Cutting, description=__doc__)
    folder = Path(options.folder)
    if not folder.exists():
        make_files(options, folder)
    ray.init(**ray_options(), num_cpus=2)
    sides = {"one JSONL, one worker": ("large", 1), "one JSONL, two": ("large", 2), "small files, two": ("small", 2)}
    taken: dict[str, list[float]] = {side: [] for side in sides}
    size = {name: sum(file.stat().st_size for file in (folder / name).iterdir()) for name in ("large", "small")}
    for turn in range(options.turns + 1):
        for side, (name, workers) in sides.items():
            seconds = cut(folder, name, workers)
            if turn:  # the first is a warm-up
                taken[side].append(seconds)
    table = Table("side", "MB", "s, median", "MB/s", "of the first's speed", box=None, header_style="dim")
    first = next(iter(taken.values()))
    for side, (name, _) in sides.items():
        faster = [(size[name] / own) / (size["large"] / one) for own, one in zip(taken[side], first, strict=True)]
        megabytes, median = size[name] / 1e6, statistics.median(taken[side])
        row = (f"{megabytes:,.0f}", f"{median:.1f}", f"{megabytes / median:.1f}", f"{statistics.median(faster):.2f}x")
        table.add_row(side, *row)
    Console().print(table)


def cut(folder: Path, name: str, workers: int) -> float:
    """Cut one of the two corpora; return the seconds, without reading digests."""
    corpus = open_corpus(str(folder / name), column="text", digests=str(folder / f"{name}.json"))
    started = time.monotonic()
    cut_passages(str(folder / "out"), corpus, passage_tokens=TOKENS, workers=workers)
    taken = time.monotonic() - started
    shutil.rmtree(folder / "out")
    return taken


def make_files(options: Cutting, folder: Path) -> None:
    """Write the large file and the small ones."""
    corpus = open_corpus(options.corpus, column="text")
    batches = (batch for file in corpus.files for batch in read_columns(file.uri, ["text"]))
    texts = [text for batch in batches for text in batch[0].to_pylist() if text]
    for name in ("large", "small"):
        (folder / name).mkdir(parents=True)
    with open(folder / "large" / "large.jsonl", "w") as file:
        file.writelines(_lines(texts, options.gb * 1e9))
    for number, text in enumerate(islice(cycle(texts), options.files)):
        (folder / "small" / f"{number:06d}.txt").write_text(text)


def _lines(texts: list[str], most: float) -> Iterator[str]:
    size = 0
    for text in cycle(texts):
        line = json.dumps({"text": text}) + "\n"
        size += len(line)
        if size > most:
            return
        yield line


if __name__ == "__main__":
    with plain_errors():
        main()
