"""The sentences at the end of a run: ours against what a user would pick, and what was expected."""

from dataclasses import replace
from statistics import fmean

from report_cells import make_cells, make_differences, of
from rich.console import Console

from tlm_ray import report
from tlm_ray.report.tables.sentences import best_rival, standing, summary

OURS, RANDOM, ALONE, LINEAR, NEAR = "TLM, BM25 text", "TLM, random text", "task data only", "linear", "neighbours"
SHARES = {LINEAR: 0.7, NEAR: 0.6, ALONE: 0.5, RANDOM: 0.797, OURS: 0.8}


def table(tasks=("reviews",), shares=SHARES, *, plain=(LINEAR, NEAR), dev=(), seeds=3, **view):
    """Return a table of rows that are right about so often; dev: scores on dev by row, instead of made-up ones."""
    cells = make_cells(tasks, rows=list(shares))
    for row, score in dict(dev).items():
        cells = [replace(c, dev_scores=(score,) * 3) if c.row == row else c for c in cells]
    cells = [replace(c, flops=0.0, flops_counted=0.0) if c.row in plain else c for c in cells]
    view = {"against": OURS, "expected": [(OURS, ALONE), (OURS, RANDOM)]} | view
    return of(cells, make_differences(tasks, shares, seeds=seeds), **view)


def test_the_rival_is_the_ready_made_row_that_is_best_on_dev():
    results = table(dev={LINEAR: 60.0, NEAR: 61.0, OURS: 90.0, RANDOM: 95.0})
    assert best_rival(results) == NEAR, "neither the best on test nor one that is trained from scratch"
    assert f"above {NEAR}, the best plain row on dev (" in summary(results)[0]
    encoder = replace(results, cells=[replace(c, pretrained=c.row == RANDOM) for c in results.cells])
    assert f"{RANDOM}, the best pretrained row on dev (" in summary(encoder)[0]
    assert best_rival(table(plain=())) == "" and len(summary(table(plain=()))) == 2


def test_three_sentences_say_what_is_shown_and_what_is_not():
    results = table(dev={LINEAR: 80.0, NEAR: 60.0})
    found = {each.other: each for each in results.differences if each.row == OURS}
    assert [found[other].is_shown for other in (LINEAR, ALONE, RANDOM)] == [True, True, False]
    first, second, third = summary(results)
    low, high = found[LINEAR].interval
    assert first == (
        f"{OURS} is {found[LINEAR].mean:.1f} points above {LINEAR}, the best plain row on dev "
        f"(95 % interval {low:+.1f} to {high:+.1f}, p < 0.001): shown."
    )
    assert second.startswith(f"{OURS} is ") and second.endswith(": shown.") and ALONE in second
    assert third.startswith(f"Not shown: {OURS} is ") and RANDOM in third
    assert third.endswith(f"; {found[RANDOM].smallest:.1f} points are needed for 80 % power.")


def test_a_table_where_ours_loses_says_so():
    first, second, _ = summary(table(shares=SHARES | {LINEAR: 0.95, ALONE: 0.9}, dev={LINEAR: 99.0}))
    assert f"points below {LINEAR}" in first and first.endswith("): shown.")
    assert f"points below {ALONE}" in second and second.endswith("): the opposite of what was expected is shown.")


def test_of_several_tasks_the_mean_is_told():
    results = table(("reviews", "news"))
    assert all("Averaged over 2 tasks, " in sentence for sentence in summary(results))
    lacking = replace(results, cells=[c for c in results.cells if (c.row, c.task) != (LINEAR, "news")])
    assert best_rival(lacking) == NEAR, "a mean of fewer tasks is no mean of these"


def test_one_training_of_each_row_shows_nothing():
    results = table(shares=SHARES | {OURS: 0.95}, dev={LINEAR: 80.0, NEAR: 60.0}, seeds=1)
    found = results.comparison.whole(OURS, LINEAR)
    low, high = found.interval
    assert summary(results)[0] == (
        f"{OURS} is {found.mean:.1f} points above {LINEAR}, the best plain row on dev (95 % interval over labelled "
        f"rows {low:+.1f} to {high:+.1f}): not tested: too few trainings; give --seeds 3."
    )
    assert standing(results)[0].endswith("every other row is not tested: too few trainings; give --seeds 3.")


def test_many_expected_pairs_are_five_sentences_and_a_row_alone_is_none():
    shares = SHARES | {f"K = {k}": 0.5 for k in range(4)}
    expected = [(OURS, row) for row in shares if row not in (OURS, LINEAR, NEAR)]
    said = summary(table(shares=shares, expected=expected))
    assert len(said) == 5 and said[-1] == "Of 3 more expected differences in the report: 3 shown."
    assert summary(of(make_cells(["x"], rows=[OURS]), against=OURS)) == []


def test_who_is_first_is_said_and_whether_it_is_shown():
    means = {
        row: fmean(cell.mean for cell in make_cells(["reviews"], rows=list(SHARES)) if cell.row == row)
        for row in SHARES
    }
    assert max(means, key=means.__getitem__) == OURS
    (first,) = standing(table())
    assert first == (
        f"{OURS} scores {means[OURS]:.1f} % in macro-F1 on the test set of reviews, the highest of 5 rows; that it is "
        "above every other row is not shown."
    )
    (shown,) = standing(table(shares=SHARES | {OURS: 0.95}))
    assert shown.endswith("is shown.") and table(shares=SHARES | {OURS: 0.95}).comparison.is_best(OURS, "reviews")
    own, other = standing(table(against=LINEAR))
    assert own.startswith(f"{LINEAR} scores {means[LINEAR]:.1f} %") and other.startswith(
        f"{OURS} has the highest score"
    )
    assert standing(table(("reviews", "news"), against=""))[0].endswith("every other row is shown on 0 of 2 tasks.")
    assert standing(of(make_cells(["x"], rows=[OURS]))) == []


def test_rows_of_the_same_trainings_are_no_part_of_the_claim():
    results = table(shares=SHARES | {OURS: 0.95})
    kin = [replace(each, are_kin={each.row, each.other} == {OURS, RANDOM}) for each in results.differences]
    (said,) = standing(replace(results, differences=kin))
    assert said.endswith("; that it is above every row of other trainings is shown.")
    assert "every row of other trainings" not in standing(results)[0]
    kin = [replace(each, are_kin=True) for each in results.differences]
    assert standing(replace(results, differences=kin))[0].endswith("the highest of 5 rows.")


def test_what_is_not_shown_in_one_sentence_is_not_shown_in_another():
    means = {OURS: 80.0, RANDOM: 77.7, LINEAR: 77.5, NEAR: 60.0, ALONE: 77.4}
    results = table(against=RANDOM, expected=[])
    found = [
        replace(each, mean=means[each.row] - means[each.other], error=0.1 if NEAR in (each.row, each.other) else 1.0)
        for each in results.differences
    ]
    results = replace(results, differences=[replace(each, freedom=1e6) for each in found])
    (alone,) = [each for each in results.differences if (each.row, each.other) == (OURS, RANDOM)]
    assert alone.p < 0.05 < results.comparison.whole(OURS, RANDOM).reported_p
    assert not results.comparison.is_best(OURS, "reviews"), "corrected with the others it is not shown"


def test_the_terminal_ends_in_these_sentences_and_the_notes(capsys):
    results = replace(table(), notes=["a note [red]"])
    report.print_table(results, Console(width=400))
    said = capsys.readouterr().out
    assert said.rstrip().splitlines()[-4:] == [*summary(results), "a note [red]"]
    assert "Bold" not in said
