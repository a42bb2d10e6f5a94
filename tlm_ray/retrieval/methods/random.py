"""Draw passages at random, as many as another method chose: the ablation "TLM, random text" (paper table 3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tlm_ray.retrieval.engine.noise import uniform
from tlm_ray.retrieval.methods.bm25 import Bm25
from tlm_ray.retrieval.methods.method import Method, Search, Sources, check_like

if TYPE_CHECKING:
    from tlm_ray.corpus.general.passages import PassageStore

SEED = 0


@dataclass(frozen=True, kw_only=True)
class Random(Method):
    """As many uncontaminated passages as `like` chose, at every k.

    Drawn passages get the ranks of `like` in random order, so the numbers are equal at every k.
    """

    name: ClassVar[str] = "random"
    version: ClassVar[int] = 3  # 3: character pairs as terms in scripts without spaces
    lists_leaks: ClassVar[bool] = False
    like: Method = field(default_factory=Bm25)
    """method that searches, whose selection sets the number of passages"""

    def __post_init__(self) -> None:
        check_like(self.like)

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return name and seed; depth and settings of `like` belong to the identity of its selection."""
        return {"method": self.name, "seed": SEED}

    def inputs(self, sources: Sources) -> Mapping[str, Any]:
        """Return the passages and the selection of `like`, under its name."""
        return {"passages": sources.passages, self.like.name: sources.neighbours(self.like)}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Draw from all passages that `like` did not exclude as contaminated."""
        from tlm_ray.retrieval.draw_job import draw_largest

        return draw_largest(folder, inputs["passages"], inputs[self.like.name], run, keys=_keys)


def _keys(store: "PassageStore", start: int, stop: int) -> np.ndarray:
    return uniform(np.arange(start, stop), seed=SEED)
