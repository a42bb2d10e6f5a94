"""Vary what stage one learns from text, on development scores.

    python experiments/objectives.py                                                     # embedded data
    python experiments/objectives.py --scale mini --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/objectives.py --dry-run

All rows share one retrieval. Each has the steps that take as many counted operations as the first row, in both stages.

    tokens             single tokens are masked (Devlin et al. 2019)
    whole words        all tokens of a word are masked (BERT's later release)
    spans              up to three whole words are masked (Lan et al. 2020)
    NSP, SOP           beside `tokens`: do two segments belong together (Devlin et al.), in this order (Lan et al.)
    ELECTRA, tokens    the same as the first row, with ELECTRA's encoder
    ELECTRA, replaced  ELECTRA's own: it detects the tokens that a small generator replaced (Clark et al. 2020)
    GPT-2, next        next tokens, with a decoder (Radford et al. 2019)
    GPT, auxiliary     the same, and next tokens in stage two beside the labels (Radford et al. 2018)
    T5, spans          an encoder-decoder writes what was in gaps of three tokens, and the label's name (Raffel et al.)
    T5, tokens         the same with gaps of one token

Masks and gaps have 15 % of the text. Operations of the generator and the decoder are counted too.
With --marks all rows but T5's read the spans that texts mark: T5 has no classifier.

Expected before running: whole words and spans above single tokens, because a token is easy to guess from its word, and
replaced tokens above masked ones, because every token gives a signal. T5's paper reports 83.49 for gaps of three tokens
and 83.28 for gaps of one (GLUE).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import ray

from tlm_ray import Recipe, main
from tlm_ray.runs.cli.equal_cost_table import EqualCostTable
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.objectives import Clm, Generator, Mlm, Nsp, Rtd, Sop, Spans, TextLabels
from tlm_ray.training.tokens.masking import Masking

TOKENS, MASKED, REPLACED = "tokens", "ELECTRA, tokens", "ELECTRA, replaced"
NEXT, AUXILIARY = "GPT-2, next", "GPT, auxiliary"
GAPS, GAPS_OF_ONE = "T5, spans", "T5, tokens"
WORDS = {TOKENS: 0, "whole words": 1, "spans": 3}  # of `Masking`


@dataclass(frozen=True, kw_only=True)
class Objectives(EqualCostTable):
    """Options of the table of objectives."""

    name = "objectives"

    def vary(self, recipe: Recipe) -> Mapping[str, Recipe]:
        """Return a recipe per objective; those of other encoders need a geometry, which `--architecture` replaces."""
        rows = {row: replace(recipe, objectives=(Mlm(Masking(words=words)),)) for row, words in WORDS.items()}
        for pairs in (Nsp(), Sop()):
            rows[pairs.name.upper()] = replace(recipe, objectives=(pairs, Mlm()), exported=Mlm.name)
        if isinstance(recipe.start, Scratch):
            geometry = recipe.start.geometry
            rows[MASKED] = masked = replace(recipe, start=Scratch(replace(geometry, family="electra")))
            rows[REPLACED] = replace(masked, objectives=(Generator(), Rtd()), exported=Rtd.name)
            rows[NEXT] = replace(recipe, start=Scratch(replace(geometry, family="gpt2")), objectives=(Clm(),))
            rows[AUXILIARY] = replace(rows[NEXT], auxiliary=(Clm(times=0.5),))
            t5 = Scratch(replace(geometry, family="t5"))
            counts = replace(recipe.counts, scale=1.0) if recipe.counts else None  # T5's token embeddings are of size 1
            for row, length in ((GAPS, 3.0), (GAPS_OF_ONE, 1.0)):
                objectives = (Spans(length=length),)
                rows[row] = replace(recipe, start=t5, objectives=objectives, labels=TextLabels(), counts=counts)
        return rows

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect whole words and longer gaps above single tokens, and replaced tokens above masked ones."""
        words = [(row, TOKENS) for row in WORDS if row != TOKENS]
        return [pair for pair in [*words, (REPLACED, MASKED), (GAPS, GAPS_OF_ONE)] if set(pair) <= set(rows)]


if __name__ == "__main__":
    main(Objectives, __doc__, ray.init)
