"""Classes, or numbers, of any number of texts: files shared out over the cluster, read in chunks, written as Parquet.

A chunk's predictions are a file of their own, so a run that is interrupted goes on with the chunks that are missing.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch
from scipy.special import softmax
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from tlm_ray import parallel, storage
from tlm_ray.corpus.documents import as_strings, read_columns
from tlm_ray.training.packing import first_position

CHUNK_BATCHES = 8  # of a reader's 8,192 rows: what is in memory, and what an interrupted run loses at most
ROWS = 64  # that the model sees together
RECORD = "predictions.json"
PREDICTED, PROBABILITIES = "predicted", "probabilities"  # the columns that are added


def predict_texts(
    model: str, texts: str, out: str, *, columns: Sequence[str], workers: int, gpus: float = 0
) -> dict[str, Any]:
    """Write all rows of `texts` with `predicted` and `probabilities`; return how many there were, and the seconds.

    A regression's model predicts numbers, without probabilities.

    model: a folder, URI or hub name that opens as AutoModelForSequenceClassification. texts: a file, folder or glob of
    Parquet, CSV or JSONL. out: a folder or URI; `part-<file>-<chunk>.parquet` in the order of the input. columns: that
    of the text, and for pairs that of the second. A null has neither. ValueError if a column is missing or in the way,
    or if `out` holds predictions of another model or other texts, or the model is no classifier of one label a text.
    """
    started, files = time.monotonic(), storage.list_files(texts)
    _check_columns(files[0].uri, columns)
    _check_model(model)
    identities = [[file.uri, file.size, file.modified_ns] for file in files]
    _claim(out, {"model": _identity(model), "columns": list(columns), "texts": identities})
    items = [{"file": file.uri, "number": number, "bytes": file.size} for number, file in enumerate(files)]
    options: dict[str, Any] = {"workers": workers or _room(gpus), "gpus": gpus, "title": "predict", "size": "bytes"}
    arguments = (model, out, list(columns), "cuda" if gpus else "cpu")
    rows = sum(row["rows"] for row in parallel.each(items, Predictor, arguments=arguments, **options))
    return {"rows": rows, "seconds": time.monotonic() - started}


class Predictor:
    """Predicts the rows of one file after another."""

    def __init__(self, model: str, out: str, columns: list[str], device: str = "cpu"):
        self.out, self.columns, self.device = out, columns, device
        if storage.exists(model):
            with storage.folder_for_reading(model) as folder:
                self._open(str(folder))
        else:
            self._open(model)

    def _open(self, source: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        options: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False}
        self.model = AutoModelForSequenceClassification.from_pretrained(source, **options).to(self.device).eval()
        positions = getattr(self.model.config, "max_position_embeddings", self.tokenizer.model_max_length)
        self.tokens = min(self.tokenizer.model_max_length, positions - first_position(self.model.base_model))

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        """Write a file's predictions, chunk by chunk."""
        rows, batches = 0, read_columns(item["file"])
        for chunk, some in enumerate(iter(lambda: list(islice(batches, CHUNK_BATCHES)), [])):
            table = _together(some, item["file"])
            uri = storage.join(self.out, f"part-{item['number']:05d}-{chunk:05d}.parquet")
            if not storage.exists(uri):
                storage.write_parquet(uri, self._with_predictions(table, item["file"]))
            rows += len(table)
        return {"rows": rows}

    def _with_predictions(self, table: pa.Table, file: str) -> pa.Table:
        texts = [as_strings(table[column], column, file).to_pylist() for column in self.columns]
        known = np.array([all(text is not None for text in row) for row in zip(*texts, strict=True)], np.bool_)
        logits = np.zeros((len(table), self.model.config.num_labels), np.float32)
        rows = np.flatnonzero(known)
        logits[rows] = self.logits([[column[row] for row in rows] for column in texts])
        if logits.shape[1] == 1:  # as transformers has it: one label is a number
            return table.append_column(PREDICTED, pa.array(logits[:, 0], mask=~known))
        shares = softmax(logits, axis=1)
        labels = [self.model.config.id2label[int(best)] for best in shares.argmax(axis=1)]
        lists = pa.array([row if there else None for row, there in zip(shares, known, strict=True)])
        label = pa.array([name if there else None for name, there in zip(labels, known, strict=True)], pa.string())
        return table.append_column(PREDICTED, label).append_column(PROBABILITIES, lists)

    @torch.inference_mode()
    def logits(self, texts: list[list[str]]) -> np.ndarray:
        """Return the model's logits, float32 (rows, classes), of a column of texts or two."""
        found = np.zeros((len(texts[0]), self.model.config.num_labels), np.float32)
        order = np.argsort([sum(map(len, row)) for row in zip(*texts, strict=True)], kind="stable")
        for rows in _slices(order, ROWS):
            columns = [[column[row] for row in rows] for column in texts]
            options = {"truncation": True, "max_length": self.tokens, "padding": True, "return_tensors": "pt"}
            found[rows] = self.model(**self.tokenizer(*columns, **options).to(self.device)).logits.float().cpu().numpy()
        return found


def _together(batches: list[pa.RecordBatch], file: str) -> pa.Table:
    """Put batches into one table; of JSONL, a column may have other types or be absent from one to the next."""
    try:
        return pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"file {file!r}: {error}; make each column's values of one type") from error


def _slices(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _check_columns(uri: str, columns: Sequence[str]) -> None:
    first = next(read_columns(uri), None)
    names = first.schema.names if first is not None else list(columns)
    for column in columns:
        if column not in names:
            raise ValueError(f"file {uri!r} has no column {column!r}, only {', '.join(names)}; name the right one")
    for column in (PREDICTED, PROBABILITIES):
        if column in names:
            raise ValueError(f"file {uri!r} has a column {column!r} already; rename it, or predict on the original")


def _check_model(model: str) -> None:
    """Open what says how a model is used, before any worker does."""
    try:
        with storage.folder_for_reading(model) if storage.exists(model) else nullcontext(model) as source:
            config = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
            AutoTokenizer.from_pretrained(str(source), trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model {model!r}: transformers cannot open it ({str(error).splitlines()[0]}); give a trained model's "
            "folder, its URI or a hub name"
        ) from error
    if config.problem_type == "multi_label_classification":
        raise ValueError(f"model {model!r}: gives a text any number of labels; only models of one label can be used")


def _room(gpus: float) -> int:
    resources = ray.cluster_resources()
    return max(1, int(resources.get("GPU", 0) // gpus if gpus else resources.get("CPU", 1)))


def _identity(model: str) -> Any:
    """Say what a model is: a folder by its files' digests, a hub name by name."""
    return [storage.digest(file.uri) for file in storage.list_files(model)] if storage.exists(model) else model


def _claim(out: str, made_of: dict[str, Any]) -> None:
    """Note what the predictions are made of, or hold it against the note of before."""
    uri = storage.join(out, RECORD)
    if storage.exists(uri):
        if storage.read_json(uri) != made_of:
            raise ValueError(f"out {out!r}: holds predictions of another model or other texts; give another folder")
    elif storage.exists(out) and storage.list_files(out, missing_ok=True):
        raise ValueError(f"out {out!r}: holds other files; give another folder")
    else:
        storage.write_json(uri, made_of)
