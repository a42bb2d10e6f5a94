"""Reproduce tables 2 to 8 and figure 1 of the paper under one root, and compare each expected difference.

    python experiments/paper.py                                                          # embedded data, tiny models
    python experiments/paper.py --scale mini --tasks sciie chemprot --task-root data/tasks --corpus data/corpus
    python experiments/paper.py --only k rho2 --dry-run

Each table also has its own script with its own flags. Stages that tables share are made once.
"""

from dataclasses import dataclass, field, fields
from typing import Literal

import ray
from flops import Flops
from k import K
from main_table import MainTable
from pretrained import Kind, PretrainedTable
from retrieval import Retrieval
from rho1 import Rho1
from rho2 import Rho2
from stage_two import StageTwo

from tlm_ray import Results, Table, TrainingOptions, parse, plain_errors, present, ray_options, storage
from tlm_ray.report.formats import markdown_rows
from tlm_ray.report.statistics.comparison import difference_text

TABLES: dict[str, type[Table]] = {
    one.name: one for one in (MainTable, Retrieval, K, Rho1, Rho2, StageTwo, PretrainedTable, Flops)
}
Name = Literal["main_table", "retrieval", "k", "rho1", "rho2", "stage_two", "pretrained", "flops"]


@dataclass(frozen=True, kw_only=True)
class Paper(TrainingOptions):
    """Options of all tables."""

    only: list[Name] = field(default_factory=list)
    """tables to run; if unset: all"""
    seeds: int = 3
    """trainings per cell, seeds 0, 1, ..."""
    ks: list[int] = field(default_factory=list)
    """as of k.py"""
    rho1s: list[int] = field(default_factory=lambda: Rho1().rho1s)
    """as of rho1.py"""
    rho2s: list[float] = field(default_factory=lambda: Rho2().rho2s)
    """as of rho2.py"""
    shares: list[float] = field(default_factory=lambda: Retrieval().shares)
    """as of retrieval.py"""
    kinds: list[Kind] = field(default_factory=lambda: PretrainedTable().kinds)
    """as of pretrained.py"""
    parts: list[float] = field(default_factory=lambda: Flops().parts)
    """as of flops.py"""

    def table(self, name: str) -> Table:
        """Return a table's options from these."""
        kind = TABLES[name]
        return kind(**{one.name: getattr(self, one.name) for one in fields(kind) if hasattr(self, one.name)})


def summary(shown: dict[str, Results]) -> str:
    """Return a Markdown table of the expected differences between rows, measured here and in the paper."""
    lines = []
    for name, results in shown.items():
        for each, whole in ((verdict, verdict.whole) for verdict in results.verdicts):
            if whole is None:
                continue
            there = [f"{sum(each.reported) / len(each.reported):+.1f}"] if each.reported else ["–"]
            here = [each.word, difference_text(whole)]
            lines.append([name, f"{each.above} above {each.below}", *here, *there])
    return "\n".join(markdown_rows(["table", "expected", "", "here", "paper"], lines, right=(3, 4))) + "\n"


def main() -> None:
    options = parse(Paper, __doc__)
    tables = {name: options.table(name) for name in options.only or TABLES}
    for table in tables.values():  # a wrong option of the last is told before the first trains
        table.view(table.trainings(table.flow()))
    shown: dict[str, Results] = {}
    try:
        for name, table in tables.items():
            results = present(table, connect=lambda: ray.is_initialized() or ray.init(**ray_options()))
            shown |= {} if results is None else {name: results}
    finally:  # also of the tables before one that fails
        if shown:
            text, uri = summary(shown), storage.join(options.place.out, "paper.md")
            storage.write_bytes(uri, text.encode())
            print(text, storage.shown(uri), sep="\n")


if __name__ == "__main__":
    with plain_errors():
        main()
