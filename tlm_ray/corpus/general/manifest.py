"""List a corpus' files with their digests, and check that they stay unchanged while they are read."""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.corpus.general.dialects import dialect_of
from tlm_ray.corpus.general.documents import as_strings, file_format, read_columns
from tlm_ray.corpus.general.web import reader_version
from tlm_ray.storage.digests import content_digest, identity_of_file
from tlm_ray.storage.listing import File, base_of, folder_of, list_files, name_below

# names of files beside the data: a repository's own pages, and the hub's notes about a data set
ABOUT = re.compile(
    r"(readme([-_.][a-z]{2}([-_][a-z]{2,4})?)?|licen[cs]e([-_.](mit|bsd|apache|cc|l?gpl|mpl|\d)[\w.-]*?)?"
    r"|notice|changelog|contributing|citation)(\.(md|rst|txt|html|cff|bib))?|(dataset_infos?|dataset_dict|state)\.json",
    re.IGNORECASE,
)

# what the folder of a table format has, its name, and Ray's reader of the live rows
VERSIONED = {
    "_delta_log": ("Delta", "read_delta"),
    "metadata/version-hint.text": ("Iceberg", "read_iceberg"),
    ".hoodie": ("Hudi", "read_hudi"),
}
ICEBERG = ".metadata.json"  # end of the name of a table's own files
READERS = 16  # files whose digests are computed in parallel
TOLD_BYTES = 1_000_000_000  # above this size, reading for digests prints a line, because it takes minutes
TELL_EVERY_S = 5.0


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """One file of a corpus, as it was when the corpus was opened."""

    name: str
    """name below the corpus' location"""
    uri: str
    """location of the file"""
    size: int
    """bytes"""
    modified_ns: int
    """time of the last change, as in `listing.File`"""
    digest: str
    """`content_digest`: the sha256 of its bytes"""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A general corpus: files with the same text column."""

    uri: str
    """a file, folder or glob; for a union of corpora, all their locations in words"""
    column: str
    """name of the text column"""
    files: tuple[CorpusFile, ...]
    """its files, ordered by name"""

    locations: tuple[str, ...]
    """its files, folders and globs, as given"""
    left_out: tuple[str, ...] = ()
    """files that are about the data, such as a README"""

    @property
    def digest(self) -> str:
        """The corpus' identity: sha256 over its files' names and digests."""
        return hashlib.sha256(json.dumps([(f.name, f.digest) for f in self.files]).encode()).hexdigest()

    @property
    def readers(self) -> dict[str, str]:
        """Versions of libraries and readers that affect the text extracted from its files."""
        crawled = [file.uri for file in self.files if file_format(file.uri) == "warc"]
        return reader_version(crawled) if crawled else {}

    @property
    def dialect(self) -> str:
        """How its first CSV file is read, in words; "" for comma-separated UTF-8, or without such files."""
        first = next((file for file in self.files if file_format(file.uri) == "csv"), None)
        words = dialect_of(first.uri).words if first else ""
        return f"{first.name}: {words}" if first and words else ""

    @property
    def size(self) -> int:
        """Bytes of all files, compressed ones as stored."""
        return sum(file.size for file in self.files)


def open_corpus(uri: str, *, column: str, digests: str = "") -> Corpus:
    """List a corpus and return it with its digests; errors name the file and the column before any work starts.

    uri: a file, folder or glob; files such as README and LICENSE are left out. digests: file that caches the digests
    between runs ("" for none). A file is identified by its name and its bytes, which are read once. A file on the hub
    is identified by the hub's hash instead.
    """
    _refuse_versions(uri)
    listed = [file for file in list_files(uri) if file.size]
    found = [file for file in listed if not ABOUT.fullmatch(_name(file.uri))] or listed
    if not found:
        raise ValueError(f"corpus {uri!r}: all its files are empty; give a location with text")
    for batch in read_columns(found[0].uri, [column]):  # to detect a missing column or an unreadable file
        as_strings(batch.column(0), column, found[0].uri)
        break
    base, known = base_of(uri), _digests_of(found, kept=digests)
    files = [
        CorpusFile(
            name=name_below(base, file.uri),
            uri=file.uri,
            size=file.size,
            modified_ns=file.modified_ns,
            digest=known[file.uri],
        )
        for file in found
    ]
    left_out = tuple(name_below(base, file.uri) for file in listed if file.uri not in known)
    return Corpus(uri=uri, column=column, files=tuple(files), locations=(uri,), left_out=left_out)


def _refuse_versions(uri: str) -> None:
    """Raise ValueError for files of a table format that keeps overwritten rows in files of their own."""
    folder = folder_of(uri)  # of a glob or a file, it may be the table's
    while "=" in folder.rstrip("/").rpartition("/")[2] and "?" not in folder:  # a partition such as day=1
        folder = folder.rstrip("/").rpartition("/")[0]
    own = storage.join(folder, "metadata")
    of_iceberg = storage.exists(own) and bool(list_files(own, ICEBERG, missing_ok=True))
    for name, (kind, reader) in VERSIONED.items():
        if storage.exists(storage.join(folder, name)) or (kind == "Iceberg" and of_iceberg):
            raise ValueError(
                f"corpus {uri!r}: is a table of {kind}, whose files also have rows that were replaced; read it with "
                f"ray.data.{reader} in Python (docs/your_data.md, Ray Datasets), or export its rows"
            )


def _digests_of(files: Sequence[File], *, kept: str) -> dict[str, str]:
    """Return the digests of files by location; files that are not in the cache or have changed are read in parallel.

    kept: the cache, whose locations have no credentials. If reading a file fails, the other digests are still cached.
    """
    before = _kept(kept) if kept and storage.exists(kept) else {}
    known = {storage.without_credentials(uri): noted for uri, noted in before.items()}
    names = {file.uri: storage.without_credentials(file.uri) for file in files}
    new = [file for file in files if known.get(names[file.uri], [""])[0] != _stamp(file)]
    size = sum(file.size for file in new)
    if size > TOLD_BYTES:
        console.print(f"corpus: reads {size / 1e9:.1f} GB once, to know it by its bytes")
    started = told = time.monotonic()
    done = 0
    try:
        with ThreadPoolExecutor(READERS) as readers:
            for file, digest in zip(new, readers.map(content_digest, new), strict=True):
                known[names[file.uri]], done = [_stamp(file), digest], done + file.size
                if (now := time.monotonic()) - told > TELL_EVERY_S:
                    left, told = (now - started) * (size - done) / done, now
                    console.print(f"  corpus: {done / size:.0%} read, about {left:.0f} s left", style="dim")
    finally:
        if kept and known != before:
            storage.write_record(kept, known)
    return {uri: known[name][1] for uri, name in names.items()}


def _stamp(file: File) -> str:
    return f"{file.size} {file.modified_ns}"


def united(corpora: Sequence[Corpus]) -> Corpus:
    """Return the union of corpora with the same column, in their order; ValueError if two hold the same file."""
    if len(corpora) == 1:
        return corpora[0]
    files = [replace(file, name=f"{i}/{file.name}") for i, corpus in enumerate(corpora) for file in corpus.files]
    counts = Counter(storage.without_credentials(file.uri) for file in files)
    twice = [uri for uri, count in counts.items() if count > 1]
    if twice:
        raise ValueError(f"corpus file {twice[0]!r}: is in two of the corpora; name it once")
    locations, left_out = (
        tuple(each for corpus in corpora for each in getattr(corpus, n)) for n in ("locations", "left_out")
    )
    uri = " and ".join(locations)
    return Corpus(uri=uri, column=corpora[0].column, files=tuple(files), locations=locations, left_out=left_out)


def _name(uri: str) -> str:
    return storage.without_query(uri).rpartition("/")[2]


def _kept(uri: str) -> dict[str, list[str]]:
    """Return the cached digests of earlier runs: location -> size and time of change, and digest.

    In caches of earlier versions, locations still have their credentials.
    """
    return storage.read_record(uri, fix="delete this file: it only saves reading the corpus again")


def check_unchanged(file: CorpusFile) -> None:
    """Raise ValueError if a corpus file has changed since the corpus was opened.

    If only its time has, as by a new link to the file or other rights, its bytes decide.
    """
    now = list_files(file.uri)[0]
    is_same = now.modified_ns == file.modified_ns or identity_of_file(file.uri) == file.digest
    if now.size != file.size or not is_same:
        raise ValueError(
            f"corpus file {file.uri!r} changed while it was read: {file.size} bytes were fingerprinted, {now.size} are "
            "there now; let writers finish, then run again, which reads the corpus again"
        )
