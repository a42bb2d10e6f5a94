"""The search of shards on Ray: a worker that is killed costs one shard's work, and the merge moves little."""

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

from tlm_ray import parallel, storage
from tlm_ray.corpus.manifest import open_corpus
from tlm_ray.corpus.passages import PassageStore, cut_passages
from tlm_ray.retrieval import Analyzer, Statistics, index_passages, search
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.merging import Rankings, merge_rankings, probe_scores, thresholds
from tlm_ray.retrieval.methods.bm25 import Bm25Searcher
from tlm_ray.retrieval.search_job import ShardWorker
from tlm_ray.retrieval.shards import MOST_PASSAGES, Shards

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]
K, SHARDS = 8, 12


@pytest.fixture(scope="module")
def passages(data, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("passages"))
    cut_passages(folder, open_corpus(str(data / "corpus"), column="text"), passage_tokens=48, workers=2)
    return folder


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
    items = Shards(passages=len(store), count=SHARDS).items()

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
    arguments = (Slow, passages, work, K, queries, Contamination([]), Analyzer(), ray.put(total))
    made = list(parallel.each(items, ShardWorker, arguments=arguments, workers=2, title="search", size="passages"))
    killer.join()

    searches = [int(line.split()[1]) for line in Path(log).read_text().splitlines()]
    assert sorted(row["shard"] for row in made) == list(range(SHARDS))
    assert SHARDS < len(searches) <= SHARDS + 1, json.dumps(searches)
    files = sorted(Path(work).glob("shard-*.arrow"))
    parts = [Rankings.from_table(storage.read_table(str(file))) for file in files]
    found, whole = merge_rankings(parts, K), search(index_passages(texts), queries, k=K)
    assert found.ids.tobytes() == whole.ids.tobytes()
    assert found.scores.tobytes() == whole.scores.tobytes()
    threshold = thresholds([probe_scores(part, K) for part in parts], K)
    assert merge_rankings([part.above(threshold) for part in parts], K).ids.tobytes() == whole.ids.tobytes()
    assert (threshold <= whole.scores[:, -1]).all()


def test_a_shard_that_is_handed_out_again_costs_later_shards_nothing(passages, data, tmp_path):
    store = PassageStore.open(passages)
    texts = store.read(0, len(store))["text"].to_pylist()
    queries = pq.read_table(data / "tasks" / "topics" / "train.parquet")["text"].to_pylist()[:20]
    work, total = str(tmp_path), Statistics.collect(texts, Analyzer())
    worker = ShardWorker(Bm25Searcher, passages, work, K, queries, Contamination([]), Analyzer(), total)
    items = Shards(passages=len(store), count=SHARDS).items()
    for item in [*items[:3], *items[:3], *items[:3], *items]:
        worker(item)
    parts = [Rankings.from_table(storage.read_table(str(file))) for file in sorted(tmp_path.glob("shard-*.arrow"))]
    whole = search(index_passages(texts), queries, k=K)
    assert merge_rankings(parts, K).ids.tobytes() == whole.ids.tobytes()


def test_shards_cover_every_passage_once():
    for passages, shards, workers in ((10, 0, 3), (10, 20, 1), (120_001, 0, 1), (1, 7, 7)):
        items = Shards.of(passages, shards=shards, workers=workers).items()
        assert np.concatenate([np.arange(i["start"], i["stop"]) for i in items]).tolist() == list(range(passages))
        assert [i["passages"] for i in items] == [i["stop"] - i["start"] for i in items]
    with pytest.raises(ValueError, match="at most 4,294,967,295; search it in two halves"):
        Shards.of(MOST_PASSAGES, shards=0, workers=1)
