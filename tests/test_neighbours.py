"""The search of shards: no number of tasks shows in the result, and on Ray a killed worker costs one shard's work."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
from alone import in_this_process

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.general.passages import WORK, PassageStore, cut_passages
from tlm_ray.corpus.labelled.tasks import read_task, write_task
from tlm_ray.retrieval import Analyzer, Statistics, index_passages, search, selection, statistics_job, union_job
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.merging import Rankings, merge_rankings
from tlm_ray.retrieval.methods.bm25 import Bm25, Bm25Searcher
from tlm_ray.retrieval.methods.dsir import Dsir
from tlm_ray.retrieval.methods.method import Search
from tlm_ray.retrieval.methods.random import Random
from tlm_ray.retrieval.search_job import ShardWorker
from tlm_ray.retrieval.selection import SelectionStore
from tlm_ray.retrieval.shards import MOST_PASSAGES, Shards
from tlm_ray.retrieval.statistics_job import collect_statistics
from tlm_ray.retrieval.union_job import Spans, shard_file

K, SHARDS = 8, 12


@pytest.fixture(scope="module")
def passages(data, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("passages"))
    with in_this_process():
        cut_passages(folder, open_corpus(str(data / "corpus"), column="text"), passage_tokens=48, workers=2)
    return folder


def merged(work, spans):
    """Merge the rankings of all shards, all queries in one span."""
    assert len(spans.bounds) == 1
    read = (Rankings.from_table(storage.read_piece(shard_file(work, shard), 0)) for shard in range(SHARDS))
    return merge_rankings(read, queries=spans.queries, k=K)


@pytest.mark.usefixtures("alone")
def test_statistics_are_the_same_however_many_tasks_merge_them(passages, tmp_path, monkeypatch):
    found = {}
    for shards, most in ((3, 16), (11, 2)):
        monkeypatch.setattr(statistics_job, "FILES_MERGED", most)
        folder = tmp_path / str(shards)
        facts = collect_statistics(str(folder), passages, analyzer=Analyzer(), shards=shards, workers=2)
        found[shards] = facts, (folder / "statistics.arrow").read_bytes()
    assert found[3] == found[11]


def inputs_of_bm25(passages, data, folder):
    """Make what BM25 reads; return its inputs."""
    write_task(str(folder / "task"), read_task("topics", task_root=str(data / "tasks")))
    collect_statistics(str(folder / "statistics"), passages, analyzer=Analyzer(), shards=3, workers=2)
    return {"passages": passages} | {name: str(folder / name) for name in ("task", "statistics")}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("places", "part_rows"), [(64, 37), (1, 1000), (500, 1 << 16)])
def test_a_selection_is_the_same_however_many_tasks_unite_it(passages, data, tmp_path, monkeypatch, places, part_rows):
    inputs = inputs_of_bm25(passages, data, tmp_path)

    def found(name):
        facts = Bm25().find(str(tmp_path / name), inputs, Search(depth=K, shards=3, workers=2))
        return facts, SelectionStore.open(str(tmp_path / name))

    facts, whole = found("whole")
    assert whole.rows == [facts["selected"]] and facts["selected"] > 100
    monkeypatch.setattr(union_job, "PLACES", places)
    monkeypatch.setattr(union_job, "TEXTS", places)
    monkeypatch.setattr(union_job, "FAN_IN", 2)
    monkeypatch.setattr(union_job, "MOST_FILES", 2)
    monkeypatch.setattr(selection, "PART_ROWS", part_rows)
    again, parts = found("parts")
    assert again == facts and parts.read().equals(whole.read())
    assert set(parts.rows[:-1]) <= {part_rows} and 0 < parts.rows[-1] <= part_rows
    assert {path.name for path in (tmp_path / "parts").iterdir()} - {WORK, "rankings"} == {
        "dropped.arrow", "selection.json", *(f"selection-{part:05d}.arrow" for part in range(len(parts.rows)))
    }  # fmt: skip


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("method", [Random(), Dsir()])
def test_a_draw_is_the_same_however_many_tasks_sort_it(passages, data, tmp_path, monkeypatch, method):
    inputs = inputs_of_bm25(passages, data, tmp_path)
    inputs["bm25"] = str(tmp_path / "bm25")
    Bm25().find(inputs["bm25"], inputs, Search(depth=K, shards=3, workers=2))

    def found(name, shards):
        facts = method.find(str(tmp_path / name), inputs, Search(depth=K, shards=shards, workers=2))
        return facts, SelectionStore.open(str(tmp_path / name)).read()

    facts, whole = found("whole", 2)
    monkeypatch.setattr(union_job, "PLACES", 50)
    monkeypatch.setattr(selection, "PART_ROWS", 41)
    again, parts = found("parts", 9)
    assert again == facts and parts.equals(whole)


@pytest.mark.usefixtures("ray_cluster")
def test_a_killed_worker_costs_one_shards_work_and_does_not_show(passages, data, tmp_path):
    log = str(tmp_path / "log")

    class Slow(Bm25Searcher):
        """Tells which process searches how many passages, and takes its time."""

        def search(self, texts, **options):
            with open(log, "a") as file:
                file.write(f"{os.getpid()} {len(texts)}\n")
            time.sleep(0.4)
            return super().search(texts, **options)

    store = PassageStore.open(passages)
    texts = store.read(0, len(store))["text"].to_pylist()
    queries = pq.read_table(data / "tasks" / "topics" / "train.parquet")["text"].to_pylist()[:20]
    total, work = Statistics.collect(texts, Analyzer()), str(tmp_path / "work")
    items, spans = Shards(passages=len(store), count=SHARDS).items(), Spans.of(len(queries), depth=K)

    def kill_one():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            lines = Path(log).read_text().splitlines() if Path(log).exists() else []
            if len(lines) >= 3:
                os.kill(int(lines[-1].split()[0]), signal.SIGKILL)
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill_one)
    killer.start()
    arguments = (Slow, passages, work, spans, queries, Contamination([]), Analyzer(), ray.put(total))
    made = list(parallel.each(items, ShardWorker, arguments=arguments, workers=2, title="search", size="passages"))
    killer.join()

    searches = [int(line.split()[1]) for line in Path(log).read_text().splitlines()]
    assert sorted(row["shard"] for row in made) == list(range(SHARDS))
    assert SHARDS < len(searches) <= SHARDS + 1, json.dumps(searches)
    found, whole = merged(work, spans), search(index_passages(texts), queries, k=K)
    assert found.ids.tobytes() == whole.ids.tobytes()
    assert found.scores.tobytes() == whole.scores.tobytes()


def test_a_shard_that_is_handed_out_again_costs_later_shards_nothing(passages, data, tmp_path):
    store = PassageStore.open(passages)
    texts = store.read(0, len(store))["text"].to_pylist()
    queries = pq.read_table(data / "tasks" / "topics" / "train.parquet")["text"].to_pylist()[:20]
    work, total = str(tmp_path), Statistics.collect(texts, Analyzer())
    spans = Spans.of(len(queries), depth=K)
    worker = ShardWorker(Bm25Searcher, passages, work, spans, queries, Contamination([]), Analyzer(), total)
    items = Shards(passages=len(store), count=SHARDS).items()
    for item in [*items[:3], *items[:3], *items[:3], *items]:
        worker(item)
    whole = search(index_passages(texts), queries, k=K)
    assert merged(work, spans).ids.tobytes() == whole.ids.tobytes()


def test_shards_cover_every_passage_once():
    for passages, shards, workers in ((10, 0, 3), (10, 20, 1), (120_001, 0, 1), (1, 7, 7)):
        items = Shards.of(passages, shards=shards, workers=workers).items()
        assert np.concatenate([np.arange(i["start"], i["stop"]) for i in items]).tolist() == list(range(passages))
        assert [i["passages"] for i in items] == [i["stop"] - i["start"] for i in items]
    with pytest.raises(ValueError, match="at most 4,294,967,295 are allowed; search it in two halves"):
        Shards.of(MOST_PASSAGES, shards=0, workers=1)
