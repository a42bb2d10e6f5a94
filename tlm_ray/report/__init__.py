"""Turn scores and costs into reports: tables, figures and files.

A `Cell` is one row of a table (a recipe) on one task, over its seeds. `Results` holds an experiment's cells, the
differences between its rows, and the paper's table, marked as reported. `publish` writes them as Markdown, CSV, JSON,
LaTeX, a figure and a page. The page includes the `Story`: settings, learning curves and costs. `publish_sweep` does the
same for the trials of a sweep, with development scores only.
"""

from tlm_ray.report.formats import human, interval_of
from tlm_ray.report.paper import PAPER_TABLES, TABLE_2, PaperTable, ReportedRow, pretraining_flops
from tlm_ray.report.publication import check_name, kept_at, publish, publish_sweep
from tlm_ray.report.results import Results
from tlm_ray.report.statistics.comparison import Comparison
from tlm_ray.report.statistics.differences import Difference, Predictions, compare
from tlm_ray.report.story import Story
from tlm_ray.report.tables.cells import Cell
from tlm_ray.report.tables.exports import table_csv, table_json, table_markdown
from tlm_ray.report.tables.latex import table_latex
from tlm_ray.report.tables.results import View
from tlm_ray.report.tables.terminal import print_table

__all__ = [
    "PAPER_TABLES",
    "TABLE_2",
    "Cell",
    "Comparison",
    "Difference",
    "PaperTable",
    "Predictions",
    "ReportedRow",
    "Results",
    "Story",
    "View",
    "check_name",
    "compare",
    "human",
    "interval_of",
    "kept_at",
    "pretraining_flops",
    "print_table",
    "publish",
    "publish_sweep",
    "table_csv",
    "table_json",
    "table_latex",
    "table_markdown",
]
