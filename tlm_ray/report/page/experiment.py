"""Render the page of an experiment: answers, table, learning curves, data and cost."""

from typing import Any

from tlm_ray.report.page.answers import answers_of
from tlm_ray.report.page.charts import score_chart
from tlm_ray.report.page.sections import told
from tlm_ray.report.page.template import render
from tlm_ray.report.story import Story
from tlm_ray.report.tables.exports import SPLIT_NAMES, remarks
from tlm_ray.report.tables.grids import make_grid
from tlm_ray.report.tables.results import ResultsData


def experiment_page(name: str, results: ResultsData, story: Story | None = None) -> str:
    """Return a self-contained HTML page: the sentences of the terminal, the table, charts, and the story."""
    return render("experiment.html", title=name, what=_what(results), **shown(results), **told(story))


def shown(results: ResultsData) -> dict[str, Any]:
    """Return the template's values for the sentences, the table, the differences, the notes and the chart."""
    return {
        "answers": answers_of(results),
        "grid": make_grid(results),
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
