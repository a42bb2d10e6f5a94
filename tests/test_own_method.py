"""Methods that a user writes in a file of his own: the package is not edited, and shards and workers do not show."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from small import SELECTED, laid_out, read_selection, small_flow, small_recipe

from tlm_ray.corpus.general.passages import PassageStore
from tlm_ray.corpus.labelled.tasks import load_task, read_task
from tlm_ray.retrieval import TopK
from tlm_ray.retrieval.engine.queries import distinct_texts
from tlm_ray.retrieval.methods import METHODS, Bm25, Bm25s, Dsir, Given, Method, Rake, Random, Search, method_named
from tlm_ray.retrieval.search_job import search_corpus
from tlm_ray.retrieval.selection import PART_ROWS, write_drawn
from tlm_ray.runs.stages.making import make

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
        made.append((Path(stage.folder(flow.execution.root)) / SELECTED).read_bytes())
    return made


@alone
def test_a_method_that_ranks_by_shared_words(data, tmp_path):
    one, three = selections(data, tmp_path, Shared(letters=3))
    assert one == three
    flow = small_flow(data, tmp_path / "1")
    task = flow.task("topics")
    stage = laid_out(flow, method=Shared(letters=3)).neighbours
    queries = load_task(task.folder(flow.execution.root)).train_texts
    for row in read_selection(stage.folder(flow.execution.root)).to_pylist():
        texts = row["text"], queries[row["query"]]
        passage, query = ({word for word in text.lower().split() if len(word) >= 3} for text in texts)
        assert row["score"] == len(passage & query)


@alone
def test_a_method_that_ranks_nothing_for_a_query(data, tmp_path):
    one, three = selections(data, tmp_path, Longest(passages=7))
    assert one == three
    flow = small_flow(data, tmp_path / "1")
    stage = laid_out(flow, method=Longest(passages=7)).neighbours
    selection = read_selection(stage.folder(flow.execution.root))
    assert selection["score"].to_pylist() == [len(text.encode()) for text in selection["text"].to_pylist()]
    assert selection["rank"].to_pylist() == list(range(7)) and set(selection["query"].to_pylist()) == {-1}


def test_name_and_settings_of_a_method_identify_its_selection(data, tmp_path):
    flow = small_flow(data, tmp_path)
    methods = [Shared(), Shared(letters=2), Longest(), Random(like=Shared()), Random(like=Longest()), "bm25"]
    stages = [laid_out(flow, method=method).neighbours for method in methods]
    assert len({stage.fingerprint for stage in stages}) == len(methods)
    assert laid_out(flow, method=Shared(letters=1)).neighbours.fingerprint == stages[0].fingerprint
    assert stages[1].recipe["parameters"] == {
        "method": "shared", "depth": 10, "letters": 2, "part_rows": PART_ROWS
    }  # fmt: skip
    assert set(stages[3].inputs) == {"passages", "shared"}


def test_a_method_may_be_named_if_it_is_the_packages():
    assert [method_named(name).name for name in METHODS] == list(METHODS)
    assert method_named(Shared(letters=4)) == Shared(letters=4)
    with pytest.raises(ValueError, match="method 'shared': allowed are bm25, bm25s, rake, dense, dsir, random"):
        method_named("shared")


CHOSEN = [
    {"text": "a passage of rank one", "rank": 1},
    {"text": "the best passage", "rank": 0},
    {"text": "too far down", "rank": 7},
    {"text": "another best one", "rank": 0},
    {"text": "", "rank": 0},
]


def write_selected(path: Path, rows) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        path.write_text("text,id,rank\n" + "".join(f"{row['text']},{i},{row['rank']}\n" for i, row in enumerate(rows)))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@alone
@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_a_selection_that_was_made_elsewhere_is_taken_by_its_ranks(data, tmp_path, kind):
    flow = small_flow(data, tmp_path / "root")
    leaked = flow_texts(data, "dev")[0]
    rows = [*CHOSEN, {"text": leaked, "rank": 0}]
    write_selected(tmp_path / f"topics_external.{kind}", rows)
    method = Given(location=f"{tmp_path}/{{task}}_external.{kind}")
    stages = laid_out(flow, method=method, k=2, depth=3)
    assert "passages" not in {stage.name for stage in stages.neighbours.upstream()}, "no corpus is read"
    record = make([stages.neighbours], flow.execution.root)[stages.neighbours.fingerprint]
    selection = read_selection(stages.neighbours.folder(flow.execution.root))
    assert selection["text"].to_pylist() == ["the best passage", "another best one", "a passage of rank one"]
    assert selection["rank"].to_pylist() == [0, 0, 1] and set(selection["query"].to_pylist()) == {-1}
    sizes = [len("the best passage" + "another best one"), len("a passage of rank one")]
    assert (record["facts"]["rank_bytes"], record["facts"]["contaminated"]) == (sizes, 1)
    make([stages.blocks], flow.execution.root)  # which the rest of the flow takes as any other


@pytest.fixture
def pairs(tmp_path):
    """A corpus of four passages, and tasks of pairs and of single texts; dev of pairs has two of the passages."""
    passages = ["The tide is high.", "Boats lie in the harbour.", "High tide in the harbour.", "The tide, and boats."]
    (tmp_path / "corpus").mkdir()
    pq.write_table(pa.table({"text": passages}), tmp_path / "corpus" / "a.parquet")
    firsts, seconds = ["Is the tide high?", "Do boats lie there?"], ["It is high tide now.", "Boats lie in a harbour."]
    for name, columns in (("pairs", {"text": firsts, "text_pair": seconds}), ("single", {"text": firsts})):
        (tmp_path / "tasks" / name).mkdir(parents=True)
        for split in ("train", "dev", "test"):
            dev = {"text": [passages[0], "other"], "text_pair": ["else", passages[1]]}
            rows = {key: dev[key] if split == "dev" and name == "pairs" else values for key, values in columns.items()}
            pq.write_table(pa.table(rows | {"label": ["a", "b"]}), tmp_path / "tasks" / name / f"{split}.parquet")
    return small_flow(tmp_path, tmp_path / "root"), passages


@alone
def test_no_selection_has_either_text_of_a_pair_of_dev(pairs, tmp_path):
    flow, passages = pairs
    given = Given(location=write_selected(tmp_path / "given.jsonl", [{"text": text, "rank": 0} for text in passages]))
    recipes = [("pairs", small_recipe()), ("pairs", small_recipe(method=given))]
    recipes += [("single", small_recipe()), ("single", small_recipe(tasks=("pairs", "single")))]
    stages = [flow.stages(recipe, task, 0).neighbours for task, recipe in recipes]
    make(stages, flow.execution.root)
    found = [set(read_selection(stage.folder(flow.execution.root))["text"].to_pylist()) for stage in stages]
    assert found == [set(passages[2:]), set(passages[2:]), set(passages), set(passages[2:])]
    assert ["held_out" in stage.parameters for stage in stages] == [True, True, False, True]


@alone
@pytest.mark.parametrize("marks", [("<e1>", "</e1>", "<e2>", "</e2>"), ("[[ ", " ]]", "<< ", " >>")])
def test_names_of_tags_are_no_words_of_queries_and_hide_no_test_text(tmp_path, marks):
    sentence = "In autumn the {}tide{} comes up {} quays and lifts every boat in the {}harbour{} of the old town."
    about = ("four", "five", "six")
    passages = [sentence.format("", "", count, "", "") for count in about]
    passages += ["The tide is high.", "Enzymes e1, e2, e1, e2.", "Boats lie in the harbour."]
    (tmp_path / "corpus").mkdir()
    pq.write_table(pa.table({"text": passages}), tmp_path / "corpus" / "a.parquet")
    (tmp_path / "tasks" / "topics").mkdir(parents=True)
    for split, count in zip(("train", "dev", "test"), about, strict=True):
        texts = [sentence.format(*marks[:2], count, *marks[2:]), sentence.format(*marks[:2], "no", *marks[2:])]
        rows = pa.table({"text": texts, "label": ["a", "b"]})
        pq.write_table(rows, tmp_path / "tasks" / "topics" / f"{split}.parquet")
    flow = small_flow(tmp_path, tmp_path / "root")
    stage = laid_out(flow).neighbours
    make([stage], flow.execution.root)
    found = set(read_selection(stage.folder(flow.execution.root))["text"].to_pylist())
    assert found == {passages[0], passages[3], passages[5]}, "others are texts of dev and test, or share no word"
    assert ("tags" in stage.parameters) == marks[0].startswith("<e"), "other results stay those of earlier versions"


@pytest.mark.parametrize("like", [Random(), Dsir(), Given(location="a.csv")])
@pytest.mark.parametrize("method", [Random, Dsir])
def test_a_method_that_does_not_search_sets_no_number_of_passages(method, like):
    with pytest.raises(ValueError, match=rf"like '{like.name}': does not list .*; give a method that searches"):
        method(like=like)


def flow_texts(data, split) -> list[str]:
    return read_task("topics", task_root=str(data / "tasks")).texts(split)


@alone
def test_a_given_file_is_identified_by_its_bytes_and_what_is_wrong_with_it_is_named(data, tmp_path):
    flow, methods = small_flow(data, tmp_path / "root"), []
    for name, rows in (("a", CHOSEN), ("b", CHOSEN), ("c", CHOSEN[:2])):
        methods.append(Given(location=write_selected(tmp_path / f"{name}.csv", rows)))
    prints = [laid_out(flow, method=method).neighbours.fingerprint for method in methods]
    assert prints[0] == prints[1] != prints[2], "wherever it lies"
    with pytest.raises(FileNotFoundError, match=r"location '.*nosuch\.csv': no such file"):
        laid_out(flow, method=Given(location=f"{tmp_path}/nosuch.csv"))
    for rows, message in (
        ([{"text": "x", "rank": "best"}], r"row 1: rank is 'best'; give whole numbers"),
        ([{"text": "x", "rank": 2.0**40}], r"row 1: rank is 1099511627776"),
        ([{"text": "x", "rank": None}], r"row 1: rank is None"),
        ([{"text": "x", "rank": 0.5}], r"row 1: rank is 0.5; give whole numbers, 0 for the best"),
        ([{"text": "x", "rank": 0}, {"text": "y", "rank": -1}], r"row 2: rank is -1"),
        ([{"text": "x", "rank": 99}], r"has no text of a rank below 10"),
    ):
        method = Given(location=write_selected(tmp_path / "wrong.jsonl", rows))
        with pytest.raises(ValueError, match=message):
            make([laid_out(flow, method=method).neighbours], flow.execution.root)


def test_bm25s_settings_identify_a_selection_unless_they_are_the_papers(data, tmp_path):
    flow = small_flow(data, tmp_path)
    methods = [Bm25(), Bm25(k1=1.2, b=0.75), Bm25(k1=2.0), Bm25(b=0.5), Rake(k1=2.0)]
    prints = [laid_out(flow, method=method).neighbours.fingerprint for method in methods]
    assert prints[0] == prints[1] and len(set(prints)) == 4
    presence = [method.identity(10).get("presence") for method in (Bm25(k1=0), Rake(k1=0), Bm25s(k1=0), Bm25(k1=0.1))]
    assert presence == [2, 2, None, None], "earlier versions of the engine alone ranked wrongly"
    for wrong in ({"k1": -1.0}, {"b": 1.5}, {"b": float("nan")}):
        with pytest.raises(ValueError, match=r"k1 must be 0 or more, b 0 to 1, such as 1\.2 and 0\.75"):
            Bm25(**wrong)
