"""Vary what stage one learns from text, on development scores.

    python experiments/objectives.py                                                     # embedded data
    python experiments/objectives.py --scale mini --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/objectives.py --dry-run

All rows share one retrieval and see the same batches; only the masks differ. `tokens` masks single tokens (Devlin et
al. 2019), `whole words` all tokens of a word (BERT's later release), and `spans` up to three whole words (Lan et al.
2020). Each masks 15 % of the text.

Expected before running: whole words and spans above single tokens, because a token is easy to guess from its word.
"""

from dataclasses import dataclass, replace

import ray

from tlm_ray import Recipe, Table, main
from tlm_ray.training.masking import Masking
from tlm_ray.training.objectives import Mlm

TOKENS = "tokens"
WORDS = {TOKENS: 0, "whole words": 1, "spans": 3}  # of `Masking`


@dataclass(frozen=True, kw_only=True)
class Objectives(Table):
    """Options of the table of objectives."""

    name = "objectives"

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return a recipe per way to mask."""
        return {row: replace(recipe, objectives=(Mlm(Masking(words=words)),)) for row, words in WORDS.items()}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect masks of whole words above those of tokens."""
        return [(row, TOKENS) for row in rows if row != TOKENS]


if __name__ == "__main__":
    main(Objectives, __doc__, ray.init)
