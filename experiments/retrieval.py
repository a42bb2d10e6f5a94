"""How passages are retrieved, and from how large a corpus (Yao et al. 2022, table 3), on development scores.

    python experiments/retrieval.py                                     # embedded data: a tenth of the texts, and all
    python experiments/retrieval.py --methods bm25 dsir random --shares 0.01 0.1 1 --tasks sciie ...
    python experiments/retrieval.py --corpora books=s3://... web=s3://... --tasks imdb sciie chemprot --scale small ...
    python experiments/retrieval.py --dry-run

Expected before running: BM25 above random from each corpus, and from the larger corpus above the smaller one.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import Corpora, Flow, Methods, Recipe, Table, parse, plain_errors, present, ray_options
from tlm_ray.report.paper import TABLE_3


@dataclass(frozen=True, kw_only=True)
class Retrieval(Table):
    """Options of the table of methods and corpora."""

    name, paper = "retrieval", TABLE_3

    methods: Methods = field(default_factory=lambda: Methods(methods=["random", "bm25"]))
    corpora: Corpora = field(default_factory=Corpora)
    shares: list[float] = field(default_factory=lambda: [0.1, 1.0])
    """shares of the corpus' documents that are there to be retrieved; of --corpora all are"""

    def flow(self) -> Flow:
        """Open the corpora too."""
        return replace(super().flow(), corpora=self.corpora.opened(self.data, self.place))

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Cross the methods with the corpora."""
        named = [pair.partition("=")[0] for pair in self.corpora.corpora]
        parts = {f"{share:.4g} of the corpus": {"corpus_share": share} for share in sorted(set(self.shares))}
        corpora = {f"corpus {name}": {"corpus": name} for name in named} or parts
        return {
            f"{name}, {words}": replace(recipe, method=method, **changes)
            for name, method in self.methods.chosen().items()
            for words, changes in corpora.items()
        }

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """The last method from the largest corpus is the best."""
        return [(rows[-1], other) for other in rows[:-1]]


if __name__ == "__main__":
    with plain_errors():
        present(parse(Retrieval, __doc__), connect=lambda: ray.init(**ray_options()))
