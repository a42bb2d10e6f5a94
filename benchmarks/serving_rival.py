"""The rival of `bench_serving.py`: scikit-learn's TF-IDF and logistic regression behind FastAPI, in one process."""

from dataclasses import dataclass

import pyarrow.parquet as pq
import tyro
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Options of the rival."""

    texts: str
    """labelled Parquet file with the columns text and label"""
    port: int
    """port to listen at, on this machine alone"""


class Body(BaseModel):
    """What a client sends."""

    texts: list[str]


def main() -> None:
    options = tyro.cli(Rival, description=__doc__)
    rows = pq.read_table(options.texts)
    pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=1000))
    pipeline.fit(rows["text"].to_pylist(), rows["label"].to_pylist())
    app = FastAPI()

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/predict")
    def predict(body: Body) -> dict[str, list[dict[str, float | str]]]:
        found = pipeline.predict_proba(body.texts)
        labels = pipeline.classes_[found.argmax(axis=1)]
        return {"predictions": [{"label": label, "score": max(row)} for label, row in zip(labels, found, strict=True)]}

    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="error")


if __name__ == "__main__":
    main()
