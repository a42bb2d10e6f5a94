"""Random histories of a corpus that grows, of jobs that are stopped and of others in between: is it the fresh result?

    python tests/growth_histories.py                                 # 200 histories: two to ten minutes
    python tests/growth_histories.py --histories 1000 --first 200    # others

A history has some files of texts. Each of its jobs retrieves from some of them, all under one root. Some jobs are
stopped at a random item of their work, and some earlier results are deleted. At the end every job that was stopped is
run again, and its result must be that of an empty root, to the bit.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tyro
from alone import in_this_process
from rich.console import Console
from small import SELECTED, laid_out
from small_data import TOPICS, write_small

from tlm_ray import parallel
from tlm_ray.console import console
from tlm_ray.corpus.general import portions
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.retrieval.selection import DROPPED
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.stages.making import Execution, make

JOBS = 6  # of a history
FILES = 5
SHARDS = 6
WORDS = np.concatenate(list(TOPICS.values()))
NOISE = np.array([f"noise{number}" for number in range(300)])
# the work at which jobs are stopped, the search as often as all others
STOPS = ["cut passages", "count terms", "known passages", "bound", "merge", "unite", *["search"] * 6]


class Stopped(Exception):
    """A job was stopped."""


@dataclass
class Stop:
    """Where a job is stopped."""

    title: str = ""
    """of the work, "" for nowhere"""
    left: int = 0
    """items of it before that"""

    def before_each_item_of(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return what does some work as long as the job is let run."""
        return lambda items, *a, title, **options: work(self._let_run(items, title), *a, title=title, **options)

    def _let_run(self, items: Sequence[Any], title: str) -> Iterator[Any]:
        for item in items:
            if title == self.title and not self.left:
                raise Stopped
            self.left -= title == self.title
            yield item


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Run the cluster's work in this process, and stop it where that is asked."""
    with in_this_process(), pytest.MonkeyPatch.context() as patch:
        stop = Stop()
        for name in ("each", "ray_tasks"):
            patch.setattr(parallel, name, stop.before_each_item_of(getattr(parallel, name)))
        yield stop


@dataclass
class History:
    """Files, and the jobs that retrieve from some of them."""

    place: Path
    """an empty folder"""
    tasks: Path
    """the folder of the task"""
    stop: Stop
    """of the job that runs"""
    draw: np.random.Generator
    """of everything random"""
    counts: Counter = field(default_factory=Counter)
    """what happened"""

    def write_files(self) -> None:
        """Write files of few texts on the task's topics, or of many whose words make such words common."""
        (self.place / "files").mkdir()
        leaks = pq.read_table(self.tasks / "topics" / "dev.parquet")["text"].to_pylist()
        for number in range(FILES):
            shifts = number and self.draw.random() < 0.5
            texts = self._shifting(1000) if shifts else self._speaking(int(self.draw.integers(10, 250)))
            texts[3:3] = list(self.draw.choice(leaks, int(self.draw.integers(4)), replace=False))
            name = f"{self.draw.integers(10)}-{number}.parquet"  # ids follow names: new ones come before old ones, too
            pq.write_table(pa.table({"text": texts}), self.place / "files" / name)

    def _speaking(self, count: int) -> list[str]:
        words = self.draw.choice(np.concatenate([WORDS, NOISE[:40]]), (count, 30))
        return [" ".join(row[: 6 + row_number % 24]) for row_number, row in enumerate(words)]

    def _shifting(self, count: int) -> list[str]:
        """Return long texts with one word of half of the task's words each."""
        some = self.draw.permutation(WORDS)[: len(WORDS) // 2]
        words = np.column_stack([self.draw.choice(some, count), self.draw.choice(NOISE, (count, 30))])
        return [" ".join(row) for row in words]

    def corpora(self) -> list[frozenset[str]]:
        """Draw the corpora of the jobs, each larger or smaller than the one before it by up to three files."""
        names = list(self.draw.permutation(sorted(path.name for path in (self.place / "files").iterdir())))
        found, size = [frozenset(names[:1])], 1
        for _ in range(JOBS - 1):
            size = int(np.clip(size + self.draw.choice([-2, -1, -1, 1, 2, 3]), 1, len(names)))
            found.append(frozenset(names[:size]))
        return found

    def run(self) -> list[str]:
        """Run all jobs; return what is not as an empty root gives it."""
        self.write_files()
        corpora = self.corpora()
        stopped = {corpora[-1]}
        for number, corpus in enumerate(corpora):
            self._maybe_forget()
            if number and self.draw.random() < 0.7:
                self.stop.title = str(self.draw.choice(STOPS))
                self.stop.left = int(self.draw.integers(SHARDS))
            try:
                self._make(corpus, "root", shards=SHARDS)
            except Stopped:
                self.counts["stopped"] += 1
                stopped.add(corpus)
            self.stop.title = ""
        return [problem for corpus in sorted(stopped, key=len) for problem in self._differences(corpus)]

    def _maybe_forget(self) -> None:
        """Delete an earlier result, now and then."""
        found = sorted((self.place / "root" / "neighbours").glob("*"))
        if found and self.draw.random() < 0.1:
            shutil.rmtree(self.draw.choice(found))
            self.counts["forgotten"] += 1

    def _differences(self, corpus: frozenset[str]) -> list[str]:
        """Retrieve from a corpus, with what is there and with an empty root; return what differs."""
        here = self._make(corpus, "root", shards=SHARDS)
        fresh = self._make(corpus, "fresh-" + "-".join(sorted(corpus)), shards=3)
        self.counts["compared"] += 1
        self.counts["grown"] += here["grown"]
        self.counts["searched again"] += here["again"]
        wrong = [name for name in (SELECTED, DROPPED, "contaminated") if here[name] != fresh[name]]
        return [f"{name} of {len(corpus)} files" for name in wrong]

    def _make(self, corpus: frozenset[str], root: str, *, shards: int) -> dict[str, Any]:
        """Retrieve from a corpus; return what identifies the result, and how it came about."""
        folder = self.place / "corpus"
        folder.mkdir()
        for name in corpus:
            os.link(self.place / "files" / name, folder / name)
        execution = Execution(root=str(self.place / root), shards=shards)
        flow = Flow(execution=execution, corpus=open_corpus(str(folder), column="text"), task_root=str(self.tasks))
        stage = laid_out(flow).neighbours
        try:
            facts = make([stage], execution.root)[stage.fingerprint]["facts"]
        finally:
            shutil.rmtree(folder)
        files = {name: (Path(stage.folder(execution.root)) / name).read_bytes() for name in (SELECTED, DROPPED)}
        how = {"grown": "grown_from" in facts, "again": facts.get("searched_again", 0) > 0}
        return files | how | {"contaminated": facts["contaminated"]}


def differing(seed: int, tasks: Path, counts: Counter) -> list[str]:
    """Run the history of a seed; return what is not as an empty root gives it."""
    place = Path(tempfile.mkdtemp(prefix="growth-"))
    try:
        with stoppable() as stop, pytest.MonkeyPatch.context() as patch:
            patch.setattr(portions, "TOGETHER_BYTES", 1)  # a part per file, so that ids move as in large corpora
            return History(place, tasks, stop, np.random.default_rng(seed), counts).run()
    finally:
        shutil.rmtree(place)


def main(histories: int = 200, first: int = 0) -> None:
    """Run random histories.

    Args:
        histories: how many.
        first: the seed of the first.
    """
    console.quiet = True
    data, counts, wrong = Path(tempfile.mkdtemp(prefix="growth-")), Counter(), 0
    write_small(data)
    for seed in range(first, first + histories):
        found = differing(seed, data / "tasks", counts)
        wrong += bool(found)
        if found:
            Console().print(f"seed {seed}: {', '.join(found)}")
    shutil.rmtree(data)
    Console().print(f"{histories} histories, {wrong} with a wrong result; {dict(counts)}")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    tyro.cli(main)
