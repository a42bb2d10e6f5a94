"""Class probabilities of any number of texts, by a trained model on all nodes of a cluster.

    python experiments/predict.py --model reviews-model --texts data/new.csv --out predictions
    python experiments/predict.py --model s3://bucket/model --texts s3://bucket/texts --out s3://bucket/out --gpus 1
    python experiments/predict.py --model reviews-model/* --texts data/new.csv --out together   # of --ensemble

Texts are Parquet, CSV or JSONL, a file or a folder. The result is a folder of Parquet files with all columns of the
input, in its order, and beside them `predicted` and `probabilities` (in the order of the model's labels). A row
whose text is null gets neither.
"""

from dataclasses import dataclass
from typing import Literal

import ray
import tyro

import tlm_ray
from tlm_ray import plain_errors, ray_options


@dataclass(frozen=True, kw_only=True)
class Predict:
    """What to predict, and on what."""

    model: list[str]
    """folder or URI of a trained model, a linear one too, or hub name of any classifier; of several, the mean of what
    they say, pooled with the linear model's word by the share that the dev set gave all seeds together"""
    texts: str
    """file or folder of Parquet, CSV or JSONL"""
    out: str
    """folder or URI for the predictions; those of the same model and texts are continued"""
    column: str = "text"
    """the column of texts"""
    pair_column: str = ""
    """the column of second texts, for tasks of pairs"""
    workers: int = 0
    """processes that predict; 0 for one per CPU, or per GPU with --gpus"""
    gpus: float = 0
    """GPUs per worker"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """precision of the model's products; auto: as it was trained"""


def main() -> None:
    options = tyro.cli(Predict, description=__doc__)
    ray.init(**ray_options())
    columns = [column for column in (options.column, options.pair_column) if column]
    found = tlm_ray.predict_texts(  # imported here: --help can spare transformers, 4 s
        options.model,
        options.texts,
        options.out,
        columns=columns,
        workers=options.workers,
        gpus=options.gpus,
        precision=options.precision,
    )
    print(f"{found['rows']:,} rows in {found['seconds']:.0f} s: {tlm_ray.storage.shown(options.out)}")


if __name__ == "__main__":
    with plain_errors():
        main()
