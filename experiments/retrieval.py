"""Compare retrieval methods and corpus sizes (Yao et al. 2022, table 3), on dev scores.

    python experiments/retrieval.py                                     # embedded data: a tenth of the texts, and all
    python experiments/retrieval.py --methods bm25 dsir random --shares 0.01 0.1 1 --tasks sciie ...
    python experiments/retrieval.py --corpora books=s3://... web=s3://... --tasks imdb sciie chemprot --scale small ...
    python experiments/retrieval.py --dry-run

Expected: BM25 above random for each corpus, and the larger corpus above the smaller one.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Corpora, Flow, Methods, Recipe, Table, main, open_flow
from tlm_ray.report.paper import TABLE_3
from tlm_ray.retrieval.methods import Given


@dataclass(frozen=True, kw_only=True)
class Retrieval(Table):
    """Options of the table of methods and corpora."""

    name, paper, needs_general = "retrieval", TABLE_3, True

    methods: Methods = field(default_factory=lambda: Methods(methods=["random", "bm25"]))
    corpora: Corpora = field(default_factory=Corpora)
    shares: list[float] = field(default_factory=lambda: [0.1, 1.0])
    """shares of the corpus' documents to retrieve from; --corpora are used whole"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.corpora.corpora and (self.data.corpus or self.shares != [0.1, 1.0]):
            raise ValueError("--corpora: replaces --corpus and --shares; drop these")

    def flow(self) -> Flow:
        """Open the flow with the named corpora."""
        return open_flow(self.data, self.place, self.cluster, self.corpora)

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return a row per method and corpus."""
        named = [pair.partition("=")[0] for pair in self.corpora.corpora]
        parts = {f"{share:.4g} of the corpus": {"corpus_share": share} for share in sorted(set(self.shares))}
        corpora = {f"corpus {name}": {"corpus": name} for name in named} or parts
        methods = self.methods.chosen()
        given = {name: replace(recipe, method=methods.pop(name)) for name in [Given.name] if name in methods}
        return {
            f"{name}, {words}": replace(recipe, method=method, **changes)
            for name, method in methods.items()
            for words, changes in corpora.items()
        } | given  # which reads no corpus

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect BM25 above random for each corpus, and the largest share above smaller ones."""
        searched = [row for row in rows if row.startswith("bm25, ")]
        pairs = [(row, row.replace("bm25", "random", 1)) for row in searched[::-1]]
        found = [pair for pair in pairs if pair[1] in rows]
        return found + ([] if self.corpora.corpora else [(searched[-1], less) for less in searched[:-1]])

    def main_row(self, rows: list[str]) -> str:
        """Return BM25 with the largest corpus, if present."""
        return next((row for row in rows[::-1] if row.startswith("bm25, ")), rows[-1])


if __name__ == "__main__":
    main(Retrieval, __doc__, ray.init)
