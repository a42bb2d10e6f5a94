"""Draw learning curves: a panel per loss and for the dev score, a colour per row, a line per seed."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from tlm_ray.report.page import svg
from tlm_ray.report.page.charts import Chart, Entry, colour_class
from tlm_ray.report.story import Learned
from tlm_ray.training.progress import NOT_LOSSES

MOST_POINTS = 75  # maximum points per line, for panels of 318 pixels; more would show the noise of single batches
ALL_POINTS = 80_000  # maximum points per page: about 0.8 MB
FEWEST_POINTS = 12
MOST_DOTS = 20  # maximum number of evaluations to mark
WORDS = {"general_mlm": "general MLM loss", "task_mlm": "task MLM loss", "task": "task loss", "dev": "dev score, %"}
ORDER = list(WORDS)
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
    names = list(dict.fromkeys(name for entry in history for name in entry if name not in NOT_LOSSES - {"dev"}))
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
        (f"{stage}: {WORDS.get(measure, f'{measure} loss')}", _panel(learned, rows, stage, measure, most))
        for stage, measure in places
    ]
    shown = [row for row in rows if any(each.row == row and each.history for each in learned)]
    legend = [
        Entry(name=row, swatch=svg.swatch("-", colour_class(rows.index(row))), series=rows.index(row)) for row in shown
    ]
    longest = max(len(each.history) for each in learned)
    mean = f" A point is the mean of up to {-(-longest // most)} logged entries." if longest > most else ""
    note = f"By steps; one line per seed. A stage shared by several rows is drawn once, for the first.{mean}"
    return Chart(heading=task, panels=panels, legend=legend, notes=[note])


def _panel(learned: Sequence[Learned], rows: Sequence[str], stage: str, measure: str, most: int) -> Markup:
    found = [(each, thinned(each.history, measure, most)) for each in learned if each.stage == stage]
    lines = [(each, line) for each, line in found if line]
    points = [point for _, line in lines for point in line]
    panel = svg.Panel(
        x=svg.linear_axis([0.0, *(x for x, _ in points)], margin=0.0), y=svg.linear_axis([y for _, y in points])
    )
    drawn = [_line(panel, each, line, rows.index(each.row), measure) for each, line in lines]
    return panel.draw(f"{stage}: {measure} by steps", drawn)


def _line(panel: svg.Panel, learned: Learned, line: Line, series: int, measure: str) -> Markup:
    step, value = line[-1]
    said = f"{learned.row}, seed {learned.seed}: {value:.2f} at step {step:g}"
    marked = line if len(line) == 1 or (measure == "dev" and len(line) <= MOST_DOTS) else []
    dots = [svg.tag("circle", cx=x, cy=y, r=2) for x, y in (panel.at(*point) for point in marked)]
    drawn = panel.line(line)
    return svg.tag("g", svg.title(said), drawn, *dots, class_=f"{colour_class(series)} series s{series}")
