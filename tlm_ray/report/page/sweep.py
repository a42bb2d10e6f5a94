"""Render the page of a sweep: importance of parameters, scores of trials, learning curves."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tlm_ray.report.figures.sweep_figures import (
    METHOD,
    NO_RANGES,
    importances,
    parallel_figure,
    slice_figure,
    study_of,
    varied_of,
)
from tlm_ray.report.page.sections import told
from tlm_ray.report.page.svg import inline
from tlm_ray.report.page.template import render
from tlm_ray.report.story import Story
from tlm_ray.report.sweeps import Trial, best_of, columns_of, text_of

if TYPE_CHECKING:
    from optuna import Study


def sweep_page(
    name: str,
    trials: Sequence[Trial],
    parameters: Sequence[str],
    story: Story | None = None,
    ranges: Mapping[str, bool] = NO_RANGES,
) -> str:
    """Return a self-contained HTML page.

    trials: from `tlm_ray.report.sweeps.sort_trials`, best first. parameters: their names. ranges: those that
    were sampled from a range, and whether it is on a logarithmic scale.
    """
    study = study_of(trials, parameters, ranges)
    return render(
        "sweep.html",
        title=name,
        importances=importances(study),
        method=METHOD,
        parallel=inline(parallel_figure(study), "parallel coordinates: one line per trial") if varied_of(study) else "",
        example=parameters[0],
        **shown(trials, parameters, study),
        **told(story),
    )


def shown(trials: Sequence[Trial], parameters: Sequence[str], study: "Study") -> dict[str, Any]:
    """Return the template's values for the best trial, the table and a figure per parameter."""
    columns = columns_of(trials)
    return {
        "what": _what(trials, parameters, len(study.trials)),
        "best": _best(trials, parameters) if study.trials else "",
        "slices": [(each, inline(slice_figure(study, each), f"score over {each}")) for each in varied_of(study)],
        "columns": columns,
        "rows": [[text_of(trial, column) for column in columns] for trial in trials],
    }


def _what(trials: Sequence[Trial], parameters: Sequence[str], scored: int) -> str:
    some = f"; {scored} have a score" if scored < len(trials) else ""
    return f"{len(trials)} trials of {', '.join(parameters)} on development scores{some}"


def _best(trials: Sequence[Trial], parameters: Sequence[str]) -> str:
    """Return a line on the best trial and how many there were."""
    chosen = ", ".join(f"{name} {text_of(trials[0], name)}" for name in parameters)
    return f"Best: {chosen}, with a dev score of {trials[0]['dev']:.2f}: {best_of(trials)}."
