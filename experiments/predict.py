"""Predict class probabilities of any number of texts with a trained model, on all nodes of a cluster.

    python experiments/predict.py --model reviews-model --texts data/new.csv --out predictions
    python experiments/predict.py --model s3://bucket/model --texts s3://bucket/texts --out s3://bucket/out --gpus 1
    python experiments/predict.py --model reviews-model/* --texts data/new.csv --out together   # an ensemble

Texts are Parquet, CSV or JSONL, a file or a folder. The result is a folder of Parquet files with the rows and columns
of the input, in order. It adds the columns `predicted` and `probabilities` (in the order of the model's labels), which
are null for a row without text.
"""

from dataclasses import dataclass
from typing import Literal

import ray
import tyro

import tlm_ray
from tlm_ray import plain_errors, ray_options


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Options of prediction."""

    model: list[str]
    """folder or URI of a trained or linear model, or hub name of any classifier; several models are averaged, and a
    linear model is mixed in with the weight tuned on dev"""
    texts: str
    """file or folder of texts: Parquet, CSV or JSONL"""
    out: str
    """folder or URI for the predictions; an interrupted run of the same model and texts is resumed"""
    column: str = "text"
    """name of the text column"""
    pair_column: str = ""
    """name of the column of second texts, for tasks on text pairs"""
    workers: int = 0
    """number of worker processes; 0 for one per CPU, or per GPU with --gpus"""
    gpus: float = 0
    """GPUs per worker"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """precision of inference; auto: the precision of training"""


def main() -> None:
    options = tyro.cli(Predict, description=__doc__)
    out = tlm_ray.storage.lasting(options.out, "--out")
    ray.init(**ray_options())
    columns = [column for column in (options.column, options.pair_column) if column]
    found = tlm_ray.predict_texts(  # imported here: --help does not need transformers (4 s)
        options.model,
        options.texts,
        out,
        columns=columns,
        workers=options.workers,
        gpus=options.gpus,
        precision=options.precision,
    )
    print(f"{found['rows']:,} rows in {found['seconds']:.0f} s: {tlm_ray.storage.shown(out)}")


if __name__ == "__main__":
    with plain_errors():
        main()
