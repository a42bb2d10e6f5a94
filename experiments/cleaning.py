"""Vary how the corpus is cleaned before it is cut into passages, on development scores.

    python experiments/cleaning.py --sentences 1                                         # embedded data: one-line texts
    python experiments/cleaning.py --scale mini --tasks sciie --task-root data/tasks --corpus data/corpus
    python experiments/cleaning.py --bad-words words.txt --language en ...
    python experiments/cleaning.py --dry-run

    as it is           the corpus without cleaning
    C4's rules         lines and pages by the rules of Raffel et al. 2020, section 2.2
    + spans            and of equal spans of three sentences the first alone, as C4 has it
    + near-duplicates  and of similar pages the first alone

Each cleaned corpus gets a retrieval of its own. The numbers of pages that each rule drops are printed and recorded.

T5's paper reports for its pretraining (GLUE): C4 83.28, the same crawl uncleaned 81.46, and no pretraining 66.22.
So cleaned text is expected to be better. Little may be left to gain here: retrieval takes text about the task anyway.
"""

from dataclasses import dataclass, replace

import ray

from tlm_ray import Recipe, Table, main, storage
from tlm_ray.corpus.cleaning import Cleaning

PLAIN, RULES, SPANS, NEAR = "as it is", "C4's rules", "+ spans", "+ near-duplicates"


@dataclass(frozen=True, kw_only=True)
class CleaningTable(Table):
    """Options of the table of cleaned corpora."""

    name, needs_general = "cleaning", True

    sentences: int = Cleaning.sentences
    """fewest sentences of a page; 1 suits a corpus of single lines"""
    words: int = Cleaning.words
    """fewest words of a line"""
    bad_words: str = ""
    """file of words and phrases, one per line; pages with one of them are dropped"""
    language: str = ""
    """code of the language to keep, such as en; if unset: all"""
    near: float = 0.8
    """similarity of two pages' word 5-grams from which the later one is dropped"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.changes.clean:
            raise ValueError("--clean: is what this experiment varies; leave it out")

    @property
    def rules(self) -> Cleaning:
        """The rules for lines and pages."""
        text = storage.read_bytes(self.bad_words).decode() if self.bad_words else ""
        words = tuple(dict.fromkeys(filter(None, (line.strip().lower() for line in text.splitlines()))))
        return Cleaning(sentences=self.sentences, words=self.words, bad_words=words, language=self.language, span=0)

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return a recipe per corpus."""
        rules = self.rules
        spans = replace(rules, span=Cleaning.span)
        ways = {PLAIN: None, RULES: rules, SPANS: spans, NEAR: replace(spans, near=self.near)}
        return {row: replace(recipe, cleaning=cleaning) for row, cleaning in ways.items()}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect each cleaned corpus to be better than the one as it is."""
        return [(row, PLAIN) for row in rows if row != PLAIN]


if __name__ == "__main__":
    main(CleaningTable, __doc__, ray.init)
