"""Save and open a linear model of texts, as Arrow and JSON, without pickle."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tlm_ray import storage
from tlm_ray.corpus.labelled.marks import Marks
from tlm_ray.plain.learners import Fitted
from tlm_ray.plain.terms import Terms, Vocabulary

TERMS, FACTS = "terms.arrow", "linear.json"
COLUMNS = ["term", "idf", "weights"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """A fitted linear model of texts."""

    vocabularies: tuple[Vocabulary, ...]
    """vectorisers, one per kind of terms; their columns are concatenated"""
    fitted: Fitted
    """weights over all terms"""
    labels: tuple[str, ...]
    """names of the classes, in order; empty for a regression"""
    encoders_share: float | None = None
    """weight of the encoders in an ensemble with it (`tlm_ray.evaluation.pooling`); None without encoders"""

    def logits(self, texts: Sequence[str]) -> np.ndarray:
        """Return the scores of texts, float64 (texts, classes), or numbers, (texts, 1)."""
        rows = joined([vocabulary.rows(texts) for vocabulary in self.vocabularies])
        return self.fitted.scores(rows, is_number=not self.labels)

    def save(self, folder: str) -> None:
        """Write a folder that `open` reads."""
        columns = self.fitted.weights.T
        weights = pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(columns).ravel(), columns.shape[1])
        terms = [term for vocabulary in self.vocabularies for term in vocabulary.terms]
        idf = np.concatenate([vocabulary.idf for vocabulary in self.vocabularies])
        storage.write_table(storage.join(folder, TERMS), pa.table([terms, idf, weights], COLUMNS))
        facts: dict[str, Any] = {
            "bias": self.fitted.bias.tolist(),
            "kinds": [asdict(each.of) | {"terms": len(each.terms)} for each in self.vocabularies],
            "labels": list(self.labels),
        }
        facts |= {} if self.encoders_share is None else {"encoders_share": self.encoders_share}
        storage.write_record(storage.join(folder, FACTS), facts)

    @classmethod
    def open(cls, folder: str) -> "LinearModel":
        """Read what `save` wrote; ValueError for a model saved by an earlier version."""
        facts = storage.read_record(storage.join(folder, FACTS))
        if "kinds" not in facts:
            raise ValueError(f"model {folder!r}: saved by an earlier version; train it again")
        table = storage.read_table(storage.join(folder, TERMS)).combine_chunks()
        terms, idf, weights = (table[name].chunk(0) for name in COLUMNS)
        return cls(
            vocabularies=tuple(_vocabularies(facts["kinds"], terms.to_pylist(), idf.to_numpy())),
            fitted=Fitted(weights.flatten().to_numpy().reshape(len(terms), -1).T, np.array(facts["bias"])),
            labels=tuple(facts["labels"]),
            encoders_share=facts.get("encoders_share"),
        )


def _vocabularies(kinds: list[dict[str, Any]], terms: list[str], idf: np.ndarray) -> list[Vocabulary]:
    """Return the kinds of terms, each with its own of all terms."""
    found, start = [], 0
    for kind in kinds:
        stop = start + kind.pop("terms")
        marks = kind.pop("marks")
        of = Terms(**kind, marks=marks and Marks(*(tuple(marks[name]) for name in ("first", "second"))))
        found.append(Vocabulary(of=of, terms=terms[start:stop], idf=idf[start:stop]))
        start = stop
    return found


def joined(rows: Sequence[Any]) -> Any:
    """Concatenate the columns of sparse matrices."""
    from scipy import sparse

    return rows[0] if len(rows) == 1 else sparse.hstack(rows, format="csr")


def is_linear(folder: str) -> bool:
    """Return whether a folder holds a linear model."""
    return storage.exists(storage.join(folder, FACTS))
