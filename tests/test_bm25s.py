"""The method `bm25s`: the package's scores on shards are those of one index, and those of the method `bm25`."""

import os
from dataclasses import replace
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pytest
from small import SELECTED, laid_out, read_selection, small_flow, small_recipe

from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.general.passages import PassageStore
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.retrieval import Analyzer, Statistics
from tlm_ray.retrieval.engine.lexicon import as_strings
from tlm_ray.retrieval.engine.queries import distinct_bags
from tlm_ray.retrieval.methods.bm25 import Bm25Searcher
from tlm_ray.retrieval.methods.bm25s import Bm25s, Bm25sSearcher
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.statistics_job import read_statistics
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.recipes.cpu import TINY_RECIPE
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution, make

ROUNDING = 1e-5
DATA = os.environ.get("TLM_RAY_REAL_DATA", "")  # a folder with corpus/ and tasks/sciie


def counted(flow: Flow, recipe: Recipe, task: str, *, shards: int) -> dict[str, int]:
    """Compare the rankings of both methods on each shard, and the selections; return counts.

    A place is one rank of one query in one shard. It differs in a tie if both passages have the same score.
    """
    both = [flow.stages(replace(recipe, method=name), task, 0) for name in ("bm25", "bm25s")]
    root, (one, _) = flow.execution.root, both
    make([stages.neighbours for stages in both], root)
    passages, statistics, texts = (
        stage.folder(root) for stage in (one.passages, one.neighbours.inputs["statistics"], one.task)
    )
    store, analyzer = PassageStore.open(passages), Analyzer()
    queries, _, _ = distinct_bags(load_task(texts).train_texts, analyzer)
    made_of = queries, analyzer, read_statistics(statistics), 1.2, 0.75
    ours, theirs = Bm25Searcher(*made_of), Bm25sSearcher(*made_of)
    found = {"queries": len(queries), "passages": len(store), "places": 0, "in a tie": 0, "apart": 0}
    for item in Shards.of(len(store), shards=shards, workers=1).items():
        some = as_strings(store.read(item["start"], item["stop"])["text"])
        how = {"allowed": np.ones(len(some), bool), "floor": np.zeros(len(queries), np.float32)}
        a, b = (searcher.search(some, k=recipe.depth, **how) for searcher in (ours, theirs))
        alike = np.isclose(a.scores, b.scores, rtol=ROUNDING, atol=0)
        found["places"] += int((a.ids >= 0).sum())
        found["in a tie"] += int(((a.ids != b.ids) & alike).sum())
        found["apart"] += int((~alike).sum())
    chosen = [set(read_selection(stages.neighbours.folder(root))["passage"].to_pylist()) for stages in both]
    return found | {"selected": len(chosen[0]), "by one method alone": len(chosen[0] ^ chosen[1])}


def test_scores_on_shards_are_those_of_bm25s_own_index_of_all():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(60)])
    texts = [" ".join(rng.choice(words, rng.integers(0, 30))) for _ in range(90)]
    queries = [" ".join(rng.choice(words, 8)) for _ in range(5)]
    model = bm25s.BM25(k1=1.7, b=0.4, method="lucene")
    model.index([text.split() for text in texts], show_progress=False)
    searcher = Bm25sSearcher(queries, Analyzer(), Statistics.collect(texts, Analyzer()), 1.7, 0.4)
    for first in range(0, 90, 30):
        how = {"allowed": np.ones(30, bool), "floor": np.zeros(5, np.float32)}
        top = searcher.search(pa.array(texts[first : first + 30]), k=30, **how)
        for query, ids, scores in zip(queries, top.ids, top.scores, strict=True):
            expected = model.get_scores(query.split())[first : first + 30]
            assert set(ids[ids >= 0]) == set(np.flatnonzero(expected))
            np.testing.assert_allclose(scores[ids >= 0], expected[ids[ids >= 0]], rtol=1e-5)
            assert list(scores) == sorted(scores, reverse=True)


def test_equal_scores_are_ranked_by_passage_and_what_is_not_allowed_is_left_out():
    texts = ["sea", "sky", None, "sea", "sea", "sea"]
    searcher = Bm25sSearcher(["sea", "fish"], Analyzer(), Statistics.collect(texts, Analyzer()), 1.2, 0.75)
    allowed, floor = np.array([1, 1, 1, 0, 1, 1], bool), np.zeros(2, np.float32)
    assert searcher.search(pa.array(texts), k=2, allowed=allowed, floor=floor).ids.tolist() == [[0, 4], [-1, -1]]
    assert searcher.search(pa.array(["", None]), k=2, allowed=allowed[:2], floor=floor).ids.tolist() == [[-1, -1]] * 2


@pytest.mark.usefixtures("alone")
def test_the_number_of_shards_does_not_change_the_selection(data, tmp_path):
    made = []
    for shards in (1, 3):
        flow = small_flow(data, tmp_path / str(shards), shards=shards)
        stage = laid_out(flow, method=Bm25s()).neighbours
        make([stage], flow.execution.root)
        made.append((Path(stage.folder(flow.execution.root)) / SELECTED).read_bytes())
    assert made[0] == made[1]


@pytest.mark.usefixtures("alone")
def test_bm25_chooses_the_same_on_small_data(data, tmp_path):
    found = counted(small_flow(data, tmp_path), small_recipe(), "topics", shards=3)
    assert found["apart"] == 0 and found["places"] > 1000
    assert found["by one method alone"] <= found["in a tie"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("alone")
def test_bm25_chooses_the_same_on_the_embedded_data(tmp_path):
    recipe = replace(TINY_RECIPE, corpus_share=0.25)  # with all of it, minutes longer, nothing differs either
    found = counted(Flow(execution=Execution(root=str(tmp_path))), recipe, "docstrings", shards=4)
    print(found)
    assert found["apart"] == 0 and found["places"] > 10_000
    assert found["by one method alone"] <= found["in a tie"] < found["places"] / 100


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="TLM_RAY_REAL_DATA names no folder with corpus/ and tasks/sciie")
@pytest.mark.usefixtures("alone")
def test_bm25_chooses_the_same_on_sciie(tmp_path):
    corpus = open_corpus(f"{DATA}/corpus", column="text")
    flow = Flow(execution=Execution(root=str(tmp_path)), corpus=corpus, task_root=f"{DATA}/tasks")
    found = counted(flow, small_recipe(passage_tokens=128, depth=50), "sciie", shards=4)
    print(found)
    assert found["apart"] == 0
    assert found["by one method alone"] <= found["in a tie"] < found["places"] / 100
