"""Passages drawn at random, as many as another method chose: the ablation "TLM, random text" (paper table 3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tlm_ray.retrieval.engine.noise import uniform
from tlm_ray.retrieval.methods.bm25 import Bm25
from tlm_ray.retrieval.methods.method import Method, Search, Sources

if TYPE_CHECKING:
    from tlm_ray.corpus.passages import PassageStore

SEED = 0


@dataclass(frozen=True, kw_only=True)
class Random(Method):
    """As many clean passages as `like` chose, at every k.

    The drawn passages carry the ranks of `like`, handed out at random, so a cut at any k leaves equally many.
    """

    name: ClassVar[str] = "random"
    version: ClassVar[int] = 3  # since 3 scripts without spaces have terms: pairs of characters
    like: Method = field(default_factory=Bm25)
    """method whose selection tells how many"""

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return name and seed; the depth and the settings of `like` are its selection's."""
        return {"method": self.name, "seed": SEED}

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return the passages and, by the name of `like`, its selection."""
        return {"passages": sources.passages, self.like.name: sources.neighbours(self.like)}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Draw from all passages that `like` did not leave out as contaminated."""
        from tlm_ray.retrieval.draw_job import draw_largest

        return draw_largest(folder, inputs["passages"], inputs[self.like.name], run, keys=_keys)


def _keys(store: "PassageStore", start: int, stop: int) -> np.ndarray:
    return uniform(np.arange(start, stop), seed=SEED)
