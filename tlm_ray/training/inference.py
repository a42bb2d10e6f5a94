"""Predict classes or numbers for any number of texts: files are spread over the cluster and processed in chunks.

Each chunk's predictions are one Parquet file, so an interrupted run resumes with the missing chunks.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig

from tlm_ray import parallel, storage
from tlm_ray.corpus.documents import as_strings, read_columns
from tlm_ray.evaluation.pooling import pooled
from tlm_ray.evaluation.predictions import check_finite, shares
from tlm_ray.plain.linear_model import LinearModel, is_linear
from tlm_ray.storage.listing import list_files
from tlm_ray.storage.opening import open_settings, open_trained_classifier
from tlm_ray.training.packing import first_position
from tlm_ray.training.starts import opened

CHUNK_BATCHES = 8  # batches of 8,192 rows per chunk, the unit of memory and of resuming
ROWS = 64  # rows per batch of the model
RECORD = "predictions.json"
PREDICTED, PROBABILITIES = "predicted", "probabilities"  # names of the added columns
PRECISIONS = ("auto", "fp32", "bf16")
NUMBER = "number"  # label of a model without classes


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
    models = [model] if isinstance(model, str) else list(model)
    _check_columns(files[0].uri, columns)
    precision = _precision_of(models, precision)
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
    rows = sum(row["rows"] for row in parallel.each(items, Predictor, arguments=arguments, **options))
    return {"rows": rows, "seconds": time.monotonic() - started}


class Predictor:
    """Predicts the rows of one file after another."""

    def __init__(self, models: list[str], out: str, columns: list[str], device: str = "cpu", precision: str = "auto"):
        self.out, self.columns = out, columns
        self.linear = [LinearModel.open(model) for model in models if is_linear(model)]
        self.classifiers = [Classifier.open(model, device, precision) for model in models if not is_linear(model)]
        self.share = fmean(model.encoders_share or 0.0 for model in self.linear) if self.linear else 1.0
        self.labels = _classes(self.linear[0]) if self.linear else _names(self.classifiers[0].model.config)

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
        found = np.zeros((len(table), len(self.labels)), np.float32)
        rows = np.flatnonzero(known)
        if len(rows):
            found[rows] = self._said([[column[row] for row in rows] for column in texts])
        if len(self.labels) == 1:  # in transformers a single label means a regression
            return table.append_column(PREDICTED, pa.array(found[:, 0], mask=~known))
        labels = [self.labels[best] for best in found.argmax(axis=1)]
        lists = pa.array([row if there else None for row, there in zip(found, known, strict=True)])
        label = pa.array([name if there else None for name, there in zip(labels, known, strict=True)], pa.string())
        return table.append_column(PREDICTED, label).append_column(PROBABILITIES, lists)

    def _said(self, texts: list[list[str]]) -> np.ndarray:
        """Return probabilities, (rows, classes), or numbers, (rows, 1): means per kind of model, then their pool."""
        joined = [" ".join(row).rstrip() for row in zip(*texts, strict=True)]
        encoders = [shares(classifier.logits(texts)) for classifier in self.classifiers]
        linear = [shares(model.logits(joined)) for model in self.linear]
        if not (encoders and linear):
            return np.mean(encoders or linear, axis=0)
        return pooled(np.mean(encoders, axis=0), np.mean(linear, axis=0), self.share)


class Classifier:
    """A trained classifier with its tokenizer."""

    def __init__(self, source: str, device: str, precision: str, name: str = ""):
        self.device, self.name = device, name or source
        self.tokenizer = open_settings(AutoTokenizer, source)
        self.model = open_trained_classifier(source, name=self.name).to(device).eval()
        positions = getattr(self.model.config, "max_position_embeddings", self.tokenizer.model_max_length)
        self.tokens = min(self.tokenizer.model_max_length, positions - first_position(self.model.base_model))
        self.precision = _precision(self.model.config, precision)

    @classmethod
    def open(cls, model: str, device: str, precision: str) -> "Classifier":
        """Open a folder, URI or hub name."""
        with opened(model) as source:
            return cls(source, device, precision, name=model)

    @torch.inference_mode()
    def logits(self, texts: list[list[str]]) -> np.ndarray:
        """Return logits, float32 (rows, classes), for one column of texts, or two for pairs."""
        found = np.zeros((len(texts[0]), self.model.config.num_labels), np.float32)
        order = np.argsort([sum(map(len, row)) for row in zip(*texts, strict=True)], kind="stable")
        options = {"truncation": True, "max_length": self.tokens, "padding": True, "return_tensors": "pt"}
        device = torch.device(self.device)
        for rows in _slices(order, ROWS):
            columns = [[column[row] for row in rows] for column in texts]
            inputs = self.tokenizer(*columns, **options).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):  # as the metrics stage
                found[rows] = self.model(**inputs).logits.float().cpu().numpy()
        check_finite(found, self.name)
        return found


def _together(batches: list[pa.RecordBatch], file: str) -> pa.Table:
    """Concatenate batches into one table; in JSONL, a column's type or presence may vary between batches."""
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
            own = ", ".join(names)
            raise ValueError(f"file {uri!r} has no column {column!r}; its columns are {own}; choose one of them")
    for column in (PREDICTED, PROBABILITIES):
        if column in names:
            raise ValueError(f"file {uri!r} has a column {column!r} already; rename it, or predict on the original")


def _precision_of(models: Sequence[str], asked: str) -> str:
    """Return the common precision of an ensemble; all models are opened once, before workers start."""
    encoders = [model for model in models if not is_linear(model)]
    configs = {model: _check_model(model) for model in encoders}
    precisions = [_precision(configs[model], asked) for model in encoders]
    labels = [_names(configs[model]) if model in configs else _classes(LinearModel.open(model)) for model in models]
    for model, own in zip(models, labels, strict=True):
        if own != labels[0]:
            raise ValueError(
                f"model {model!r}: has the labels {own}, but {models[0]!r} has {labels[0]}; only models of one task "
                "predict together"
            )
    for model in models:
        if encoders and is_linear(model) and LinearModel.open(model).encoders_share is None:
            raise ValueError(
                f"model {model!r}: knows no share beside encoders; take the one that experiments/train.py --ensemble "
                "hands over, or predict without it"
            )
    for model, precision in zip(encoders, precisions, strict=True):
        if precision != precisions[0]:
            raise ValueError(
                f"model {model!r}: was trained in {precision}, but {encoders[0]!r} in {precisions[0]}; give precision "
                f"{' or '.join(PRECISIONS[1:])}"
            )
    return precisions[0] if precisions else "fp32"


def _classes(model: LinearModel) -> list[str]:
    return list(model.labels) or [NUMBER]


def _names(config: PretrainedConfig) -> list[str]:
    names = [name for _, name in sorted((config.id2label or {}).items())]  # a config.json may have "10" before "2"
    return names if len(names) > 1 else [NUMBER]


def _check_model(model: str) -> PretrainedConfig:
    """Return a model's configuration; the model is opened once, before workers start."""
    with opened(model) as source:
        try:
            config = open_settings(AutoConfig, source)
            open_settings(AutoTokenizer, source)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"model {model!r}: transformers cannot open it ({str(error).splitlines()[0]}); give a trained model's "
                "folder, its URI or a hub name"
            ) from error
        if config.problem_type == "multi_label_classification":
            raise ValueError(
                f"model {model!r}: gives a text any number of labels; only models of one label can be used"
            )
        open_trained_classifier(source, name=model)
    return config


def _precision(config: PretrainedConfig, asked: str) -> str:
    """Return fp32 or bf16, as asked; "auto" means the precision in the configuration, or fp32 without one."""
    if asked not in PRECISIONS:
        raise ValueError(f"precision {asked!r}: allowed are {', '.join(PRECISIONS)}")
    if asked != "auto":
        return asked
    trained = getattr(config, "trained_precision", "fp32")
    if trained not in PRECISIONS[1:]:
        raise ValueError(
            f"model: its config.json says trained_precision {trained!r}; give precision {' or '.join(PRECISIONS[1:])}"
        )
    return trained


def _room(gpus: float) -> int:
    resources = ray.cluster_resources()
    return max(1, int(resources.get("GPU", 0) // gpus if gpus else resources.get("CPU", 1)))


def _identity(model: str) -> Any:
    """Return a model's identity: the digests of a folder's files, or a hub name."""
    return [storage.digest(file.uri) for file in list_files(model)] if storage.exists(model) else model


def _claim(out: str, made_of: dict[str, Any]) -> None:
    """Record the inputs of the predictions in `out`; ValueError if it holds other ones."""
    uri = storage.join(out, RECORD)
    if storage.exists(uri):
        before = storage.read_json(uri)
        if _as_written_now(before) != _as_written_now(made_of):
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


def _as_written_now(value: Any) -> Any:
    """Return a record's values without credentials, which earlier versions kept in locations."""
    if isinstance(value, dict):
        return {name: _as_written_now(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_written_now(inner) for inner in value]
    return storage.without_credentials(value) if isinstance(value, str) else value
