"""Use a Ray Dataset as a corpus: stream its texts once, in order, into files below the root.

A file holds a fixed number of documents, so the Dataset's blocks leave no trace. Its name is the digest of its texts.
So equal texts are written once, a Dataset that has grown reuses its files, and the corpus is identified by its texts.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm_ray import storage
from tlm_ray.corpus.general.documents import as_strings, read_columns
from tlm_ray.corpus.general.manifest import Corpus, CorpusFile
from tlm_ray.storage.listing import list_files

if TYPE_CHECKING:
    import ray.data

FOLDER = "datasets"  # below the root
FILE_ROWS = 4096  # documents per file; memory holds a file's texts at a time
TEXT = "text"  # the column of the files


def corpus_from(given: "Corpus | ray.data.Dataset", *, root: str, column: str = TEXT) -> Corpus:
    """Return a corpus; a Dataset's texts are written below `root` first. ValueError if it is neither."""
    if isinstance(given, Corpus):
        return given
    import ray.data  # here: it takes 0.5 s

    if not isinstance(given, ray.data.Dataset):
        raise ValueError(f"corpus {given!r}: give a ray.data.Dataset, or a location through open_corpus(...)")
    return keep_dataset(given, root, column=column)


def keep_dataset(dataset: "ray.data.Dataset", root: str, *, column: str = TEXT) -> Corpus:
    """Write a Dataset's texts below `root`, unless they are there, and return them as a corpus.

    The order of documents is the Dataset's own, which is kept while it is streamed. column: name of the text column.
    ValueError names a missing column and those there are, a column without text, and a Dataset without rows.
    """
    names = dataset.columns()
    if names is None:
        raise ValueError("corpus: the Dataset has no rows; give one with texts")
    if column not in names:
        raise ValueError(f"corpus: the Dataset has no column {column!r}; its columns are {', '.join(names)}; name one")
    folder = storage.join(root, FOLDER)
    with _in_order(dataset):
        batches = dataset.select_columns([column]).iter_batches(batch_size=FILE_ROWS, batch_format="pyarrow")
        texts = (as_strings(batch[column], column, "Dataset") for batch in batches)
        files = tuple(_keep(folder, number, some) for number, some in enumerate(texts))
    if not files:
        raise ValueError("corpus: the Dataset has no rows; give one with texts")
    return Corpus(uri=folder, column=TEXT, files=files, locations=(folder,))


@contextmanager
def _in_order(dataset: "ray.data.Dataset") -> Iterator[None]:
    """Have a Dataset yield its rows in its own order; its other settings stay the user's."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield
    finally:
        options.preserve_order = before


def _keep(folder: str, number: int, texts: pa.ChunkedArray) -> CorpusFile:
    """Write one file, unless it is there with these texts."""
    digest = _digest(texts)
    uri = storage.join(folder, f"{digest}.parquet")
    if not (storage.exists(uri) and _digest_of(uri) == digest):
        storage.write_parquet(uri, pa.table({TEXT: texts}))
    (file,) = list_files(uri)
    name = f"part-{number:05d}.parquet"
    return CorpusFile(name=name, uri=file.uri, size=file.size, modified_ns=file.modified_ns, digest=digest)


def _digest_of(uri: str) -> str:
    """Return the digest of a file's texts, "" if it is corrupt."""
    try:
        return _digest(pa.chunked_array([batch.column(0) for batch in read_columns(uri, [TEXT])], pa.string()))
    except ValueError:
        return ""


def _digest(texts: pa.ChunkedArray) -> str:
    """Return a sha256 of texts, which distinguishes null from empty and does not depend on how they are chunked."""
    sizes = pc.fill_null(pc.binary_length(texts), -1)
    found = hashlib.sha256(sizes.to_numpy().astype(np.int64).tobytes())
    found.update("".join(text or "" for text in texts.to_pylist()).encode())
    return found.hexdigest()
