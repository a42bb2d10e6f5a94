"""Read the records of stages, each once.

A record is written last and never changes, so one that was read is kept; a missing one is looked for again.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tlm_ray import storage
from tlm_ray.runs.stages.stage import DIGITS, RECORD, Stage, read_record, unique
from tlm_ray.storage.listing import list_files

READERS = 16  # records read at once
Record = dict[str, Any]


class Records:
    """The records under a root."""

    def __init__(self, root: str):
        self.root = root
        self._read: dict[str, Record] = {}  # by folder below the root

    def at(self, folder: str) -> Record | None:
        """Return the record in a folder below the root, None if there is none; ValueError if it is invalid."""
        record = self._read.get(folder) or read_record(self.root, folder)
        if record is not None:
            self._read[folder] = record
        return record

    def of(self, stage: Stage) -> Record | None:
        """Return a stage's record, None if it is not complete."""
        return self.at(stage.folder(""))

    def facts(self, stage: Stage | None) -> Mapping[str, Any]:
        """Return a stage's facts, {} if it is not needed or not complete."""
        return {} if stage is None else (self.of(stage) or {}).get("facts", {})

    def many(self, folders: Iterable[str]) -> dict[str, Record]:
        """Return the records in folders below the root, by folder, without missing ones; they are read side by side."""
        names = list(folders)
        fresh = [name for name in names if name not in self._read]
        if fresh:
            with ThreadPoolExecutor(min(READERS, len(fresh))) as readers:
                list(readers.map(self.at, fresh))
        return {name: self._read[name] for name in names if name in self._read}

    def found(self, stages: Sequence[Stage]) -> dict[str, Record]:
        """Return the records of cached stages, by fingerprint, among these and all their dependencies.

        A stage counts as cached if its record exists and all its inputs are cached. So if someone deletes a result,
        everything made from it is made again.
        """
        waiting, records = unique(stages), dict[str, Record]()
        while ready := [one for one in waiting if all(each.fingerprint in records for each in one.inputs.values())]:
            read = self.many(one.folder("") for one in ready)
            records |= {one.fingerprint: read[one.folder("")] for one in ready if one.folder("") in read}
            names = {one.fingerprint for one in ready}
            waiting = [one for one in waiting if one.fingerprint not in names]
        return records

    def named(self, name: str, *, most: int | None = None) -> list[Record]:
        """Return the records of all complete stages of a name, or of some of them."""
        files = list_files(storage.join(self.root, name), f"/{RECORD}", missing_ok=True)
        places = [storage.without_query(file.uri).split("/")[-3:-1] for file in files]
        own = [f"{kind}/{place}" for kind, place in places if kind == name and len(place) == DIGITS]
        return list(self.many(own[:most]).values())

    def forget(self, stage: Stage) -> None:
        """Forget a stage's record, because it was deleted."""
        self._read.pop(stage.folder(""), None)
