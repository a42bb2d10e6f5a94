"""The selection: each retrieved passage once, with its text, its best rank and the query that gave it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.passages import PassageStore
from tlm_ray.retrieval.shards import Shards
from tlm_ray.retrieval.topk import Best

SELECTION = "selection.arrow"
DROPPED = "dropped.arrow"


def write_selection(
    folder: str, store: PassageStore, best: Best, *, work: str, ranges: Shards, workers: int
) -> dict[str, Any]:
    """Gather the selected passages' texts shard by shard and write them in the order of `best`."""
    arguments = (store.folder, work, ray.put(np.sort(best.passages)))
    made = parallel.tasks(ranges.items(), _gather, arguments=arguments, workers=workers, title="gather texts")
    texts = pa.concat_tables([storage.read_table(file) for file in made])
    place = np.searchsorted(texts["passage"].to_numpy(), best.passages)
    table = texts.take(place).append_column("rank", pa.array(best.ranks))
    table = table.append_column("score", pa.array(best.scores)).append_column("query", pa.array(best.queries))
    table = table.select(["passage", "text", "rank", "score", "query", "source"])
    storage.write_table(storage.join(folder, SELECTION), table)
    sizes = pc.binary_length(table["text"]).to_numpy()
    return {
        "selected": len(table),
        "text_bytes": int(sizes.sum()),
        "rank_bytes": np.bincount(best.ranks, sizes).astype(int).tolist(),
    }


def _gather(item: dict[str, int], passages: str, work: str, selected: np.ndarray) -> str:
    """Read the selected passages of one shard; return the file that holds them."""
    low, high = np.searchsorted(selected, [item["start"], item["stop"]])
    chosen = selected[low:high]
    texts = PassageStore.open(passages).read(item["start"], item["stop"], ("text", "source"))
    uri = storage.join(work, f"texts-{item['shard']:05d}.arrow")
    storage.write_table(uri, texts.take(chosen - item["start"]).append_column("passage", pa.array(chosen)))
    return uri
