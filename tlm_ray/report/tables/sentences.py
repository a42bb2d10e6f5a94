"""Summarise a table in at most five sentences for the terminal; the report has all details."""

from collections.abc import Sequence
from statistics import fmean

from tlm_ray.report.statistics.comparison import p_text
from tlm_ray.report.statistics.differences import Difference
from tlm_ray.report.tables.cells import Cell
from tlm_ray.report.tables.results import ResultsData

SENTENCES = 4  # pairs of rows with a sentence each; a fifth sentence counts the rest


def summary(results: ResultsData) -> list[str]:
    """Return sentences on the best ready-made rival of the view's row, and on the expected differences.

    The rival is the plain or pretrained row that is best on dev. With several tasks the mean difference is reported.
    Returns [] if there is nothing to compare.
    """
    first = (results.view.against, best_rival(results))
    expected = [(each.above, each.below) for each in results.verdicts if each.found]
    pairs = [pair for pair in dict.fromkeys([first, *expected]) if results.comparison.of(*pair)]
    told, rest = pairs[:SENTENCES], pairs[SENTENCES:]
    sentences = [
        _sentence(
            results.comparison.whole(*pair), rival=_kind(results, pair[1]) if pair == first else "", expected=expected
        )
        for pair in told
    ]
    return sentences + ([_rest(results, rest)] if rest else [])


def best_rival(results: ResultsData) -> str:
    """Return the plain or pretrained row with the best mean dev score over all tasks; "" if there is none."""
    ready = {row: list(results.of_row(row).values()) for row in results.rows if _kind(results, row)}
    whole = {row: fmean(map(_dev, cells)) for row, cells in ready.items() if len(cells) == len(results.tasks)}
    return max((row for row in whole if row != results.view.against), key=whole.__getitem__, default="")


def _kind(results: ResultsData, row: str) -> str:
    """Return "pretrained" or "plain", or "" for a row trained from scratch."""
    cells = results.of_row(row).values()
    if all(cell.pretrained for cell in cells):
        return "pretrained"
    return "" if any(cell.flops for cell in cells) else "plain"


def _dev(cell: Cell) -> float:
    return fmean(cell.scores if cell.split == "dev" else cell.dev_scores or (-100.0,))


def _sentence(whole: Difference, *, rival: str, expected: Sequence[tuple[str, str]]) -> str:
    """Return a sentence on the difference between two rows and its significance."""
    low, high = whole.interval
    size = f"{abs(whole.mean):.1f} points {'above' if whole.mean > 0 else 'below'}" if whole.mean else "level with"
    best = f", the best {rival} row on dev" if rival else ""
    where = f"Averaged over {len(whole.tasks)} tasks, " if len(whole.tasks) > 1 else ""
    interval = f"95 % interval {low:+.1f} to {high:+.1f}, p {p_text(whole.reported_p)}"
    said = f"{where}{whole.row} is {size} {whole.other}{best} ({interval})"
    if not whole.is_shown:
        needed = f"; {whole.smallest:.1f} points are needed for 80 % power" if whole.error else ""
        return f"Not shown: {said}{needed}."
    is_reverse = whole.mean < 0 and (whole.row, whole.other) in expected
    return f"{said}: {'the opposite of what was expected is ' if is_reverse else ''}shown."


def _rest(results: ResultsData, pairs: Sequence[tuple[str, str]]) -> str:
    words = [each.word for each in results.verdicts if (each.above, each.below) in pairs]
    counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return f"Of {len(words)} more expected differences in the report: {counted}."
