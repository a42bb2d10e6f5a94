"""Plain classifiers, the baselines of every table: they train no encoder."""

from tlm_ray.plain.classifier import PlainClassifier, Predicted
from tlm_ray.plain.frozen import FrozenEncoder
from tlm_ray.plain.linear import TfIdf, Windows
from tlm_ray.plain.neighbours import Bm25Neighbours

PLAIN: tuple[PlainClassifier, ...] = (TfIdf(), Windows(), Bm25Neighbours())
"""The linear models and the BM25 neighbours, which are rows of every main table."""

__all__ = ["PLAIN", "Bm25Neighbours", "FrozenEncoder", "PlainClassifier", "Predicted", "TfIdf", "Windows"]
