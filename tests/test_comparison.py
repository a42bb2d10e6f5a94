"""What a table says of the differences between its rows."""

import json

from report_cells import ROWS, make_cells, make_comparison, split_markdown
from rich.console import Console

from tlm_ray import report

TASKS = ["reviews", "news"]
SHARES = {"task data only": 0.5, "TLM, random text": 0.797, "TLM, BM25 text": 0.8}
OURS = "TLM, BM25 text"


def test_bold_is_what_is_shown_to_be_best():
    cells = make_cells(TASKS, rows=ROWS)
    for shares, is_shown in ((SHARES, False), (SHARES | {"TLM, random text": 0.6}, True)):
        comparison = make_comparison(TASKS, shares, row=OURS)
        _, _, *rows = split_markdown(report.table_markdown(cells, comparison))
        assert [row[1].startswith("**") for row in rows[:3]] == [False, False, is_shown]
    assert "**" not in report.table_markdown(cells), "nothing is shown of scores alone"


def test_a_line_for_each_other_row_and_a_sentence_for_each_claim():
    comparison = make_comparison(TASKS, SHARES, row=OURS)
    text = report.table_markdown(make_cells(TASKS, rows=ROWS), comparison)
    lines = split_markdown(text)[5:]
    assert lines[0] == ["TLM, BM25 text less", *TASKS, "all"]
    assert [line[0] for line in lines[2:]] == list(SHARES)[:2]
    assert all(cell.startswith("**+") for cell in lines[2][1:]) and not any("**" in cell for cell in lines[3][1:])
    above, near, meaning = comparison.claims()
    whole = next(one for one in comparison.records() if one["other"] == "task data only" and len(one["tasks"]) == 2)
    assert above == (
        f"TLM, BM25 text above task data only on 2 of 2 tasks, by the mean: {whole['mean']:+.1f}, 95 % interval "
        f"{whole['low']:.1f} to {whole['high']:.1f} (p < 0.001)."
    )
    assert (
        "not shown, p = 0." in near
        and "would have been, four times in five" in near
        and "95 %" in meaning
        and "Bold" in meaning
    )
    assert all(f"- {claim}" in text for claim in comparison.claims())


def test_programs_and_the_terminal_get_the_same(capsys):
    comparison = make_comparison(["reviews"], SHARES, row=OURS)
    cells = make_cells(["reviews"], rows=ROWS)
    found = json.loads(report.table_json(cells, comparison))["differences"]
    assert [each["other"] for each in found] == list(SHARES)[:2]
    assert all(each["low"] < each["mean"] < each["high"] and 0 <= each["p"] <= 1 for each in found)
    report.print_table(cells, Console(width=400), comparison, notes=["a note [red]"])
    said = capsys.readouterr().out
    assert all(claim in said for claim in comparison.claims()) and "a note [red]" in said


def test_rows_of_one_training_say_that_seeds_are_left_out():
    one, three = (make_comparison(["x"], SHARES, row=OURS, seeds=seeds).claims()[-1] for seeds in (1, 3))
    left_out = "Where two rows have too few trainings to see the spread over seeds by, their interval leaves it out."
    assert one.endswith(left_out) and left_out not in three


def test_a_row_that_lacks_a_task_has_no_mean_over_all():
    whole, part = (make_comparison(tasks, SHARES, row=OURS) for tasks in (TASKS, TASKS[:1]))
    kept = [each for each in whole.differences if each.other != "task data only" or each.tasks == ("reviews",)]
    lacking = report.Comparison(row=OURS, differences=tuple(kept))
    lines = split_markdown("\n".join(lacking.markdown()))
    assert lines[2][2:] == ["–", "–"] and "–" not in lines[3]
    assert [each["tasks"] for each in lacking.records()] == [["reviews"], ["reviews"], ["news"], TASKS]
    assert lacking.claims()[0] == part.claims()[0], "on one task"


def test_a_table_of_one_row_claims_nothing():
    comparison = make_comparison(["x"], {"only": 0.5}, row="only")
    assert comparison.claims() == [] and comparison.records() == []
    cells = make_cells(["x"], rows=["only"])
    assert report.table_markdown(cells, comparison) == report.table_markdown(cells)
