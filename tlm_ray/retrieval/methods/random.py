"""Passages drawn at random, as many as another method chose: the ablation "TLM, random text" (paper table 3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tlm_ray.retrieval.methods.bm25 import Bm25
from tlm_ray.retrieval.methods.method import Method, Search, Sources

SEED = 0


@dataclass(frozen=True, kw_only=True)
class Random(Method):
    """As many clean passages as `like` chose, at every k.

    The drawn passages carry the ranks of `like`, handed out at random, so a cut at any k leaves equally many.
    """

    name: ClassVar[str] = "random"
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
        from tlm_ray.corpus.passages import PassageStore
        from tlm_ray.retrieval.selection import read_ranks_and_dropped, write_drawn

        store = PassageStore.open(inputs["passages"])
        ranks, dropped = read_ranks_and_dropped(inputs[self.like.name])
        clean = np.setdiff1d(np.arange(len(store)), dropped)
        generator = np.random.Generator(np.random.Philox(SEED))
        drawn = generator.permutation(clean)[: len(ranks)]
        return write_drawn(folder, store, drawn, ranks, np.zeros(len(ranks)), run)
