"""Elements of HTML that show results, sweeps and models in a notebook: the tables and charts of the pages."""

from collections.abc import Mapping, Sequence
from typing import Any

from tlm_ray.report.figures.sweep_figures import NO_RANGES, study_of
from tlm_ray.report.page import experiment, sweep
from tlm_ray.report.page.learning import learning_charts
from tlm_ray.report.page.template import render_element
from tlm_ray.report.story import Learned
from tlm_ray.report.tables.results import ResultsData


def results_html(results: ResultsData) -> str:
    """Return the table, the differences with their intervals, the notes and the figure."""
    return render_element("results_element.html", **experiment.shown(results))


def sweep_html(
    ordered: Sequence[Mapping[str, Any]], parameters: Sequence[str], ranges: Mapping[str, bool] = NO_RANGES
) -> str:
    """Return the best trial, the table of trials, best first, and the score over each parameter; ranges: of a page."""
    study = study_of(ordered, parameters, ranges)
    return render_element("sweep_element.html", **sweep.shown(ordered, parameters, study))


def model_html(lines: Sequence[str], learned: Sequence[Learned]) -> str:
    """Return lines about a model, and its learning curves."""
    return render_element("model_element.html", lines=lines, charts=learning_charts(learned))
