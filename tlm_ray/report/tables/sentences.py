"""Summarise a table in a few sentences, for the terminal and the first screen of the report."""

from collections.abc import Sequence
from statistics import fmean

from tlm_ray.report.statistics.comparison import NOT_TESTED, interval_name, needed_text, p_or_why, tested
from tlm_ray.report.statistics.differences import Difference
from tlm_ray.report.tables.grids import average_of, metric_text
from tlm_ray.report.tables.results import ResultsData

SENTENCES = 4  # pairs of rows with a sentence each; a fifth sentence counts the rest


def standing(results: ResultsData) -> list[str]:
    """Return sentences on the score of the view's row, and on the row with the highest score.

    With several tasks both are means over the tasks, among the rows that have them all. Returns [] for a single row.
    """
    means = averages(results)
    best = max(means, key=means.__getitem__, default="")
    if len(results.rows) < 2 or not best:
        return []
    own, where, shown = results.view.against, _where(results), _shown_above(results, best)
    if own not in means:
        return [f"{best} has the highest score, {means[best]:.1f} % {where}{shown}."]
    first = f"{own} scores {means[own]:.1f} % {where}"
    if best == own:
        return [f"{first}, the highest of {len(means)} rows{shown}."]
    return [f"{first}.", f"{best} has the highest score, {means[best]:.1f} %{shown}."]


def averages(results: ResultsData) -> dict[str, float]:
    """Return the mean score over all tasks of each row that has them all, in percent."""
    found = {row: {task: cell.mean for task, cell in results.of_row(row).items()} for row in results.rows}
    return {row: average_of(means) for row, means in found.items() if len(means) == len(results.tasks)}


def _where(results: ResultsData) -> str:
    tasks = results.tasks
    if len(tasks) > 1:
        return f"on average over the {results.split} sets of {len(tasks)} tasks"
    return f"in {metric_text(results.metric(tasks[0]))} on the {results.split} set of {tasks[0]}"


def _shown_above(results: ResultsData, row: str) -> str:
    """Say whether a row is shown to be above all others; "" without differences from them.

    Rows of the same trainings, such as an ensemble and its members, are left out of the claim, as in `is_best`.
    """
    own = [each for each in results.differences if each.row == row]
    others = [each for each in own if not each.are_kin]
    if not others:
        return ""
    shown = sum(results.comparison.is_best(row, task) for task in results.tasks)
    named = "every row of other trainings" if len(others) < len(own) else "every other row"
    if not tested(others):
        return f"; that it is above {named} is {NOT_TESTED}"
    if len(results.tasks) == 1:
        return f"; that it is above {named} is {'shown' if shown else 'not shown'}"
    return f"; that it is above {named} is shown on {shown} of {len(results.tasks)} tasks"


def summary(results: ResultsData) -> list[str]:
    """Return at most five sentences: on the best rival of the view's row, and on the expected differences.

    The rival is the plain or pretrained row that is best on dev. With several tasks the mean difference is reported.
    Returns [] if there is nothing to compare.
    """
    pairs = _pairs(results)
    first, told, rest = (results.view.against, best_rival(results)), pairs[:SENTENCES], pairs[SENTENCES:]
    expected = [(each.above, each.below) for each in results.verdicts]
    sentences = [
        _sentence(
            results.comparison.whole(*pair), rival=_kind(results, pair[1]) if pair == first else "", expected=expected
        )
        for pair in told
    ]
    return sentences + ([_rest(results, rest)] if rest else [])


def stated(results: ResultsData) -> list[tuple[str, str]]:
    """Return the pairs of rows that have a sentence in `summary`."""
    return _pairs(results)[:SENTENCES]


def _pairs(results: ResultsData) -> list[tuple[str, str]]:
    first = (results.view.against, best_rival(results))
    expected = [(each.above, each.below) for each in results.verdicts if each.found]
    return [pair for pair in dict.fromkeys([first, *expected]) if results.comparison.of(*pair)]


def best_rival(results: ResultsData) -> str:
    """Return the plain or pretrained row with the best mean dev score over all tasks; "" if there is none."""
    ready = {row: list(results.of_row(row).values()) for row in results.rows if _kind(results, row)}
    whole = {row: fmean(cell.dev for cell in cells) for row, cells in ready.items() if len(cells) == len(results.tasks)}
    return max((row for row in whole if row != results.view.against), key=whole.__getitem__, default="")


def _kind(results: ResultsData, row: str) -> str:
    """Return "pretrained" or "plain", or "" for a row trained from scratch."""
    cells = results.of_row(row).values()
    if all(cell.pretrained for cell in cells):
        return "pretrained"
    return "" if any(cell.flops for cell in cells) else "plain"


def _sentence(whole: Difference, *, rival: str, expected: Sequence[tuple[str, str]]) -> str:
    """Return a sentence on the difference between two rows and its significance, or why it is not tested."""
    low, high = whole.interval
    size = f"{abs(whole.mean):.1f} points {'above' if whole.mean > 0 else 'below'}" if whole.mean else "level with"
    best = f", the best {rival} row on dev" if rival else ""
    where = f"Averaged over {len(whole.tasks)} tasks, " if len(whole.tasks) > 1 else ""
    found = f"{where}{whole.row} is {size} {whole.other}{best}"
    interval = f"{interval_name(whole)} {low:+.1f} to {high:+.1f}"
    if not whole.counts_seeds:
        return f"{found} ({interval}): {p_or_why(whole)}."
    said = f"{found} ({interval}, {p_or_why(whole)})"
    if not whole.is_shown:
        return f"Not shown: {said}{needed_text(whole)}."
    is_reverse = whole.mean < 0 and (whole.row, whole.other) in expected
    return f"{said}: {'the opposite of what was expected is ' if is_reverse else ''}shown."


def _rest(results: ResultsData, pairs: Sequence[tuple[str, str]]) -> str:
    words = [each.word for each in results.verdicts if (each.above, each.below) in pairs]
    counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return f"Of {len(words)} more expected differences in the report: {counted}."
