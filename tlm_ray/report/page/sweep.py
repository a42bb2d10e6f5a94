"""Render the page of a sweep: importance of parameters, scores of trials, learning curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from tlm_ray.report.page.importance import METHOD
from tlm_ray.report.page.sections import told
from tlm_ray.report.page.template import render
from tlm_ray.report.page.trials import Trials
from tlm_ray.report.story import Story
from tlm_ray.report.sweeps import best_of


def sweep_page(
    name: str, trials: Sequence[Mapping[str, Any]], parameters: Sequence[str], story: Story | None = None
) -> str:
    """Return a self-contained HTML page.

    trials: from `tlm_ray.report.sweeps.sort_trials`, best first. parameters: their names.
    """
    found = Trials(all=trials, names=parameters)
    return render(
        "sweep.html",
        title=name,
        what=_what(found),
        best=_best(found),
        trials=found,
        importances=found.importances(),
        method=METHOD,
        **told(story),
    )


def _what(trials: Trials) -> str:
    scored = f"; {len(trials.scored)} have a score" if len(trials.scored) < len(trials.all) else ""
    return f"{len(trials.all)} trials of {', '.join(trials.names)} on development scores{scored}"


def _best(trials: Trials) -> str:
    """Return a line on the best trial and how many there were; "" if none has a score."""
    if not trials.scored:
        return ""
    _, best = trials.scored[0]
    chosen = ", ".join(f"{name} {trials.text(best, name)}" for name in trials.names)
    return f"Best: {chosen}, with a dev score of {best['dev']:.2f}: {best_of(trials.all)}."
