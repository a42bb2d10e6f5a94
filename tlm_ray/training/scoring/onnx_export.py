"""Export a trained classifier to ONNX, and hold the file against PyTorch; on request with weights of 8 bits too."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoTokenizer

import tlm_ray.training.encoders.marked_head  # noqa: F401 - transformers knows this model by it
from tlm_ray import storage
from tlm_ray.plain.linear_model import is_linear
from tlm_ray.storage.opening import open_settings, open_trained_classifier
from tlm_ray.training.encoders.configs import reads_types
from tlm_ray.training.encoders.starts import opened
from tlm_ray.training.model.packing import first_position
from tlm_ray.training.objectives import TextLabels, classifier_of

WHOLE, SMALL = "model.onnx", "model_int8.onnx"
TOLERANCE = 1e-4  # of logits, relative to the largest of 1 and their size
ROWS = 64
NEEDED = "onnx export: needs onnx, onnxscript and onnxruntime; pip install 'tlm_ray[onnx]'"
Logits = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Exported:
    """A model in its forms: logits of texts by name of the form, and the size of each file in bytes."""

    labels: tuple[str, ...]
    forms: dict[str, Logits]
    sizes: dict[str, int]
    difference: float
    """largest difference of logits between PyTorch and ONNX, both in float32"""


def export_onnx(model: str, out: str, texts: Sequence[str], *, int8: bool = False) -> Exported:
    """Write model.onnx with tokenizer and configuration to a folder, and with int8 model_int8.onnx too.

    model: a folder, URI or hub name of an encoder's classifier. texts: some to compare on; rows of any number and
    length can be given to the file. ValueError for a linear model, a decoder that writes, or a model whose logits the
    file does not give to 1e-4; nothing is written then.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise ValueError(NEEDED) from error
    if storage.exists(model) and is_linear(model):
        raise ValueError(f"model {model!r}: is a linear model, which needs no ONNX; give an encoder's folder")
    if not texts:
        raise ValueError("texts: give some to compare on")
    with opened(model) as source:
        config, tokenizer = open_settings(AutoConfig, source), open_settings(AutoTokenizer, source)
        if isinstance(classifier_of(config), TextLabels):
            raise ValueError(f"model {model!r}: a decoder writes its labels, one token after another; give an encoder")
        classifier = open_trained_classifier(source, name=model, attn_implementation="sdpa").eval()
    tokens = min(tokenizer.model_max_length, config.max_position_embeddings - first_position(classifier.base_model))
    prepare = _Tokens(tokenizer, tokens, _names(tokenizer, config))
    with storage.folder_for_writing(out) as folder:
        path = Path(folder) / WHOLE
        _export(classifier, prepare, path, name=model)
        forms: dict[str, Logits] = {"PyTorch": _by_torch(classifier, prepare)}
        forms["ONNX"] = _by_onnx(onnxruntime.InferenceSession(str(path)), prepare)
        expected, found = forms["PyTorch"](texts), forms["ONNX"](texts)
        difference = float(np.abs(expected - found).max())
        if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise ValueError(f"model {model!r}: ONNX gives other logits than PyTorch, by {difference:.2g}")
        if int8:
            forms["ONNX, int8"] = _quantised(path, prepare)
        tokenizer.save_pretrained(folder)
        config.save_pretrained(folder)
        sizes = {name: (Path(folder) / name).stat().st_size for name in (WHOLE, SMALL) if name == WHOLE or int8}
    labels = tuple(config.id2label[number] for number in range(config.num_labels))
    return Exported(labels, forms, sizes, difference)


class _Tokens:
    """Turns texts into the inputs of a model."""

    def __init__(self, tokenizer: Any, tokens: int, names: list[str]):
        self.tokenizer, self.tokens, self.names = tokenizer, tokens, names

    def __call__(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        options: dict[str, Any] = {"padding": True, "truncation": True, "max_length": self.tokens}
        found = self.tokenizer(list(texts), return_tensors="pt", **options)
        return {name: found[name] for name in self.names}


class _Logits(torch.nn.Module):
    """A classifier that takes its inputs in order and returns logits alone."""

    def __init__(self, classifier: Any, names: list[str]):
        super().__init__()
        self.classifier, self.names = classifier, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.classifier(**dict(zip(self.names, inputs, strict=True))).logits


def _names(tokenizer: Any, config: Any) -> list[str]:
    """Return the names of a model's inputs; token types only where the model tells them apart."""
    typed = reads_types(config) and "token_type_ids" in tokenizer.model_input_names
    return ["input_ids", "attention_mask", *(["token_type_ids"] if typed else [])]


def _export(classifier: Any, prepare: _Tokens, path: Path, *, name: str) -> None:
    inputs = tuple(prepare(["one text", "another text of more words"]).values())
    rows, tokens = torch.export.Dim("rows", min=1), torch.export.Dim("tokens", min=2, max=prepare.tokens)
    shapes = (tuple({0: rows, 1: tokens} for _ in inputs),)
    how: dict[str, Any] = {"input_names": prepare.names, "output_names": ["logits"], "dynamic_shapes": shapes}
    with warnings.catch_warnings(), _quiet("torch.onnx"):
        warnings.simplefilter("ignore")  # torch's own, of names of axes that several inputs share
        try:
            program = torch.onnx.export(_Logits(classifier, prepare.names), inputs, dynamo=True, verbose=False, **how)
        except Exception as error:
            why = str(error).strip().partition("\n")[0]
            raise ValueError(f"model {name!r}: torch cannot export it to ONNX ({why}); give another model") from error
    assert program is not None
    program.save(str(path))


def _by_torch(classifier: Any, prepare: _Tokens) -> Logits:
    def logits(texts: Sequence[str]) -> np.ndarray:
        with torch.inference_mode():
            return classifier(**prepare(texts)).logits.numpy()

    return _in_batches(logits)


def _by_onnx(session: Any, prepare: _Tokens) -> Logits:
    return _in_batches(lambda texts: session.run(None, {n: t.numpy() for n, t in prepare(texts).items()})[0])


def _in_batches(logits: Logits) -> Logits:
    """Return a function that gives logits, (texts, classes), in batches of texts of similar length."""

    def of_all(texts: Sequence[str]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        parts = [order[start : start + ROWS] for start in range(0, len(texts), ROWS)]
        found = np.concatenate([logits([texts[row] for row in part]) for part in parts])
        return found[np.argsort(order)]

    return of_all


def _quantised(path: Path, prepare: _Tokens) -> Logits:
    """Write the model with weights of 8 bits, each matrix by its own scale; activations are rounded as they come."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet(""):  # it advises on images
        quantize_dynamic(path, path.with_name(SMALL), weight_type=QuantType.QInt8)
    return _by_onnx(onnxruntime.InferenceSession(str(path.with_name(SMALL))), prepare)


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Keep what a logger says below an error off the terminal."""
    named = logging.getLogger(logger)
    before = named.level
    named.setLevel(logging.ERROR)
    try:
        yield
    finally:
        named.setLevel(before)
