"""Draw learning curves: a panel per loss and for the dev score, a colour per row, a line per seed."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes

from tlm_ray.report.figures import drawing
from tlm_ray.report.page.charts import Chart, Entry
from tlm_ray.report.page.svg import inline
from tlm_ray.report.story import Learned

MOST_POINTS = 75  # maximum points per line, for panels of 318 pixels; more would show the noise of single batches
ALL_POINTS = 80_000  # maximum points per page: about 0.8 MB
FEWEST_POINTS = 12
MOST_DOTS = 20  # maximum number of evaluations to mark
WORDS = {"general_mlm": "general MLM loss", "task_mlm": "task MLM loss", "task": "task loss", "dev": "dev score, %"}
ORDER = list(WORDS)
STYLES = {"-": "━", "--": "╍", ":": "┈"}  # lines and their signs, so that colour and line repeat after 18 series
Line = list[tuple[float, float]]


def learning_charts(learned: Sequence[Learned]) -> list[Chart]:
    """Return a chart per task; none without a history."""
    lines = [(each, measure) for each in learned for measure in measures(each.history)]
    if not lines:
        return []
    most = max(FEWEST_POINTS, min(MOST_POINTS, ALL_POINTS // len(lines)))
    rows = list(dict.fromkeys(each.row for each in learned))
    tasks = list(dict.fromkeys(each.task for each, _ in lines))
    return [_chart(task, [each for each in learned if each.task == task], rows, most) for task in tasks]


def measures(history: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the measures of a history: known losses first, then others, then the dev score."""
    names = list(dict.fromkeys(name for entry in history for name in entry if name != "step"))
    known = [name for name in ORDER if name in names and name != "dev"]
    return [*known, *(name for name in names if name not in WORDS), *(["dev"] if "dev" in names else [])]


def thinned(history: Sequence[Mapping[str, float]], measure: str, most: int) -> Line:
    """Return a measure by steps, in at most `most` points, each the mean of equally many neighbouring entries."""
    found = [(entry["step"], entry[measure]) for entry in history if measure in entry]
    size = -(-len(found) // most)
    parts = [found[start : start + size] for start in range(0, len(found), size or 1)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]


def _chart(task: str, learned: Sequence[Learned], rows: Sequence[str], most: int) -> Chart:
    kinds = [(each.stage, measure) for each in learned for measure in measures(each.history)]
    places = sorted(dict.fromkeys(kinds), key=lambda kind: kind[0])  # stable sort: stage one before stage two
    panels = [
        (f"{stage}: {WORDS.get(measure, f'{measure} loss')}", _panel(task, learned, rows, stage, measure, most))
        for stage, measure in places
    ]
    shown = [row for row in rows if any(each.row == row and each.history for each in learned)]
    legend = [
        Entry(name=row, sign=STYLES[_style(i)], colour=f"c{i % len(drawing.COLOURS)}", series=i)
        for i, row in enumerate(rows)
        if row in shown
    ]
    longest = max(len(each.history) for each in learned)
    mean = f" A point is the mean of up to {-(-longest // most)} logged entries." if longest > most else ""
    note = f"By steps; one line per seed. A stage shared by several rows is drawn once, for the first.{mean}"
    return Chart(heading=task, panels=panels, legend=legend, note=note)


def _panel(task: str, learned: Sequence[Learned], rows: Sequence[str], stage: str, measure: str, most: int) -> Markup:
    figure, (panel,) = drawing.make_panels(1, width_in=4.0, height_in=2.4)
    for each in (each for each in learned if each.stage == stage):
        if line := thinned(each.history, measure, most):
            _draw(panel, line, rows.index(each.row), measure)
    panel.set_xlim(left=0)
    return inline(figure, f"{task}, {stage}: {measure} by steps")


def _draw(panel: Axes, line: Line, series: int, measure: str) -> None:
    is_marked = len(line) == 1 or (measure == "dev" and len(line) <= MOST_DOTS)
    panel.plot(
        *zip(*line, strict=True),
        color=drawing.colour_of(series),
        linestyle=_style(series),
        linewidth=1.2,
        marker="o" if is_marked else None,
        markersize=3,
        gid=f"s{series}",
    )


def _style(series: int) -> str:
    return list(STYLES)[series // len(drawing.COLOURS) % len(STYLES)]
