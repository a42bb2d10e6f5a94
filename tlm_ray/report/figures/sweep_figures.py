"""Plot a sweep with Optuna: slices, parallel coordinates, and the importance of parameters."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from tlm_ray.report.figures import drawing
from tlm_ray.report.sweeps import Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

MOST_LEVELS = 10  # numbers with more distinct values were sampled; others are from a grid, at equal distances
NO_RANGES: Mapping[str, bool] = {}
LOG_SPAN = 10  # sampled numbers that span this factor have a logarithmic axis
LONGEST = 20  # characters of a value's name
WIDTH = 36  # characters that stand side by side under a panel
FEWEST = 8  # minimum number of trials for meaningful shares
TREES = 8  # of the random forest; 648 trials of five parameters take 5 s
SCORE = "dev score, %"
METHOD = (
    "Share of the variance of the dev score that each parameter explains alone or with others: fANOVA of Hutter et "
    "al. (2014) in Optuna, from a random forest. Shares add up to 100 %; with few trials, small ones are due to chance."
)


def study_of(ordered: Sequence[Trial], parameters: Sequence[str], ranges: Mapping[str, bool] = NO_RANGES) -> "Study":
    """Return Optuna's study of the finished trials, the worst first, with the parameters that have two or more values.

    ordered: trials, best first. ranges: parameters that were sampled from a range, and whether it is on a
    logarithmic scale; of others that is inferred from the values.
    """
    import optuna  # imported here, because it takes 0.5 s

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    scored = [t for t in reversed(ordered) if t.get("dev") is not None and all(name in t for name in parameters)]
    columns = {drawing.plain(name): [_plain(trial[name]) for trial in scored] for name in parameters}
    varied = {name: values for name, values in columns.items() if len(set(values)) > 1}
    known = {drawing.plain(name): is_log for name, is_log in ranges.items()}
    kinds = {name: _distribution(values, known.get(name)) for name, values in varied.items()}
    study = optuna.create_study(direction="maximize")
    for place, trial in enumerate(scored):
        point = {name: values[place] for name, values in varied.items()}
        study.add_trial(optuna.create_trial(params=point, distributions=kinds, value=trial["dev"]))
    return study


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else drawing.plain(str(value))


def _distribution(values: Sequence[Any], is_log: bool | None) -> "BaseDistribution":
    """Return the axis of a parameter; is_log: of a known range, None if the values have to tell."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if any(isinstance(value, str) for value in values):
        return CategoricalDistribution(sorted(set(values), key=str))
    low, *_, high = levels = sorted(set(values))
    if len(levels) <= MOST_LEVELS and is_log is None:
        return CategoricalDistribution(levels)
    return FloatDistribution(low, high, log=low > 0 and (high >= LOG_SPAN * low if is_log is None else is_log))


def varied_of(study: "Study") -> list[str]:
    """Return the names of the parameters."""
    return list(study.trials[0].params) if study.trials else []


def importances(study: "Study") -> dict[str, float]:
    """Return each parameter's share of the variance, largest first; empty for few trials or equal scores."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    if len(study.trials) < FEWEST or len({trial.value for trial in study.trials}) == 1:
        return {}
    return get_param_importances(study, evaluator=FanovaImportanceEvaluator(n_trees=TREES, seed=0))


def slice_figure(study: "Study", parameter: str = "") -> Figure:
    """Return the score over one parameter, or a panel per parameter; a point per trial, the best in strong colours."""
    from optuna.visualization.matplotlib import plot_slice

    with _optuna_style(width_in=4.2 if parameter else 8.0):
        drawn = plot_slice(study, [parameter] if parameter else None, target_name=SCORE)
    panels = [drawn] if isinstance(drawn, Axes) else list(drawn)
    for panel in panels:
        panel.set_facecolor("white")
        drawing.make_bare(panel)
        _name_values(panel, study)
    figure = _taken(panels[0])
    for colours in figure.axes[len(panels) :]:  # a bar of the trials' numbers, which are the order of their scores
        colours.remove()
    return figure


def _name_values(panel: Axes, study: "Study") -> None:
    """Name the values of a grid as they are, where Optuna draws words in quotes, and turn long ones."""
    kinds = study.trials[0].distributions if study.trials else {}
    values = getattr(kinds.get(panel.get_xlabel()), "choices", ())
    names = [_cut(str(value).replace(r"\$", "$")) for value in values]
    if names:
        panel.set_xticks(range(len(names)), list(map(drawing.plain, names)))
    if sum(map(len, names)) > WIDTH:
        for label in panel.get_xticklabels():
            label.set(rotation=30, horizontalalignment="right", rotation_mode="anchor")


def _cut(name: str) -> str:
    """Return a name without the middle of a long one, because paths differ at the end and words at the beginning."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 3]}…{name[-LONGEST // 2 :]}"


def parallel_figure(study: "Study") -> Figure:
    """Return parallel coordinates: the score, then the parameters; a line per trial, the best in strong colours."""
    from optuna.visualization.matplotlib import plot_parallel_coordinate

    with _optuna_style(width_in=9.0):
        return _taken(plot_parallel_coordinate(study, target_name=SCORE))


@contextmanager
def _optuna_style(*, width_in: float) -> Iterator[None]:
    """Undo the style that Optuna sets for all figures, and ignore that its plots are experimental."""
    from optuna.exceptions import ExperimentalWarning

    rc = rc_context({"figure.figsize": (width_in, 3.2), "figure.dpi": drawing.DOTS_PER_INCH})
    with rc, warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def _taken(drawn: Axes) -> Figure:
    """Take Optuna's figure from pyplot, which keeps it for ever, and give it the colours of the other figures."""
    from matplotlib import pyplot

    figure = drawn.figure
    assert isinstance(figure, Figure)
    pyplot.close(figure)
    figure.suptitle("")
    for panel in figure.axes:
        panel.set_title("")
        panel.tick_params(which="both", colors=drawing.INK, labelsize=8)
        panel.spines[:].set_color(drawing.FAINT)
        for label in (panel.xaxis.label, panel.yaxis.label):
            label.set(color=drawing.INK, fontsize=9)
        for drawn_trials in (each for each in panel.collections if each.get_array() is not None):
            drawn_trials.set_cmap(ListedColormap(drawing.SHADES))
    return figure
