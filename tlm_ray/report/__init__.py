"""From class ids and costs to a table: scores, FLOPs, tables, figures, files.

A `Cell` is one row of a table (a recipe) on one task, over its seeds. `publish_table` writes cells
as Markdown, CSV, JSON and a figure, with the paper's own numbers beneath, marked as reported;
`publish_sweep` does so for the trials of a sweep, with development scores only.
"""

from tlm_ray.report.cells import Cell
from tlm_ray.report.figures import score_against_flops
from tlm_ray.report.flops import encoder_parameters, human, training_flops
from tlm_ray.report.paper import ReportedRow, reported
from tlm_ray.report.publication import publish_sweep, publish_table
from tlm_ray.report.sweep_figures import sweep_figure
from tlm_ray.report.tables import markdown_rows, table_csv, table_json, table_markdown
from tlm_ray.report.terminal import print_table

__all__ = [
    "Cell",
    "ReportedRow",
    "encoder_parameters",
    "human",
    "markdown_rows",
    "print_table",
    "publish_sweep",
    "publish_table",
    "reported",
    "score_against_flops",
    "sweep_figure",
    "table_csv",
    "table_json",
    "table_markdown",
    "training_flops",
]
