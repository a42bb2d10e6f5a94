"""From class ids and costs to a table: scores, FLOPs, tables, figures, files.

A `Cell` is one row of a table (a recipe) on one task, over its seeds. `publish_table` writes cells as Markdown, CSV,
JSON and a figure named after the experiment, with the paper's own numbers beneath, marked as reported. `publish_scores`
does so for a table of scores alone, `publish_sweep` for the trials of a sweep, with development scores only.
"""

from tlm_ray.report.cells import Cell
from tlm_ray.report.comparison import Comparison
from tlm_ray.report.differences import Difference, Predictions, compare
from tlm_ray.report.figures import score_against_flops
from tlm_ray.report.flops import human
from tlm_ray.report.paper import ReportedRow, pretraining_flops, reported
from tlm_ray.report.publication import check_name, publish_scores, publish_sweep, publish_table
from tlm_ray.report.score_tables import Score, scores_markdown
from tlm_ray.report.sweep_figures import sweep_figure
from tlm_ray.report.tables import table_csv, table_json, table_markdown
from tlm_ray.report.terminal import print_table

__all__ = [
    "Cell",
    "Comparison",
    "Difference",
    "Predictions",
    "ReportedRow",
    "Score",
    "check_name",
    "compare",
    "human",
    "pretraining_flops",
    "print_table",
    "publish_scores",
    "publish_sweep",
    "publish_table",
    "reported",
    "score_against_flops",
    "scores_markdown",
    "sweep_figure",
    "table_csv",
    "table_json",
    "table_markdown",
]
