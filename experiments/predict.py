"""Predict class probabilities of any number of texts with a trained model, on all nodes of a cluster.

    python experiments/predict.py --model reviews-model --texts data/new.csv --out predictions
    python experiments/predict.py --model reviews-model --texts data/new.csv --out predictions --csv predictions.csv
    python experiments/predict.py --model s3://bucket/model --texts s3://bucket/texts --out s3://bucket/out --gpus 1
    python experiments/predict.py --model reviews-model/* --texts data/new.csv --out together   # an ensemble
    python experiments/predict.py --model reviews-model --text "A fine book." "It broke."       # print, without Ray

Texts are Parquet, CSV or JSONL, a file or a folder. The result is a folder of Parquet files with the rows and columns
of the input, in order. It adds the columns `predicted` and `probabilities` (in the order of the model's labels), which
are null for a row without text.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import ray
import tyro

import tlm_ray
from tlm_ray import parallel, plain_errors, ray_options, storage
from tlm_ray.storage.listing import list_files

SMALL_BYTES = 1_000_000  # a few thousand texts: seconds, where starting Ray takes five to ten


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Options of prediction."""

    model: list[str]
    """folder or URI of a trained or linear model, or hub name of any classifier; several models are averaged, and a
    linear model is mixed in with the weight tuned on dev"""
    texts: str = ""
    """file or folder of texts: Parquet, CSV or JSONL"""
    text: list[str] = field(default_factory=list)
    """texts to predict and print, instead of --texts and --out"""
    pair: list[str] = field(default_factory=list)
    """a second text for each --text, for tasks on text pairs"""
    out: str = ""
    """folder or URI for the predictions; an interrupted run of the same model and texts is resumed"""
    csv: str = ""
    """file or URI to write the predictions to as CSV too"""
    column: str = "text"
    """name of the text column"""
    pair_column: str = ""
    """name of the column of second texts, for tasks on text pairs"""
    workers: int = 0
    """number of worker processes; 0 for one per CPU, or per GPU with --gpus, and none besides this for few texts"""
    gpus: float = 0
    """GPUs per worker"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """precision of inference; auto: the precision of training, and fp32 for --text, as it is faster for few texts"""

    def __post_init__(self) -> None:
        if bool(self.texts) == bool(self.text):
            raise ValueError("--texts and --text: give one of them, a file of texts or the texts themselves")
        if bool(self.texts) != bool(self.out):
            raise ValueError("--out: the folder for the predictions of --texts; give both")
        if self.csv and not self.texts:
            raise ValueError(f"--csv {self.csv}: is written for --texts; --text prints")
        if self.pair and len(self.pair) != len(self.text):
            raise ValueError(f"--pair: {len(self.pair)} second texts for {len(self.text)} --text; give one for each")


def main() -> None:
    options = tyro.cli(Predict, description=__doc__)
    if options.text:
        show(options)
    else:
        write(options)


def show(options: Predict) -> None:
    """Print the predictions of a few texts, in this process."""
    import pyarrow as pa

    pairs = {"pair": options.pair} if options.pair else {}
    precision = "fp32" if options.precision == "auto" else options.precision
    predictor = tlm_ray.Predictor(options.model, pair_column="pair" if pairs else "", precision=precision)
    for row in predictor(pa.table({"text": options.text} | pairs)).to_pylist():
        share = f" {max(row['probabilities']):.1%}" if "probabilities" in row else ""
        print(f"{row['predicted']}{share}: {row['text']}")


def write(options: Predict) -> None:
    """Write the predictions of files, on all nodes."""
    out = storage.lasting(options.out, "--out")
    csv = storage.lasting(options.csv, "--csv") if options.csv else ""
    columns = [column for column in (options.column, options.pair_column) if column]
    how: dict[str, Any] = {"columns": columns, "gpus": options.gpus, "precision": options.precision}
    if is_small(options):
        with parallel.in_this_process():
            found = tlm_ray.predict_texts(options.model, options.texts, out, workers=1, **how)
    else:
        ray.init(**ray_options())
        found = tlm_ray.predict_texts(options.model, options.texts, out, workers=options.workers, **how)
    print(f"{found['rows']:,} rows in {found['seconds']:.0f} s: {storage.shown(out)}")
    if csv:
        tlm_ray.Predictions(out).write_csv(csv)
        print(storage.shown(csv))


def is_small(options: Predict) -> bool:
    """Return whether the texts take less time in this process than starting Ray."""
    asked = options.workers or options.gpus
    return not asked and sum(file.size for file in list_files(options.texts)) <= SMALL_BYTES


if __name__ == "__main__":
    with plain_errors():
        main()
