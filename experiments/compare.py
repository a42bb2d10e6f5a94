"""Compare two published tables on one page: rows of both, paired differences, settings that differ.

    python experiments/compare.py results/kept/FIRST.json results/kept/SECOND.json
    python experiments/compare.py results/k.json s3://bucket/tables/k.json --out results

A difference has a confidence interval where the predictions of both tables are still under their roots.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

import tyro

from tlm_ray import parse, plain_errors, storage
from tlm_ray.report.page.compare import compare_page, sentences
from tlm_ray.report.published import read_published, rows_beside
from tlm_ray.runs.cli.options import settle, settle_results


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Options of a comparison."""

    first: Annotated[str, tyro.conf.Positional]
    """JSON file of a table, as an experiment writes it"""
    second: Annotated[str, tyro.conf.Positional]
    """JSON file of another table, or of the same at another time"""
    out: str = "results"
    """folder for the page"""

    def __post_init__(self) -> None:
        settle(self, storage.absolute, "first", "second")
        settle_results(self, out="results")


def main() -> None:
    options = parse(Compare, __doc__)
    first, second = read_published(options.first), read_published(options.second)
    for sentence in sentences(rows_beside(first, second)):
        print(sentence)
    uri = storage.join(options.out, page_name(options.first, options.second))
    storage.write_bytes(uri, compare_page(first, second).encode())
    print(f"All rows and settings: {storage.shown(uri)}")


def page_name(*tables: str) -> str:
    """Return the file name of a comparison, after those of the tables."""
    names = [PurePosixPath(storage.without_query(table)).stem for table in tables]
    return f"compare_{'_and_'.join(names)}.html"


if __name__ == "__main__":
    with plain_errors():
        main()
