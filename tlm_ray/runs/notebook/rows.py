"""Write labelled rows as a task, in a folder that is named after their content."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tlm_ray import storage
from tlm_ray.corpus.labelled.class_names import is_missing, spelt
from tlm_ray.corpus.labelled.task_splits import cut
from tlm_ray.runs.notebook.inputs import Labelled

FOLDER = "notebook"


def write_rows(root: str, splits: Mapping[str, Labelled], names: Mapping[Any, str]) -> str:
    """Write the rows below the root, unless they are there, and return their folder.

    names: of the labels. Without dev rows, a tenth of the texts are dev. Test rows are those of dev, since nothing is
    tested here.
    """
    tables = {split: _table(rows, names) for split, rows in splits.items()}
    if "dev" not in tables:
        tables, _ = cut(tables["train"], ["dev"], by_label=True)
    files = {split: _lines(tables["dev" if split == "test" else split]) for split in ("train", "dev", "test")}
    digest = hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in files.values())).hexdigest()
    folder = storage.join(root, FOLDER, f"rows-{digest[:20]}")
    for split, data in files.items():
        if not storage.exists(uri := storage.join(folder, f"{split}.jsonl")):
            storage.write_bytes(uri, data)
    return folder


def names_of(classes: Sequence[Any]) -> list[str]:
    """Return a name per class: its text, or a number where texts would be alike or missing."""
    names = [str(each) for each in classes]
    alike = set(map(spelt, names))
    if len(alike) == len(names) and "" not in alike and not any(map(is_missing, names)):
        return names
    width = len(str(len(classes) - 1))
    return [f"class {number:0{width}}" for number in range(len(classes))]


def _table(rows: Labelled, names: Mapping[Any, str]) -> pa.Table:
    first, *second = rows.texts
    pairs = second[0] if second else [""] * len(first)
    labels = [names[each] for each in rows.labels]
    return pa.table(
        {"text": first, "text_pair": pairs, "label": labels},
        schema=pa.schema({name: pa.string() for name in ("text", "text_pair", "label")}),
    )


def _lines(table: pa.Table) -> bytes:
    """Return rows as lines of JSON, whose bytes depend on no library's version."""
    if not any(table["text_pair"].to_pylist()):
        table = table.drop_columns(["text_pair"])
    return "".join(f"{json.dumps(row)}\n" for row in table.to_pylist()).encode()
