"""The page of a sweep: which parameters decide, what each trial reached, and how it was learned."""

from collections.abc import Mapping, Sequence
from typing import Any

from tlm_ray.report.page.importance import METHOD
from tlm_ray.report.page.sections import told
from tlm_ray.report.page.template import render
from tlm_ray.report.page.trials import Trials, is_score
from tlm_ray.report.story import Story


def sweep_page(
    name: str, trials: Sequence[Mapping[str, Any]], parameters: Sequence[str], story: Story | None = None
) -> str:
    """Return an HTML page that needs no other file.

    trials: of each its parameters, numbers or words, "dev", the development score in percent (None or NaN without
    one), and whatever else is known, such as "dev_low", "dev_high" or "state". parameters: their names.
    """
    found = Trials(all=sorted(trials, key=_rank), names=parameters)
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


def _rank(trial: Mapping[str, Any]) -> tuple[bool, float]:
    dev = trial.get("dev")
    return (False, -float(dev)) if is_score(dev) and dev is not None else (True, 0.0)


def _what(trials: Trials) -> str:
    scored = f"; {len(trials.scored)} came to a score" if len(trials.scored) < len(trials.all) else ""
    return f"{len(trials.all)} trials of {', '.join(trials.names)} on development scores{scored}"


def _best(trials: Trials) -> str:
    """Say which trial is the best; "" where none has a score."""
    if not trials.scored:
        return ""
    _, best = trials.scored[0]
    between = ""
    if is_score(best.get("dev_low")) and is_score(best.get("dev_high")):
        between = f" ({best['dev_low']:.2f} to {best['dev_high']:.2f})"
    chosen = ", ".join(f"{name} {trials.text(best, name)}" for name in trials.names)
    return f"Best: {chosen}, with a dev score of {best['dev']:.2f}{between}."
