"""Methods that a user writes in a file of his own: the package is not edited, and shards and workers do not show."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.compute as pc
import pytest
from small import laid_out, small_flow

from tlm_ray import storage
from tlm_ray.corpus.passages import PassageStore
from tlm_ray.corpus.tasks import load_task
from tlm_ray.retrieval import TopK
from tlm_ray.retrieval.engine.queries import distinct_texts
from tlm_ray.retrieval.methods import METHODS, Method, Random, Search, method_named
from tlm_ray.retrieval.search_job import search_corpus
from tlm_ray.retrieval.selection import SELECTION, write_drawn
from tlm_ray.runs.execution import make

alone = pytest.mark.usefixtures("alone")


@dataclass(frozen=True, kw_only=True)
class Shared(Method):
    """The passages that share the most distinct words with a training text."""

    name: ClassVar[str] = "shared"
    letters: int = 1
    """shortest word that counts"""

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        task = load_task(inputs["task"])
        queries, rows = distinct_texts(self.queries(task.train_texts))
        options: dict[str, Any] = {"searcher": SharedSearcher, "arguments": (self.letters,)}
        return search_corpus(folder, inputs["passages"], task, run, queries=queries, rows=rows, **options)


class SharedSearcher:
    aligned = 1

    def __init__(self, queries, letters):
        self.letters = letters
        self.queries = [self.words(query) for query in queries]

    def words(self, text):
        return {word for word in text.lower().split() if len(word) >= self.letters}

    def search(self, texts, *, k, allowed, floor):
        passages = [self.words(text) for text in texts.to_pylist()]
        scores = np.array([[len(query & passage) for passage in passages] for query in self.queries], np.float32)
        scores[:, ~allowed] = 0
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(scores, order, axis=1)
        return TopK(np.where(best > 0, order, -1), best)


@dataclass(frozen=True, kw_only=True)
class Longest(Method):
    """The longest passages, without a query."""

    name: ClassVar[str] = "longest"
    passages: int = 20

    def inputs(self, sources):
        return {"passages": sources.passages}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        store = PassageStore.open(inputs["passages"])
        sizes = pc.binary_length(store.read(0, len(store))["text"]).to_numpy()
        longest = np.argsort(-sizes, kind="stable")[: self.passages]
        return write_drawn(folder, store, longest, np.arange(len(longest), dtype=np.int32), sizes[longest], run)


def selections(data, root, method) -> list[bytes]:
    """Make the neighbours stage with one shard and with three; return the bytes of both selections."""
    made = []
    for shards, workers in ((1, 1), (3, 2)):
        flow = small_flow(data, root / str(shards), shards=shards, workers=workers)
        stage = laid_out(flow, method=method).neighbours
        make([stage], flow.execution.root)
        made.append((Path(stage.folder(flow.execution.root)) / SELECTION).read_bytes())
    return made


@alone
def test_a_method_that_ranks_by_shared_words(data, tmp_path):
    one, three = selections(data, tmp_path, Shared(letters=3))
    assert one == three
    flow = small_flow(data, tmp_path / "1")
    task = flow.task("topics")
    stage = laid_out(flow, method=Shared(letters=3)).neighbours
    queries = load_task(task.folder(flow.execution.root)).train_texts
    for row in storage.read_table(storage.join(stage.folder(flow.execution.root), SELECTION)).to_pylist():
        texts = row["text"], queries[row["query"]]
        passage, query = ({word for word in text.lower().split() if len(word) >= 3} for text in texts)
        assert row["score"] == len(passage & query)


@alone
def test_a_method_that_ranks_nothing_for_a_query(data, tmp_path):
    one, three = selections(data, tmp_path, Longest(passages=7))
    assert one == three
    flow = small_flow(data, tmp_path / "1")
    stage = laid_out(flow, method=Longest(passages=7)).neighbours
    selection = storage.read_table(storage.join(stage.folder(flow.execution.root), SELECTION))
    assert selection["score"].to_pylist() == [len(text.encode()) for text in selection["text"].to_pylist()]
    assert selection["rank"].to_pylist() == list(range(7)) and set(selection["query"].to_pylist()) == {-1}


def test_name_and_settings_of_a_method_identify_its_selection(data, tmp_path):
    flow = small_flow(data, tmp_path)
    methods = [Shared(), Shared(letters=2), Longest(), Random(like=Shared()), Random(like=Longest()), "bm25"]
    stages = [laid_out(flow, method=method).neighbours for method in methods]
    assert len({stage.fingerprint for stage in stages}) == len(methods)
    assert laid_out(flow, method=Shared(letters=1)).neighbours.fingerprint == stages[0].fingerprint
    assert stages[1].recipe["parameters"] == {"method": "shared", "depth": 10, "letters": 2}
    assert set(stages[3].inputs) == {"passages", "shared"}


def test_a_method_may_be_named_if_it_is_the_packages():
    assert [method_named(name).name for name in METHODS] == list(METHODS)
    assert method_named(Shared(letters=4)) == Shared(letters=4)
    with pytest.raises(ValueError, match="method 'shared': allowed are bm25, rake, dense, dsir, random"):
        method_named("shared")
