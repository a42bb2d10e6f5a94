"""The flow on Ray: selections that no execution setting changes, and each data stage's bytes pinned."""

import hashlib
import json
import shutil
from pathlib import Path

import bm25s
import numpy as np
import pyarrow.compute as pc
import pytest
from alone import in_this_process
from small import SELECTED, laid_out, read_selection, small_flow, small_recipe

from tlm_ray import storage
from tlm_ray.corpus.general.passages import PassageStore
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.retrieval.engine.noise import uniform
from tlm_ray.retrieval.methods import Bm25, Search, dsir
from tlm_ray.retrieval.methods.rake import key_phrases
from tlm_ray.retrieval.selection import DROPPED, read_dropped
from tlm_ray.runs.stages.making import make

alone = pytest.mark.usefixtures("alone")


def made(flow, stage) -> Path:
    """Make a stage; return its folder."""
    make([stage], flow.execution.root)
    return Path(stage.folder(flow.execution.root))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@pytest.fixture(scope="module")
def built(data, tmp_path_factory):
    """The flow with everything up to the blocks of both methods made."""
    flow = small_flow(data, tmp_path_factory.mktemp("root"), workers=2, shards=3)
    task = flow.task("topics")
    with in_this_process():
        make([laid_out(flow, method=method).blocks for method in ("bm25", "random")], flow.execution.root)
    return flow, task


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_ray_makes_the_same_bytes_with_any_number_of_shards_and_workers(built, data, tmp_path):
    check_selection(built, small_flow(data, tmp_path, shards=7, workers=2))


@alone
@pytest.mark.parametrize("shards", [1, 2, 16])
def test_selection_is_the_same_bytes_for_any_number_of_shards(built, data, tmp_path, shards):
    check_selection(built, small_flow(data, tmp_path, shards=shards))


def check_selection(built, other):
    flow, _ = built
    first = made(flow, laid_out(flow).neighbours)
    second = made(other, laid_out(other).neighbours)
    assert first.name == second.name
    for name in (SELECTED, DROPPED):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@alone
@pytest.mark.parametrize("method", ["bm25", "rake"])
def test_scores_are_those_of_bm25s_on_one_global_index(built, method):
    flow, task = built
    recipe, root = small_recipe(method=method), flow.execution.root
    store = PassageStore.open(flow.passages(recipe).folder(root))
    texts = store.read(0, len(store))["text"].to_pylist()
    selection = read_selection(made(flow, flow.stages(recipe, "topics", 0).neighbours))
    assert selection["text"].to_pylist() == [texts[i] for i in selection["passage"].to_pylist()]

    model = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    options = {"stopwords": None, "token_pattern": r"\w+", "show_progress": False}
    model.index(bm25s.tokenize(texts, **options), show_progress=False)
    queries = load_task(task.folder(root)).train_texts
    queries = [key_phrases(text) for text in queries] if method == "rake" else queries
    words = bm25s.tokenize(queries, return_ids=False, **options)
    for row in selection.to_pylist():
        expected = model.get_scores(words[row["query"]])
        assert row["score"] == pytest.approx(expected[row["passage"]], rel=1e-5)
        better = int((expected > row["score"] * (1 + 1e-5)).sum())
        ties = int((np.abs(expected / row["score"] - 1) <= 1e-5).sum())
        assert better <= row["rank"] < better + ties


@alone
@pytest.mark.parametrize("method", ["random", "dsir"])
def test_drawn_text_is_as_much_as_bm25_text_at_every_k(built, method):
    flow, _ = built
    bm25, drawn = (read_selection(made(flow, laid_out(flow, method=name).neighbours)) for name in ("bm25", method))
    np.testing.assert_array_equal(np.sort(bm25["rank"].to_numpy()), drawn["rank"].to_numpy())
    assert pc.count_distinct(drawn["passage"]).as_py() == len(drawn)
    assert set(drawn["passage"].to_pylist()) != set(bm25["passage"].to_pylist())


@alone
def test_importance_resampling_draws_the_largest_noisy_weights_of_the_whole_corpus(built, data, tmp_path):
    flow, task = built
    recipe, root = small_recipe(method="dsir"), flow.execution.root
    store = PassageStore.open(flow.passages(recipe).folder(root))
    texts = store.read(0, len(store))["text"].to_pylist()
    drawn = made(flow, flow.stages(recipe, "topics", 0).neighbours) / SELECTED
    ratio = dsir.log_ratio(dsir.count_buckets(load_task(task.folder(root)).train_texts), dsir.count_buckets(texts))
    weights = dsir.log_weights(texts, ratio) + dsir.gumbel(np.arange(len(texts)), seed=0)
    dropped = storage.read_table(str(made(flow, laid_out(flow).neighbours) / DROPPED))["passage"].to_numpy()
    weights[dropped] = -np.inf
    selection = storage.read_table(str(drawn))
    expected = np.argsort(-weights)[: len(selection)]
    by_score = selection.sort_by([("score", "descending")])
    assert by_score["passage"].to_pylist() == expected.tolist()
    assert selection["rank"].to_pylist() == sorted(by_score["rank"].to_pylist())

    other = small_flow(data, tmp_path, shards=7, workers=1)
    assert (made(other, other.stages(recipe, "topics", 0).neighbours) / SELECTED).read_bytes() == drawn.read_bytes()


@alone
def test_random_text_is_drawn_by_a_number_of_each_passages_own(built):
    flow, _ = built
    drawn = read_selection(made(flow, laid_out(flow, method="random").neighbours))
    store = PassageStore.open(flow.passages(small_recipe()).folder(flow.execution.root))
    numbers = uniform(np.arange(len(store)), seed=0)
    numbers[read_dropped(str(made(flow, laid_out(flow).neighbours)))] = 0
    expected = np.argsort(-numbers)[: len(drawn)]
    by_number = drawn.take(np.argsort(-numbers[drawn["passage"].to_numpy()]))
    assert by_number["passage"].to_pylist() == expected.tolist()
    assert by_number["rank"].to_pylist() == sorted(drawn["rank"].to_pylist())


@alone
def test_bm25_text_speaks_of_the_querys_topic(built):
    flow, task = built
    selection = read_selection(made(flow, laid_out(flow).neighbours))
    queries = load_task(task.folder(flow.execution.root)).train_texts
    top = [row for row in selection.to_pylist() if row["rank"] == 0]
    shared = [len(set(row["text"].lower().split()) & set(queries[row["query"]].lower().split())) for row in top]
    assert min(shared) >= 2


# The data stages' bytes on the small data. If one changes, its stage makes something else than before: raise the
# stage's version in tlm_ray/runs/flow/flow.py, then put the new digest here.
GOLDEN = {
    ("passages", 5): ("part-00000.parquet", "236447375f92bc26"),
    ("statistics", 3): ("statistics.arrow", "7773e945516de774"),
    ("neighbours", 4): (SELECTED, "cdfbc355f1debf55"),
    ("tokenizer", 2): ("tokenizer/tokenizer.json", "d3f057043082c4f8"),
    ("blocks", 2): ("general.arrow", "f1a7af66944233c9"),
}
GOLDEN_SELECTIONS = {
    ("bm25", 4): "cdfbc355f1debf55",
    ("rake", 4): "643c3bb534478bbf",
    ("dsir", 2): "ff8ed231de522714",
    ("random", 3): "61a9e27e76e58be8",
}


@alone
@pytest.mark.parametrize("name", [name for name, _ in GOLDEN])
def test_each_data_stage_makes_the_bytes_of_its_version(built, name):
    flow, _ = built
    stages = {stage.name: stage for stage in laid_out(flow).blocks.upstream()}
    file, expected = GOLDEN[name, stages[name].version]
    assert digest(Path(stages[name].folder(flow.execution.root)) / file) == expected


@alone
@pytest.mark.parametrize("name", [name for name, _ in GOLDEN_SELECTIONS])
def test_each_method_makes_the_bytes_of_its_version(built, name):
    flow, _ = built
    stage = laid_out(flow, method=name).neighbours
    assert digest(made(flow, stage) / SELECTED) == GOLDEN_SELECTIONS[name, stage.version]


@alone
def test_a_corpus_file_that_changes_under_the_run_is_an_error(data, tmp_path):
    flow = small_flow(data, tmp_path / "root")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("one document\n\nanother document\n")
    changing = small_flow(tmp_path_with(data, corpus), tmp_path / "root2")
    (corpus / "a.txt").write_text("not what was fingerprinted\n")
    with pytest.raises(ValueError, match=r"^corpus file '.*a\.txt' changed while it was read"):
        make([changing.passages(small_recipe())], changing.execution.root)
    assert flow.passages(small_recipe()).fingerprint != changing.passages(small_recipe()).fingerprint


@alone
@pytest.mark.parametrize("damage", ["flip", "truncate", "foreign"])
def test_a_damaged_part_of_the_passages_is_named_and_never_searched(built, tmp_path, damage):
    flow, _ = built
    folder = tmp_path / "passages"
    shutil.copytree(flow.passages(small_recipe()).folder(flow.execution.root), folder)
    part = folder / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    if damage == "flip":
        data[200] ^= 1
    part.write_bytes({"truncate": data[: len(data) // 2], "foreign": b"PAR1 but not really"}.get(damage, data))
    stage = laid_out(flow).neighbours
    made(flow, stage)
    inputs = {name: source.folder(flow.execution.root) for name, source in stage.inputs.items()}
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=rf"file '{part}' (cannot be read|is corrupt) .*; delete its folder"):
        Bm25().find(str(out), inputs | {"passages": str(folder)}, Search(depth=5, shards=3, workers=2))
    assert not (out / SELECTED).exists()


def tmp_path_with(data: Path, corpus: Path) -> Path:
    """Return a data folder with another corpus."""
    folder = corpus.parent
    if not (folder / "tasks").exists():
        (folder / "tasks").symlink_to(data / "tasks")
    return folder


@alone
def test_records_tell_where_each_passage_came_from(built):
    flow, _ = built
    folder = made(flow, laid_out(flow).neighbours)
    record = json.loads((folder / "record.json").read_text())
    table = read_selection(folder)
    assert record["facts"]["selected"] == len(table)
    assert record["facts"]["text_bytes"] == sum(len(t.encode()) for t in table["text"].to_pylist())
    assert sum(record["facts"]["rank_bytes"]) == record["facts"]["text_bytes"]
    assert set(table["source"].to_pylist()) <= {f"part-{i}.parquet" for i in range(4)}
