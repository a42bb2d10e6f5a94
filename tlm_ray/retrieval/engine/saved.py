"""Save an index as memory-mappable Arrow files and a record, written last, with their digests.

folder/terms.arrow      term, idf, start, row, most (the largest weight): one row per term
folder/postings.arrow   the posting lists, concatenated
folder/coarse.arrow     the dense rows, concatenated
folder/exact.arrow      the frequent terms' weights, passage by passage
folder/record.json      format, analyzer, size, idf_limit, rows, k1, b, the sha256 of each file
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from tlm_ray import storage
from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.index import Index, Postings

FORMAT = 3  # files carry their sha256 since version 3
RECORD = "record.json"


def write_index(index: Index, folder: str) -> None:
    """Write an index to a folder on any filesystem; it is complete when its record exists."""
    start, lists, row, coarse, exact, largest = index.postings
    terms = {"term": index.terms, "idf": index.idf, "start": start[:-1], "row": row, "most": largest}
    arrays = {"postings": lists, "coarse": coarse, "exact": exact}
    tables = {"terms.arrow": pa.table(terms)}
    tables |= {f"{name}.arrow": pa.table({name: array.ravel()}) for name, array in arrays.items()}
    storage.delete(storage.join(folder, RECORD))
    for name, table in tables.items():
        storage.write_table(storage.join(folder, name), table)
    record = {
        "format": FORMAT,
        "analyzer": asdict(index.analyzer),
        "size": index.size,
        "idf_limit": index.idf_limit,
        "rows": len(coarse),
        "k1": index.k1,
        "b": index.b,
        "digests": {name: storage.digest(storage.join(folder, name)) for name in tables},
    }
    storage.write_record(storage.join(folder, RECORD), record)


def read_index(folder: str) -> Index:
    """Open an index; its arrays are memory-mapped if the folder is local.

    FileNotFoundError if there is no complete index. ValueError names a file that is corrupt or of another format.
    """
    record = _read_record(folder)
    tables = {name: storage.read_table(storage.join(folder, name)) for name in record["digests"]}
    terms, size, rows = tables["terms.arrow"], record["size"], record["rows"]
    lists, coarse, exact = (_array(tables[f"{name}.arrow"][name]) for name in ("postings", "coarse", "exact"))
    postings = Postings(
        start=np.append(_array(terms["start"]), len(lists)),
        lists=lists,
        row=_array(terms["row"]),
        coarse=coarse.reshape(rows, size),
        exact=exact.reshape(size, rows),
        largest=_array(terms["most"]),
    )
    return Index(
        analyzer=Analyzer(**record["analyzer"]),
        size=size,
        idf_limit=record["idf_limit"],
        terms=terms["term"].combine_chunks(),
        idf=_array(terms["idf"]),
        postings=postings,
        k1=record["k1"],
        b=record["b"],
    )


def _read_record(folder: str) -> dict[str, Any]:
    uri = storage.join(folder, RECORD)
    if not storage.exists(uri):
        raise FileNotFoundError(f"no index at {folder!r}: {RECORD} is missing; write it with write_index")
    record = storage.read_record(uri, fix="build the index again")
    if record.get("format") != FORMAT:
        raise ValueError(f"file {uri!r} is not an index record of format {FORMAT}; build the index again")
    for name, digest in record["digests"].items():
        file = storage.join(folder, name)
        if not storage.exists(file) or storage.digest(file) != digest:
            raise ValueError(f"file {file!r} is corrupt or does not match its record; build the index again")
    return record


def _array(column: pa.ChunkedArray) -> np.ndarray:
    return column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()


def export_bm25s(index: Index, folder: str) -> None:
    """Export an index for `bm25s.BM25.load`, with the same scores (Lu 2024)."""
    passages, weights, start = index.as_lists()
    import bm25s  # imported here, because it and SciPy take 0.4 s

    model = bm25s.BM25(k1=index.k1, b=index.b, method="lucene")
    model.scores = {"data": weights, "indices": passages, "indptr": start, "num_docs": index.size}
    model.nonoccurrence_array = None  # Lucene's variant has no such scores
    model.vocab_dict = {term: i for i, term in enumerate(index.terms.to_pylist())}
    with storage.folder_for_writing(folder) as path:
        model.save(path, show_progress=False)
