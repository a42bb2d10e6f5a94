"""Predict the rows of a table with trained models: one, an ensemble, or encoders beside linear models."""

import os
import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig

from tlm_ray import storage
from tlm_ray.corpus.general.documents import as_strings
from tlm_ray.evaluation.pooling import pooled
from tlm_ray.evaluation.predictions import check_finite, shares
from tlm_ray.plain.linear_model import LinearModel, is_linear
from tlm_ray.storage.opening import open_settings, open_trained_classifier
from tlm_ray.training.encoders.configs import reads_types
from tlm_ray.training.encoders.scaled import with_scaled
from tlm_ray.training.encoders.starts import opened
from tlm_ray.training.encoders.weights import TrainedWeights
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.model.packing import first_position
from tlm_ray.training.objectives import TextLabels, classifier_of

ROWS = 64  # rows per batch of the model
LONGEST = 1_000_000  # tokens; where transformers knows no limit, it says 1e30, or -1 for relative positions
PREDICTED, PROBABILITIES = "predicted", "probabilities"  # names of the added columns
PRECISIONS = ("auto", "fp32", "bf16")
NUMBER = "number"  # label of a model without classes
IMPORTED_BY = os.getpid()


class Predictor:
    """Predicts the texts of a Ray Dataset: `dataset.map_batches(Predictor(model), batch_format="pyarrow")`.

    Each batch gets the columns that `predict_texts` adds. A process opens the models once and runs them on its GPU, if
    it has one (`num_gpus`).
    """

    def __init__(
        self, model: str | Sequence[str], *, column: str = "text", pair_column: str = "", precision: str = "auto"
    ):
        """Check the models; arguments and errors are those of `predict_texts`."""
        self.models = absolute_models(model)  # because workers may have another working folder
        self.columns = [name for name in (column, pair_column) if name]
        self.precision = check_models(self.models, precision)
        self.key = uuid.uuid4().hex  # models at the same place may be others tomorrow

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return a batch with its predictions; ValueError names a missing column, or one that is there already."""
        if not isinstance(batch, pa.Table):
            raise ValueError(f'batch: is a {type(batch).__name__}; give map_batches batch_format="pyarrow"')
        check_columns(batch.schema.names, self.columns, "the Dataset")
        if os.getpid() != IMPORTED_BY:  # torch's threads do not survive a fork: more than one waits for ever
            torch.set_num_threads(1)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return _opened(self.key, self.models, device, self.precision).with_predictions(batch, self.columns, "Dataset")


class Models:
    """Opened models, which predict together."""

    def __init__(self, models: Sequence[str], device: str = "cpu", precision: str = "auto"):
        self.linear = [LinearModel.open(model) for model in models if is_linear(model)]
        self.classifiers = [Classifier.open(model, device, precision) for model in models if not is_linear(model)]
        self.share = fmean(model.encoders_share or 0.0 for model in self.linear) if self.linear else 1.0
        self.labels = _classes(self.linear[0]) if self.linear else _names(self.classifiers[0].config)

    def with_predictions(self, table: pa.Table, columns: Sequence[str], file: str) -> pa.Table:
        """Return a table with predictions; columns: of the texts. file: names the table in errors."""
        texts = [as_strings(table[column], column, file).to_pylist() for column in columns]
        known = np.array([all(text is not None for text in row) for row in zip(*texts, strict=True)], np.bool_)
        found = np.zeros((len(table), len(self.labels)), np.float32)
        rows = np.flatnonzero(known)
        if len(rows):
            found[rows] = self.said([[column[row] for row in rows] for column in texts])
        if len(self.labels) == 1:  # in transformers a single label means a regression
            return table.append_column(PREDICTED, pa.array(found[:, 0], mask=~known))
        labels = [self.labels[best] for best in found.argmax(axis=1)]
        lists = pa.array([row if there else None for row, there in zip(found, known, strict=True)])
        label = pa.array([name if there else None for name, there in zip(labels, known, strict=True)], pa.string())
        return table.append_column(PREDICTED, label).append_column(PROBABILITIES, lists)

    def said(self, texts: list[list[str]]) -> np.ndarray:
        """Return probabilities, (rows, classes), or numbers, (rows, 1): means per kind of model, then their pool."""
        joined = [" ".join(row).rstrip() for row in zip(*texts, strict=True)]
        encoders = [shares(classifier.logits(texts)) for classifier in self.classifiers]
        linear = [shares(model.logits(joined)) for model in self.linear]
        if not (encoders and linear):
            return np.mean(encoders or linear, axis=0)
        return pooled(np.mean(encoders, axis=0), np.mean(linear, axis=0), self.share)


@lru_cache(maxsize=1)
def _opened(key: str, models: tuple[str, ...], device: str, precision: str) -> Models:
    """Return the models that this process keeps for a predictor, by its key."""
    return Models(models, device, precision)


class Classifier:
    """A trained classifier with its tokenizer."""

    def __init__(self, source: str, device: str, precision: str, name: str = ""):
        self.device, self.name = device, name or source
        self.tokenizer = open_settings(AutoTokenizer, source)
        self.config = open_settings(AutoConfig, source)
        scores: Any
        self.model: Any
        if isinstance(classifier_of(self.config), TextLabels):
            names = tuple(_names(self.config))
            weights = TrainedWeights(source, labels=names, seed=0, keep_head=True, name=self.name)
            self.model = model = JointModel(weights, (TextLabels(),)).on(device).eval()
            scores, encoder = model.scores, model.encoder
        else:
            classifier: Any = open_trained_classifier(source, name=self.name)
            if self.config.num_labels == 1:
                classifier = with_scaled(classifier)  # as in training, so that bf16 does not round its numbers
            self.model = classifier.to(device).eval()
            scores, encoder = (lambda inputs: self.model(**inputs).logits), self.model.base_model
        self.scores = scores
        positions = getattr(self.config, "max_position_embeddings", self.tokenizer.model_max_length)
        limits = self.tokenizer.model_max_length, positions - first_position(encoder)
        self.tokens = min((limit for limit in limits if 0 < limit <= LONGEST), default=None)
        self.precision = _precision(self.config, precision)

    @classmethod
    def open(cls, model: str, device: str, precision: str) -> "Classifier":
        """Open a folder, URI or hub name."""
        with opened(model) as source:
            return cls(source, device, precision, name=model)

    @torch.inference_mode()
    def logits(self, texts: list[list[str]]) -> np.ndarray:
        """Return logits, float32 (rows, classes), for one column of texts, or two for pairs."""
        found = np.zeros((len(texts[0]), self.config.num_labels), np.float32)
        order = np.argsort([sum(map(len, row)) for row in zip(*texts, strict=True)], kind="stable")
        options: dict[str, Any] = {"padding": True, "return_tensors": "pt"}
        if self.tokens is not None:
            options |= {"truncation": True, "max_length": self.tokens}
        if not reads_types(self.config):
            options["return_token_type_ids"] = False  # as in training, whatever the tokenizer returns by itself
        device = torch.device(self.device)
        for rows in _slices(order, ROWS):
            columns = [[column[row] for row in rows] for column in texts]
            inputs = self.tokenizer(*columns, **options).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):  # as the metrics stage
                found[rows] = self.scores(dict(inputs)).float().cpu().numpy()
        check_finite(found, self.name)
        return found


def _slices(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def absolute_models(model: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several models, folders as absolute locations and hub names unchanged."""
    return tuple(storage.absolute_if_there(each) for each in ([model] if isinstance(model, str) else model))


def check_columns(names: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Check the columns of a table; ValueError names a missing column, or one that would be added twice."""
    for column in columns:
        if column not in names:
            own = ", ".join(names)
            raise ValueError(f"{where} has no column {column!r}; its columns are {own}; choose one of them")
    for column in (PREDICTED, PROBABILITIES):
        if column in names:
            raise ValueError(f"{where} has a column {column!r} already; rename it, or predict on the original")


def check_models(models: Sequence[str], asked: str) -> str:
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
                f"model {model!r}: knows no share beside encoders; take the one that train.py --ensemble "
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


def names_of(model: str) -> list[str]:
    """Return the names of a model's labels, in its order, or [NUMBER] for a regression."""
    if is_linear(model):
        return _classes(LinearModel.open(model))
    with opened(model) as source:
        return _names(open_settings(AutoConfig, source))


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
        Classifier(source, "cpu", "fp32", name=model)
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
