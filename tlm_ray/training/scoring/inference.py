"""Predict classes or numbers for any number of texts: files are spread over the cluster and processed in chunks.

Each chunk's predictions are one Parquet file, so an interrupted run resumes with the missing chunks.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import ray

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.documents import read_columns
from tlm_ray.storage.digests import files_of_model
from tlm_ray.storage.listing import list_files
from tlm_ray.training.scoring.predictor import PROBABILITIES, Models, absolute_models, check_columns, check_models

if TYPE_CHECKING:
    import ray.data

CHUNK_BATCHES = 8  # batches of 8,192 rows per chunk, the unit of memory and of resuming
RECORD = "predictions.json"
PROBABILITY = "probability"  # column of CSV files


def predict_texts(
    model: str | Sequence[str],
    texts: str,
    out: str,
    *,
    columns: Sequence[str],
    workers: int,
    gpus: float = 0,
    precision: str = "auto",
) -> dict[str, Any]:
    """Write all rows of `texts` with their predictions; return the number of rows and the seconds.

    Each row gets `predicted` and `probabilities`. A regression predicts numbers, without probabilities. A row with a
    null text gets neither.

    model: a folder, URI or hub name that opens as AutoModelForSequenceClassification, or the folder of a linear model
    (`tlm_ray.plain.linear_model`). Several models form an ensemble: their probabilities (or numbers) are averaged.
    Encoders and linear models are pooled (`tlm_ray.evaluation.pooling`). texts: a file, folder or glob of Parquet, CSV
    or JSONL. out: a folder or URI for `part-<file>-<chunk>.parquet`, in input order. columns: the text column and, for
    pairs, the column of second texts. workers: number of processes; 0 for one per CPU, or per GPU with gpus. precision:
    fp32, bf16 (autocast) or auto, the precision of the training in the model's configuration.

    ValueError if an input column is missing or an output column already exists. ValueError if `out` holds predictions
    of another model, other texts or another precision. ValueError if a model does not give one label per text, or if
    the models' labels differ.
    """
    started, files = time.monotonic(), list_files(texts)
    out, models = storage.absolute(out), absolute_models(model)  # workers may have another working folder
    _check_columns(files[0].uri, columns)
    precision = check_models(models, precision)
    files_of = [_identity(each) for each in models]
    made_of = {
        "model": files_of if len(models) > 1 else files_of[0],
        "columns": list(columns),
        "texts": [[storage.without_credentials(file.uri), file.size, file.modified_ns] for file in files],
        "precision": precision,
    }
    _claim(out, made_of)
    items = [{"file": file.uri, "number": number, "bytes": file.size} for number, file in enumerate(files)]
    options: dict[str, Any] = {"workers": workers or _room(gpus), "gpus": gpus, "title": "predict", "size": "bytes"}
    arguments = (models, out, list(columns), "cuda" if gpus else "cpu", precision)
    rows = sum(row["rows"] for row in parallel.each(items, FilePredictor, arguments=arguments, **options))
    return {"rows": rows, "seconds": time.monotonic() - started}


@dataclass(frozen=True)
class Predictions:
    """The predictions that `predict_texts` wrote to a folder, in the order of its input."""

    folder: str

    @property
    def files(self) -> list[str]:
        """The locations of its Parquet files."""
        return [file.uri for file in list_files(self.folder, ".parquet", missing_ok=True)]

    def dataset(self) -> "ray.data.Dataset":
        """Return all rows as a Ray Dataset, one block per file."""
        return parallel.dataset_of(_read_whole, [{"uri": uri} for uri in self.files], name="predictions")

    def write_csv(self, uri: str) -> None:
        """Write all rows to one CSV file: the input's columns, `predicted`, and `probability`, that of this class.

        ValueError names a column that CSV cannot hold, such as a list, or that is there already.
        """
        if not self.files:
            raise ValueError(f"csv {uri!r}: {storage.shown(self.folder)} has no rows")
        try:
            schema = pa.unify_schemas([_for_csv(file).schema for file in self.files], promote_options="permissive")
            with storage.open_output(uri) as sink, pacsv.CSVWriter(sink, schema) as writer:
                for file in self.files:
                    whole = pa.concat_tables([schema.empty_table(), _for_csv(file)], promote_options="permissive")
                    writer.write_table(whole.select(schema.names).cast(schema))
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"csv {uri!r}: {error}; leave out --csv, the predictions are Parquet") from error


def _for_csv(uri: str) -> pa.Table:
    """Return the rows of a file of predictions with the highest probability instead of all."""
    table = _read_whole(uri)
    if PROBABILITIES not in table.column_names:
        return table
    if PROBABILITY in table.column_names:
        raise ValueError(f"the texts have a column {PROBABILITY!r} already")
    highest = [max(found) if found else None for found in table[PROBABILITIES].to_pylist()]
    return table.drop_columns([PROBABILITIES]).append_column(PROBABILITY, pa.array(highest, pa.float32()))


def _read_whole(uri: str) -> pa.Table:
    return _together(list(read_columns(uri)), uri)


class FilePredictor:
    """Predicts the rows of one file after another."""

    def __init__(self, models: list[str], out: str, columns: list[str], device: str = "cpu", precision: str = "auto"):
        self.out, self.columns, self.models = out, columns, Models(models, device, precision)

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        """Write a file's predictions, chunk by chunk."""
        rows, batches = 0, read_columns(item["file"])
        for chunk, some in enumerate(iter(lambda: list(islice(batches, CHUNK_BATCHES)), [])):
            table = _together(some, item["file"])
            uri = storage.join(self.out, f"part-{item['number']:05d}-{chunk:05d}.parquet")
            if not storage.exists(uri):
                storage.write_parquet(uri, self.models.with_predictions(table, self.columns, item["file"]))
            rows += len(table)
        return {"rows": rows}


def _together(batches: list[pa.RecordBatch], file: str) -> pa.Table:
    """Concatenate batches into one table; in JSONL, a column's type or presence may vary between batches."""
    try:
        return pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"file {file!r}: {error}; make each column's values of one type") from error


def _check_columns(uri: str, columns: Sequence[str]) -> None:
    first = next(read_columns(uri), None)
    check_columns(first.schema.names if first is not None else list(columns), columns, f"file {uri!r}")


def _room(gpus: float) -> int:
    resources = ray.cluster_resources()
    return max(1, int(resources.get("GPU", 0) // gpus if gpus else resources.get("CPU", 1)))


def _identity(model: str) -> Any:
    """Return a model's identity: the digests of a folder's files, or a hub name."""
    return [storage.digest(file.uri) for file in files_of_model(model)] if storage.exists(model) else model


def _claim(out: str, made_of: dict[str, Any]) -> None:
    """Record the inputs of the predictions in `out`; ValueError if it holds other ones."""
    uri = storage.join(out, RECORD)
    if storage.exists(uri):
        before = storage.read_json(uri)
        kept, asked = map(storage.all_without_credentials, (before, made_of))  # earlier versions kept credentials
        if kept != asked:
            raise ValueError(
                f"out {out!r}: holds predictions of another model, other texts or another precision; give another "
                "folder"
            )
        if before != made_of:
            storage.write_json(uri, made_of)
    elif storage.exists(out) and list_files(out, missing_ok=True):
        raise ValueError(f"out {out!r}: holds other files; give another folder")
    else:
        storage.write_json(uri, made_of)
