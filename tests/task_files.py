"""Task folders for tests, written by the standard library and pyarrow."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq

TRAIN = [("a b", "pos"), ('c, "d"\ne', "neg"), ("ü 三 😀", "pos"), ("f", "mid")]
SPLITS = {"train": TRAIN, "dev": TRAIN[:2], "test": TRAIN[1:]}


def write_rows(path, rows):
    """Write rows of a dict each in the format of the path's ending, with no code of ours."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def as_rows(examples):
    return [{"text": text, "label": label} for text, label in examples]


def write_folder(folder, *, ending=".jsonl", names=("train", "dev", "test"), **changes):
    """Write a task folder; `changes` replace a split's (text, label) pairs or its rows, or leave it out by None."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (split, examples) in zip(names, (SPLITS | changes).items(), strict=True):
        if examples is not None:
            rows = examples if examples and isinstance(examples[0], dict) else as_rows(examples)
            write_rows(folder / f"{name}{ending}", rows)
        assert split in SPLITS
    return f"{folder}/"


def contents(task):
    return {split: table.to_pylist() for split, table in task.splits.items()}
