"""Unite the selections of several tasks: each text once, at its best rank, without dev and test texts of any task."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.retrieval.engine.lexicon import as_strings
from tlm_ray.retrieval.selection import SelectionStore, take_rows, write_texts


def write_united(folder: str, selections: Sequence[str], tasks: Sequence[str]) -> dict[str, Any]:
    """Write the union of some selections, by rank, then task, then place in its selection; return facts.

    selections: folders of neighbours stages. tasks: folders of task stages. A task's own search has excluded only its
    own dev and test texts.
    """
    table = pa.concat_tables(SelectionStore.open(each).read() for each in selections)
    order = np.argsort(table["rank"].to_numpy(), kind="stable")
    texts = as_strings(table["text"])
    keys = np.array([hashlib.blake2b(text.as_py().encode(), digest_size=16).digest() for text in texts], "V16")
    _, firsts = np.unique(keys[order], return_index=True)
    kept = order[np.sort(firsts)]
    held_out = [text for each in map(load_task, tasks) for text in each.held_out]
    leaks = Contamination(held_out).find(pc.take(texts, pa.array(kept)))
    united = take_rows(table.select(["passage", "text", "rank", "source"]), kept[~leaks])
    return {"of": [len(SelectionStore.open(each)) for each in selections], "contaminated": int(leaks.sum())} | (
        write_texts(folder, united)
    )
