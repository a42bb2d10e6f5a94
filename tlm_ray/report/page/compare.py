"""Render two published tables side by side."""

from collections.abc import Sequence

from tlm_ray.report.page.sections import told
from tlm_ray.report.page.template import render
from tlm_ray.report.published import Beside, Published, alone, rows_beside, settings_changed
from tlm_ray.report.statistics.comparison import NOT_TESTED, difference_text, p_or_why, tested
from tlm_ray.report.tables.grids import metric_text
from tlm_ray.storage import shown


def compare_page(first: Published, second: Published) -> str:
    """Return a self-contained HTML page: rows of both tables, what only one has, and settings that differ."""
    beside = rows_beside(first, second)
    return render(
        "compare.html",
        title="Two tables side by side",
        what=f"First: {shown(first.location)}. Second: {shown(second.location)}",
        sentences=sentences(beside),
        rows=[(each, metric_text(each.metric), *_found(each)) for each in beside],
        only=[("first", alone(first, second)), ("second", alone(second, first))],
        changed=settings_changed(first, second),
        counts_seeds=all(each.difference.counts_seeds for each in beside if each.difference),
        **told(None),
    )


def sentences(beside: Sequence[Beside]) -> list[str]:
    """Return a sentence on how many rows differ, one on each row that does, and one on rows that are not tested."""
    if not beside:
        return ["The tables have no row in common on a task in common."]
    known = [each.difference for each in beside if each.difference]
    apart = [each for each in beside if each.difference and each.difference.is_shown]
    count = f"Of {len(known)} rows that both tables have predictions of, {len(apart)} are shown to differ."
    left = len(known) - tested(known)
    return [count, *map(_sentence, apart), *([f"Of these rows, {left} are {NOT_TESTED}."] if left else [])]


def _sentence(each: Beside) -> str:
    assert each.difference is not None
    low, high = each.difference.interval
    side = "above" if each.difference.mean > 0 else "below"
    size = f"{abs(each.difference.mean):.1f} points {side} the first"
    shown_by = f"95 % interval {low:+.1f} to {high:+.1f}, {p_or_why(each.difference)}"
    return f"{each.row} on {each.task}: the second table is {size} ({shown_by})."


def _found(each: Beside) -> tuple[str, str]:
    """Return the difference in words, with its interval where it is known, and its p or why it has none."""
    if each.difference is None:
        return f"{each.means[1] - each.means[0]:+.1f}", each.why
    return difference_text(each.difference), p_or_why(each.difference)
