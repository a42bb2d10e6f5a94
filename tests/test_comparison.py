"""What a table says of the differences between its rows."""

import json
from dataclasses import replace

import pytest
from report_cells import ROWS, make_cells, make_differences, of, split_markdown
from scipy import stats

from tlm_ray import report
from tlm_ray.report.paper import TABLE_3

TASKS = ["reviews", "news"]
SHARES = {"task data only": 0.5, "TLM, random text": 0.797, "TLM, BM25 text": 0.8}
OURS = "TLM, BM25 text"


def shown(tasks, shares=SHARES, *, seeds=3, **view):
    """Return the results of rows that are right about so often."""
    cells, differences = make_cells(tasks, rows=list(shares)), make_differences(tasks, shares, seeds=seeds)
    return of(cells, differences, **{"against": OURS} | view)


def test_bold_is_what_is_shown_to_be_best():
    for shares, is_shown in ((SHARES, False), (SHARES | {"TLM, random text": 0.6}, True)):
        _, _, *rows = split_markdown(report.table_markdown(shown(TASKS, shares)))
        assert [row[1].startswith("**") for row in rows[:3]] == [False, False, is_shown]
    assert "**" not in report.table_markdown(of(make_cells(TASKS, rows=ROWS))), "nothing is shown of scores alone"


def test_a_line_for_each_other_row_and_a_sentence_for_each_claim():
    results = shown(TASKS)
    text = report.table_markdown(results)
    lines = split_markdown(text)[5:]
    assert lines[0] == ["TLM, BM25 text minus", *TASKS, "all"]
    assert [line[0] for line in lines[2:]] == list(SHARES)[:2]
    assert all(cell.startswith("**+") for cell in lines[2][1:]) and not any("**" in cell for cell in lines[3][1:])
    above, near, meaning = results.claims()
    records = results.comparison.records()
    whole = next(one for one in records if one["other"] == "task data only" and len(one["tasks"]) == 2)
    assert above == (
        f"TLM, BM25 text above task data only on 2 of 2 tasks, by the mean: {whole['mean']:+.1f}, 95 % interval "
        f"{whole['low']:.1f} to {whole['high']:.1f} (p < 0.001)."
    )
    assert "not shown, p = 0." in near and "points are needed for 80 % power" in near
    assert "95 %" in meaning and "Bold" in meaning and "corrected for all 6 reported here (Holm)" in meaning
    assert all(f"- {claim}" in text for claim in results.claims())


def test_programs_get_the_same():
    results = of(make_cells(["reviews"]), make_differences(["reviews"], SHARES), against=OURS)
    found = json.loads(report.table_json(results))["differences"]
    assert [each["other"] for each in found] == list(SHARES)[:2]
    assert all(each["low"] < each["mean"] < each["high"] and 0 <= each["p"] <= 1 for each in found)


def test_rows_of_one_training_say_that_seeds_are_left_out():
    one, three = (shown(["x"], seeds=seeds).claims()[-1] for seeds in (1, 3))
    assert one.endswith("their interval omits it. Such a difference is not tested.") and "omits" not in three


def test_rows_of_one_training_are_not_tested():
    results = shown(TASKS, SHARES | {"task data only": 0.2}, seeds=1, expected=[(OURS, "task data only")])
    assert "**" not in report.table_markdown(results) and "textbf" not in report.table_latex(results)
    whole = results.comparison.whole(OURS, "task data only")
    low, high = whole.interval
    assert results.claims()[0] == (
        f"Expected, not tested: {OURS} above task data only on 2 of 2 tasks, by the mean: {whole.mean:+.1f}, 95 % "
        f"interval over labelled rows {low:.1f} to {high:.1f} (not tested: too few trainings; give --seeds 3)."
    )
    found = json.loads(report.table_json(results))
    assert {each[name] for each in found["differences"] for name in ("p", "p_corrected", "smallest")} == {None}
    assert [each["word"] for each in found["verdicts"]] == ["not tested"]


def test_what_is_not_tested_leaves_the_family():
    tested = [each for other in "ab" for each in lead(other, "news", 0.02)]
    untested = [replace(each, counts_seeds=False) for each in lead("c", "news", 0.0001)]
    comparison = report.Comparison(row=OURS, differences=(*tested, *untested))
    assert [each["p_corrected"] for each in comparison.records()] == [pytest.approx(0.04)] * 2 + [None]
    assert [line[0].is_shown for _, line in comparison.lines] == [True, True, False]
    assert "corrected for all 2 reported here" in comparison.meaning
    assert not comparison.is_best(OURS, "news")


def test_a_row_that_lacks_a_task_has_no_mean_over_all():
    whole, part = (make_differences(tasks, SHARES) for tasks in (TASKS, TASKS[:1]))
    kept = [each for each in whole if each.other != "task data only" or each.tasks == ("reviews",)]
    lacking = report.Comparison(row=OURS, differences=tuple(kept))
    lines = split_markdown("\n".join(lacking.markdown()))
    assert lines[2][2:] == ["–", "–"] and "–" not in lines[3]
    assert [each["tasks"] for each in lacking.records()] == [["reviews"], ["reviews"], ["news"], TASKS]
    said = [of(make_cells(TASKS), differences, against=OURS).claims()[0] for differences in (kept, part)]
    assert said[0] == said[1], "on one task"


def lead(other, task, p):
    """A difference of a p."""
    mean = float(stats.norm.isf(p / 2))
    return [
        report.Difference(row=OURS, other=other, tasks=(task,), mean=mean, error=1.0, freedom=1e9),
        report.Difference(row=other, other=OURS, tasks=(task,), mean=-mean, error=1.0, freedom=1e9),
    ]


def test_bold_and_words_are_of_one_family_of_differences():
    given = [each for other in ("a", "b", "c") for each in lead(other, "news", 0.02)]
    alone, three = (report.Comparison(row=OURS, differences=tuple(own)) for own in (given[:2], given))
    assert [line[0].is_shown for _, line in alone.lines] == [True], "one difference is not corrected"
    assert [line[0].is_shown for _, line in three.lines] == [False] * 3
    assert [each["p_corrected"] for each in three.records()] == pytest.approx([0.06] * 3)
    assert [each["p"] for each in three.records()] == pytest.approx([0.02] * 3)
    results = of(make_cells(["news"], rows=[OURS, "a", "b", "c"]), given, against=OURS, expected=[("a", OURS)])
    assert "**+" not in "\n".join(results.comparison.markdown())
    assert results.verdicts[0].word == "not shown", "the same difference from the other side, counted once"
    assert all("not shown, p = 0.060" in each for each in results.claims()[:-1])
    assert "corrected for all 3 reported here" in results.comparison.meaning


def test_pairs_that_were_expected_are_of_the_family_too():
    pair = [replace(each, row={OURS: "x"}.get(each.row, each.row), other={OURS: "x"}.get(each.other, each.other))
            for each in lead("a", "news", 0.03)]  # fmt: skip
    given = [*lead("a", "news", 0.03), *pair]
    results = of(make_cells(["news"], rows=[OURS, "a", "x"]), given, against=OURS, expected=[("x", "a")])
    assert [each.word for each in results.verdicts] == ["not shown"]
    assert not results.comparison.lines[0][1][0].is_shown


def test_a_table_of_one_row_claims_nothing():
    results = shown(["x"], {"only": 0.5}, against="only")
    assert results.claims() == [] and results.comparison.records() == []
    assert report.table_markdown(results) == report.table_markdown(of(results.cells))


def test_what_was_expected_is_judged_and_stands_beside_the_papers():
    small, large, random = "BM25, BERT's corpus", "BM25, RoBERTa's corpus", "random, BERT's corpus"
    shares = {random: 0.8, small: 0.5, large: 0.801, OURS: 0.5}
    expected = [(small, random), (large, random), (large, small), (large, OURS)]
    results = shown(TASKS, shares, against=large, paper=TABLE_3, expected=expected)
    assert [each.word for each in results.verdicts] == ["the reverse is shown", "not shown", "shown", "shown"]
    # table 3: BM25 over random from BERT's corpus +0.75, +2.27, +2.99, from the larger one +0.50, +1.34, +1.35 more
    assert [len(each.reported) for each in results.verdicts] == [3, 3, 3, 0]
    claims = results.claims()
    assert len(claims) == len(expected) + 1, "each pair is told once"
    reverse = next(claim for claim in claims if claim.startswith("Expected, the reverse is shown: "))
    assert f"{small} below {random} on 2 of 2 tasks" in reverse
    assert reverse.endswith("Table 3 of the paper: +2.0, above on 3 of 3 tasks.")
    records = json.loads(report.table_json(results))["verdicts"]
    assert [record["word"] for record in records] == [each.word for each in results.verdicts]
    assert [len(record["reported"]) for record in records] == [3, 3, 3, 0]
    whole = results.verdicts[2].whole
    told = (whole.mean, *whole.interval, whole.p, whole.reported_p, whole.smallest)
    assert [records[2][name] for name in ("mean", "low", "high", "p", "p_corrected", "smallest")] == list(told)
