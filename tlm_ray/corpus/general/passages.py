"""The passages stage: cut every document of a corpus into passages, one Parquet part per portion of the corpus.

A passage's id is its position in the corpus: files by name, then rows, then passages. The list of parts holds a digest
per column and row group, to detect corruption on reading. It also holds the key of each part's portion, so that a grown
corpus reuses existing parts. Another list holds the number of passages per file, or range of a file.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.documents import as_strings, read_columns
from tlm_ray.corpus.general.manifest import Corpus, CorpusFile, check_unchanged
from tlm_ray.corpus.general.portions import KEY_BYTES, Range, key_of, portions_of
from tlm_ray.corpus.general.splitting import split_document
from tlm_ray.storage.listing import base_of, list_files, name_below

if TYPE_CHECKING:
    import ray.data

PASSAGES_VERSION = 5  # parts have keys since version 5
PARTS = "parts.json"
RANGES = "ranges.arrow"
WORK = "work"  # the stage's `scratch`, a subfolder needed only while it is made
COUNTS = ("documents", "empty_rows", "text_bytes")  # of a part
READERS = 8  # small files that a worker fetches in parallel
SCHEMA = pa.schema({"text": pa.string(), "source": pa.string()})
ROW_GROUP = 8192  # passages per row group, the unit of reading


def cut_passages(
    folder: str,
    corpus: Corpus,
    *,
    passage_tokens: int,
    workers: int,
    share: float = 1.0,
    source: str = "",
    beside: str = "",
) -> dict[str, Any]:
    """Cut a corpus into passages of about `passage_tokens` word pieces; return facts for the stage's record.

    share: share of documents to keep, sampled by a hash of their text. source: column with the names of the documents'
    files; "" for the corpus' own files. beside: folder of other corpora's passages,
    whose parts of equal portions are reused. Rows without text are skipped and counted. ValueError if no text is left.
    """
    options = {
        "version": PASSAGES_VERSION,
        "column": corpus.column,
        "passage_tokens": passage_tokens,
        "share": share,
        **corpus.readers,
        **({"source": source} if source else {}),
    }
    there, items, keys = _parts_below(beside) if beside else {}, [], list[bytes]()
    for number, portion in enumerate(portions_of(corpus.files)):
        own = [key_of(one, options) for one in portion]
        key = hashlib.sha256(b"".join(own)).hexdigest()
        items.append({"part": number, "portion": portion, "key": key, "there": there.get(key)})
        keys += own
    arguments = (folder, corpus.column, source, passage_tokens, share)
    made = list(parallel.each(items, _Cutter, arguments=arguments, workers=workers, title="cut passages"))
    parts = [row["made"] for row in sorted(made, key=lambda row: row["part"])]
    if not sum(part["passages"] for part in parts):
        raise ValueError(
            f"corpus {corpus.uri!r}: column {corpus.column!r} has no text in any row; choose another (--column)"
        )
    sizes = [size for part in parts for size in part["sizes"]]
    ranges = pa.table({"key": pa.array(keys, pa.binary(KEY_BYTES)), "passages": pa.array(sizes, pa.int64())})
    storage.write_table(storage.join(folder, RANGES), ranges)
    storage.write_record(storage.join(folder, PARTS), {"parts": parts})
    taken = sum(row["taken"] for row in made)
    totals = {name: sum(part[name] for part in parts) for name in ("passages", *COUNTS)}
    return totals | ({"parts_taken_over": taken} if taken else {})


def _parts_below(folder: str) -> dict[str, dict[str, Any]]:
    """Return the existing parts of all corpora, by the keys of their portions."""
    found: dict[str, dict[str, Any]] = {}
    base = base_of(folder)
    for file in list_files(folder, f"/{PARTS}", missing_ok=True):
        home = storage.join(folder, name_below(base, file.uri).removesuffix(f"/{PARTS}"))
        for part in storage.read_record(file.uri)["parts"]:
            if "key" in part:  # since version 5
                found[part["key"]] = part | {"uri": storage.join(home, part["file"])}
    return found


class _Cutter:
    """A worker that cuts one portion of a corpus into one part."""

    def __init__(self, folder: str, column: str, source: str, passage_tokens: int, share: float):
        self.folder, self.column, self.source = folder, column, source
        self.passage_tokens, self.share = passage_tokens, share

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        name = f"part-{item['part']:05d}"
        done = storage.join(self.folder, WORK, f"{name}-{item['key'][:16]}.json")
        if not storage.exists(done):  # an interrupted run may have written it
            uri = storage.join(self.folder, f"{name}.parquet")
            taken = _take_over(item["there"], uri)
            part = taken or self._cut_part(uri, item["portion"])
            made = part | {"file": f"{name}.parquet", "key": item["key"]}
            storage.write_record(done, {"part": item["part"], "made": made, "taken": bool(taken)})
        return storage.read_record(done)

    def _cut_part(self, uri: str, portion: list[Range]) -> dict[str, Any]:
        counts, sizes = dict.fromkeys(COUNTS, 0), [0] * len(portion)
        return write_part(uri, self._passages(portion, counts, sizes)) | counts | {"sizes": sizes}

    def _passages(self, portion: list[Range], counts: dict[str, int], sizes: list[int]) -> Iterator[pa.Table]:
        """Yield the passages of a portion and count them per range; small files are fetched in parallel."""
        with ThreadPoolExecutor(READERS) as readers:
            is_one = len(portion) == 1
            fetched = map(self._read, portion) if is_one else readers.map(lambda one: list(self._read(one)), portion)
            for number, (one, batches) in enumerate(zip(portion, fetched, strict=True)):
                for batch in batches:
                    table = self._cut(batch, one.file, counts)
                    sizes[number] += len(table)
                    yield table

    def _read(self, one: Range) -> Iterator[pa.RecordBatch]:
        columns = [self.column, *([self.source] if self.source else [])]
        yield from read_columns(one.file.uri, columns, one.bounds)
        check_unchanged(one.file)

    def _cut(self, batch: pa.RecordBatch, file: CorpusFile, counts: dict[str, int]) -> pa.Table:
        passages, sources = list[str](), list[str]()
        documents = as_strings(batch.column(0), self.column, file.uri).to_pylist()
        names = batch.column(1).to_pylist() if self.source else repeat(file.name)
        for document, name in zip(documents, names, strict=False):
            if self.share < 1 and not _is_drawn(document or "", self.share):
                continue
            found = split_document(document or "", passage_tokens=self.passage_tokens)
            counts["documents" if found else "empty_rows"] += 1
            passages += found
            sources += [name] * len(found)
        counts["text_bytes"] += sum(len(passage.encode()) for passage in passages)
        return pa.table({"text": passages, "source": sources}, SCHEMA)


def _take_over(there: dict[str, Any] | None, uri: str) -> dict[str, Any] | None:
    """Copy an existing part of another corpus; None if there is none or it is corrupt."""
    if there is None:
        return None
    try:
        data = storage.read_bytes(there["uri"])
    except OSError:  # deleted since it was listed
        return None
    if hashlib.sha256(data).hexdigest() != there["sha256"]:
        return None
    storage.write_bytes(uri, data)
    return {name: value for name, value in there.items() if name != "uri"}


def write_part(uri: str, tables: Iterable[pa.Table]) -> dict[str, Any]:
    """Write passages (tables of text and source) as one part; return its entry for the list of parts.

    The entry has the part's sha256, the numbers of passages of the part and of its row groups, and the column digests.
    """
    digests: dict[str, list[str]] = {name: [] for name in SCHEMA.names}
    groups: list[int] = []
    with (
        storage.open_output(uri) as stream,
        pq.ParquetWriter(stream, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):
        for table in tables:
            for first in range(0, len(table), ROW_GROUP):
                group = table.slice(first, ROW_GROUP)
                writer.write_table(group)
                groups.append(len(group))
                for name, known in digests.items():
                    known.append(_digest(group[name]))
    return {"sha256": storage.digest(uri), "passages": sum(groups), "groups": groups, "digests": digests}


def _digest(strings: pa.ChunkedArray) -> str:
    """Return a 64-bit hash of strings, independent of their memory layout."""
    found = hashlib.blake2b(pc.binary_length(strings).to_numpy().tobytes(), digest_size=8)
    for chunk in strings.chunks:
        _, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        if data is not None and len(chunk):
            found.update(memoryview(data)[ends[0] : ends[-1]])
    return found.hexdigest()


def _is_drawn(text: str, share: float) -> bool:
    """Return whether a document is in the share, which depends on its text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) < share * 2**64


@dataclass(frozen=True)
class PassageStore:
    """The passages of a finished stage, readable by range of ids."""

    folder: str
    parts: Sequence[dict[str, Any]]

    @classmethod
    def open(cls, folder: str) -> "PassageStore":
        """Open the folder of a passages stage."""
        return cls(folder, storage.read_record(storage.join(folder, PARTS))["parts"])

    def __len__(self) -> int:
        return sum(part["passages"] for part in self.parts)

    def read(self, start: int, stop: int, columns: Sequence[str] = ("text",)) -> pa.Table:
        """Return the passages with ids in [start, stop), in order."""
        tables, first = [SCHEMA.empty_table().select(list(columns))], 0
        for part in self.parts:
            low, high = max(start, first) - first, min(stop, first + part["passages"]) - first
            if low < high:
                tables.append(self._read_part(part, low, high, list(columns)))
            first += part["passages"]
        return pa.concat_tables(tables)

    def dataset(self) -> "ray.data.Dataset":
        """Return all passages, in order, as a Ray Dataset of passage (the id), text and source."""
        ends = np.cumsum([0, *(part["passages"] for part in self.parts)]).tolist()
        ranges = [{"start": start, "stop": stop} for start, stop in pairwise(ends)]
        return parallel.dataset_of(self._with_ids, ranges, name="passages")

    def _with_ids(self, start: int, stop: int) -> pa.Table:
        ids = pa.array(np.arange(start, stop))
        return self.read(start, stop, SCHEMA.names).add_column(0, "passage", ids)

    def _read_part(self, part: dict[str, Any], low: int, high: int, columns: list[str]) -> pa.Table:
        """Read rows [low, high) of a part, from the row groups that hold them."""
        uri, starts = storage.join(self.folder, part["file"]), np.cumsum([0, *part["groups"]])
        groups = [group for group, first in enumerate(starts[:-1]) if first < high and starts[group + 1] > low]
        filesystem, path = storage.open_filesystem(uri)
        try:
            with pq.ParquetFile(path, filesystem=filesystem, page_checksum_verification=True) as file:
                tables = [file.read_row_group(group, columns=columns) for group in groups]
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"file {uri!r} cannot be read ({error}); {storage.MAKE_ANEW}") from error
        for name in columns:
            if [part["digests"][name][group] for group in groups] != [_digest(table[name]) for table in tables]:
                raise ValueError(f"file {uri!r} is corrupt (its {name} has changed); {storage.MAKE_ANEW}")
        return pa.concat_tables(tables).slice(low - starts[groups[0]], high - low)
