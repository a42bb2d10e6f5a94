"""Export a trained classifier to ONNX, for programs that have neither PyTorch nor this package.

    python experiments/export.py --model reviews-model --out reviews-onnx
    python experiments/export.py --model reviews-model --out reviews-onnx --int8 --texts dev.csv --text review

The folder gets model.onnx (float32), tokenizer.json and config.json, whose id2label names the classes.
Its logits are those of PyTorch to 1e-4, or nothing is written.
With --int8 it gets model_int8.onnx too, whose weights have 8 bits.
With --texts, a labelled file, each form is scored on it, because 8 bits may cost accuracy, and timed.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from tlm_ray import parse, plain_errors, storage
from tlm_ray.console import console
from tlm_ray.corpus.labelled.task_columns import Columns
from tlm_ray.corpus.labelled.task_rows import as_rows, check_labels, read_file
from tlm_ray.runs.cli.options import settle, settle_results

if TYPE_CHECKING:
    from tlm_ray.training.scoring.onnx_export import Logits

TURNS, TIMED = 5, 500  # runs of each form, and texts of a run
SAMPLE = ("A short text.", "This one has some more words than that one, and signs: (a), [b]; 1.5 %.", "x")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Options of an export."""

    model: str
    """folder or URI of a trained model, or hub name of any classifier"""
    out: str
    """folder or URI for the exported model"""
    int8: bool = False
    """also export with weights of 8 bits"""
    texts: str = ""
    """labelled file to score and time each form on: Parquet, CSV or JSONL"""
    text: str = ""
    """text column of --texts; if unset: text, or found by name"""
    label: str = ""
    """label column of --texts; if unset: label, or found by name"""

    def __post_init__(self) -> None:
        settle(self, storage.absolute_if_there, "model")
        settle_results(self, out="")


def main() -> None:
    options = parse(Export, __doc__)
    from tlm_ray.training.scoring.onnx_export import export_onnx  # transformers: 3 s, which --help need not take

    rows = None
    if options.texts:
        file = read_file(options.texts)
        columns = Columns(text=options.text, label=options.label).found(file, options.texts)
        if columns.text_pair:
            raise ValueError(f"--texts {options.texts}: has pairs of texts; forms are scored on single texts alone")
        rows = as_rows(file, columns, options.texts, numbers=False)
    exported = export_onnx(options.model, options.out, rows["text"].to_pylist() if rows else SAMPLE, int8=options.int8)
    sizes = ", ".join(f"{name} of {size / 1e6:.1f} MB" for name, size in exported.sizes.items())
    print(f"{storage.shown(options.out)}: {sizes}; logits differ from PyTorch's by {exported.difference:.1e} at most")
    if rows is None:
        return
    check_labels(rows, exported.labels, options.texts)
    gold = np.array([exported.labels.index(label) for label in rows["label"].to_pylist()])
    table = Table("", "accuracy", "texts per second", box=None, header_style="dim")
    texts = rows["text"].to_pylist()
    speeds = texts_per_second(exported.forms, texts[:TIMED])
    for name, logits in exported.forms.items():
        right = logits(texts).argmax(axis=1) == gold
        table.add_row(name, f"{100 * right.mean():.2f}", f"{speeds[name]:,.0f}")
    console.print(table)


def texts_per_second(forms: Mapping[str, "Logits"], texts: Sequence[str]) -> dict[str, float]:
    """Return the speed of each form: the median of some runs in turns, because a machine is not always as fast."""
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(TURNS):
        for name, logits in forms.items():
            started = time.perf_counter()
            logits(texts)
            seconds[name].append(time.perf_counter() - started)
    return {name: len(texts) / median(found) for name, found in seconds.items()}


if __name__ == "__main__":
    with plain_errors():
        main()
