"""Render the page of an experiment: table, comparisons, learning curves, data and cost."""

from typing import Any

from tlm_ray.report.formats import ABSENT
from tlm_ray.report.page.charts import score_chart
from tlm_ray.report.page.sections import told
from tlm_ray.report.page.template import render
from tlm_ray.report.statistics.comparison import difference_text
from tlm_ray.report.story import Story
from tlm_ray.report.tables.exports import SPLIT_NAMES, remarks
from tlm_ray.report.tables.grids import make_grid
from tlm_ray.report.tables.results import ResultsData


def experiment_page(name: str, results: ResultsData, story: Story | None = None) -> str:
    """Return a self-contained HTML page: the table of `table_markdown`, charts, and the story."""
    return render("experiment.html", title=name, what=_what(results), **shown(results), **told(story))


def shown(results: ResultsData) -> dict[str, Any]:
    """Return the template's values for the table, the differences, the notes and the chart."""
    comparison = results.comparison
    lines = [
        (other, [("", ABSENT) if each is None else ("best" * each.is_shown, difference_text(each)) for each in line])
        for other, line in comparison.lines
    ]
    return {
        "grid": make_grid(results),
        "against": comparison.row,
        "columns": comparison.columns,
        "differences": lines,
        "claims": results.claims(),
        "notes": [*remarks(results), *results.notes],
        "chart": score_chart(results),
    }


def _what(results: ResultsData) -> str:
    """Return a line that describes the table."""
    seeds = max(len(cell.scores) for cell in results.cells)
    over = f", over {seeds} seeds" if seeds > 1 else ""
    varied = f", {results.view.varied} varied" if results.view.varied else ""
    rows = f"{len(results.rows)} rows on {', '.join(results.tasks)}"
    return f"{SPLIT_NAMES[results.split]} scores of {rows}{over}{varied}"
