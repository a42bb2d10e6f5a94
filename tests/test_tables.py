"""Tables for people and programs: what they hold reads back, and no text of a user's breaks them."""

import csv
import io
import json
import math
import statistics
from dataclasses import replace

import pytest
from report_cells import PARAMETERS, ROWS, make_cells, make_trials, of, split_markdown
from rich.console import Console

from tlm_ray import report
from tlm_ray.report.paper import TABLE_2, TABLE_4, TASKS
from tlm_ray.report.sweeps import sort_trials, sweep_csv, sweep_json, sweep_markdown
from tlm_ray.report.tables.grids import size_text, time_text


@pytest.mark.parametrize("flops", [0, 1, 999.9, 2.74e18, 1.5361e21, 9.999e9])
def test_human_reads_back_to_three_digits(flops):
    text = report.human(flops)
    assert float(text) == pytest.approx(flops, rel=0.005)
    assert "+" not in text


def test_sizes_and_times_read_as_people_write_them():
    assert [size_text(n) for n in (0, 999, 999_999, 1.21e9, 16e9, 2e15)] == [
        *("0 B", "999 B", "1 MB", "1.21 GB", "16 GB", "2 PB"),
    ]
    assert [time_text(s) for s in (2.5, 90, 5400, 172_800)] == [
        "2.5 s",
        "1.5 min",
        "1.5 h",
        "2.0 d",
    ]


def test_cell_statistics_are_those_of_the_standard_library():
    cell = make_cells(["sciie"])[0]
    assert cell.mean == statistics.fmean(cell.scores)
    assert cell.std == statistics.stdev(cell.scores)
    assert make_cells(["sciie"], seeds=1)[0].std == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": (101.0,)}, "score 101"),
        ({"scores": (math.nan,)}, "score nan"),
        ({"scores": (), "dev_scores": ()}, "at least one"),
        ({"dev_scores": (1.0, 2.0)}, "1 scores and 2 dev_scores"),
        ({"flops": math.inf}, "flops is inf"),
    ],
)
def test_a_cell_refuses_what_cannot_be_printed(change, message):
    fields = {"row": "r", "task": "t", "metric": "accuracy", "scores": (1.0,), "dev_scores": (1.0,)}
    costs = {"flops": 1.0, "data_bytes": 1, "wall_s": 1.0}
    with pytest.raises(ValueError, match=f"'r' on 't'.*{message}"):
        report.Cell(**(fields | costs | change))


def test_cells_that_make_no_table_are_refused():
    cells = make_cells(["sciie"])
    with pytest.raises(ValueError, match="occurs twice"):
        report.table_markdown(of([*cells, cells[0]]))
    mixed = report.Cell(**(vars(cells[0]) | {"row": "other", "metric": "accuracy"}))
    with pytest.raises(ValueError, match=r"'accuracy'.*'macro_f1'"):
        report.table_csv(of([*cells, mixed]))
    with pytest.raises(ValueError, match="at least one cell"):
        report.table_json(of([]))


def test_csv_reads_back_to_the_cells():
    cells = make_cells(["sciie", "docstrings"])
    lines = list(csv.DictReader(io.StringIO(report.table_csv(of(cells)))))
    assert [(line["row"], line["task"]) for line in lines] == [(c.row, c.task) for c in cells]
    for line, cell in zip(lines, cells, strict=True):
        assert tuple(map(float, line["scores"].split())) == cell.scores
        assert float(line["mean"]) == cell.mean
        assert float(line["std"]) == cell.std
        assert int(line["data_bytes"]) == cell.data_bytes
        assert float(line["flops_counted"]) == cell.flops_counted != float(line["flops"])
    assert not [name for name in lines[0] if "dev" in name]  # test and dev never in one table


def test_json_reads_back_to_the_cells_and_holds_the_reported_rows():
    cells = make_cells(["sciie", "docstrings"])
    document = json.loads(report.table_json(of(cells)))
    for record, cell in zip(document["cells"], cells, strict=True):
        assert record["scores"] == list(cell.scores)
        assert record["dev_scores"] == list(cell.dev_scores)
        assert {key: record[key] for key in ("row", "task", "metric", "flops", "flops_counted", "wall_s")} == {
            key: getattr(cell, key) for key in ("row", "task", "metric", "flops", "flops_counted", "wall_s")
        }
        assert record["std"] == statistics.stdev(cell.scores)
    assert [record["row"] for record in document["reported"]] == list(TABLE_2.averages)


def test_markdown_has_our_rows_then_the_papers():
    cells = make_cells(["sciie", "docstrings"])
    text = report.table_markdown(of(cells, notes=["K = 20."]))
    header, _, *rows = split_markdown(text)
    assert header[1:3] == ["sciie (macro-F1)", "docstrings (macro-F1)"]
    assert header[3:] == ["avg", "FLOPs", "FLOPs counted", "data", "time"]
    assert len({len(row) for row in (header, *rows)}) == 1
    names = [row[0] for row in rows]
    assert names == [*ROWS, *(f"{name} (reported)" for name in TABLE_2.averages)]
    best = cells[4]
    assert rows[2][1] == f"{best.mean:.2f} ± {best.std:.2f}"
    assert rows[2][3] == f"{statistics.fmean(c.mean for c in cells[4:]):.2f}"
    assert rows[3][2:4] == ["–", "–"]  # the paper has no such task, so no average either
    assert text.endswith("- K = 20.\n")


def test_counted_operations_stand_beside_the_papers_or_nowhere():
    cells = make_cells(["docstrings"], flops=1e15)
    unknown = report.Cell(**(vars(cells[0]) | {"flops_counted": 0.0}))
    _, _, *rows = split_markdown(report.table_markdown(of([unknown, *cells[1:]])))
    assert [row[3:5] for row in rows] == [["1.00E15", "–"], ["2.00E15", "2.20E15"], ["3.00E15", "3.30E15"]]
    assert json.loads(report.table_json(of([unknown])))["cells"][0]["flops_counted"] is None
    assert next(csv.DictReader(io.StringIO(report.table_csv(of([unknown])))))["flops_counted"] == ""


def test_a_table_without_the_papers_tasks_or_metric_reports_nothing():
    cells = make_cells(["docstrings"], seeds=1)
    assert "reported" not in report.table_markdown(of(cells))
    assert "±" not in report.table_markdown(of(cells))
    other_metric = report.Cell(**(vars(cells[0]) | {"task": "sciie", "metric": "accuracy"}))
    assert json.loads(report.table_json(of([other_metric])))["reported"] == []


def test_the_papers_averages_appear_where_all_its_tasks_do():
    rows = split_markdown(report.table_markdown(of(make_cells(TASKS))))
    averages = {row[0]: row[9] for row in rows}
    assert averages["BERT-Base (reported)"] == "83.46"
    assert averages["TLM small (reported)"] == "83.78"


def test_a_row_that_lacks_a_task_has_no_average():
    cells = make_cells(["a", "b"])
    rows = split_markdown(report.table_markdown(of([cells[0], *cells[2:]])))
    assert [row[0] for row in rows[2:]] == list(ROWS)
    assert rows[2][2] == "–"
    assert rows[2][3] == "–"


@pytest.mark.parametrize(("width", "seeds"), [(60, 3), (74, 1), (80, 1), (100, 3)])
@pytest.mark.parametrize("tasks", [("topics",), ("sciie", "docstrings"), TASKS])
def test_the_terminal_table_fits_and_shows_every_score(tasks, width, seeds):
    console = Console(width=width, file=io.StringIO())
    cells = make_cells(tasks, seeds=seeds)
    report.print_table(of(cells), console)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    for cell in cells:
        assert (f"{cell.mean:.2f} ± {cell.std:.2f}" if seeds > 1 else f"{cell.mean:.2f}") in shown
        assert cell.row in shown


def test_sweep_tables_agree():
    trials = sort_trials(make_trials(), PARAMETERS)
    ordered = json.loads(sweep_json(trials))["trials"]
    lines = list(csv.DictReader(io.StringIO(sweep_csv(trials))))
    assert [float(line["dev"]) for line in lines] == [trial["dev"] for trial in ordered]
    _, _, *rows = split_markdown(sweep_markdown(trials))
    assert [row[5] for row in rows] == [f"{trial['dev']:.2f}" for trial in ordered]


NASTY = '=HYPERLINK("http://x"), [red]a|b'


def test_no_name_of_a_users_breaks_a_table_or_is_run_by_a_spreadsheet():
    cells = [report.Cell(**(vars(cell) | {"task": NASTY, "row": f"-{cell.row}"})) for cell in make_cells(["sciie"])]
    header, _, *rows = split_markdown(report.table_markdown(of(cells)).replace("\\|", "/"))
    assert header[1] == NASTY.replace("|", "/") + " (macro-F1)" and {len(row) for row in rows} == {len(header)}
    records = list(csv.DictReader(io.StringIO(report.table_csv(of(cells)))))
    assert {record["task"] for record in records} == {f"'{NASTY}"}
    assert all(record["row"].startswith("'-") for record in records)
    console = Console(width=150, file=io.StringIO())
    report.print_table(of(cells), console)
    assert "[red]a|b" in console.file.getvalue()
    assert json.loads(report.table_json(of(cells)))["cells"][0]["task"] == NASTY


def test_negative_numbers_of_a_csv_stay_numbers():
    cell = report.Cell(**(vars(make_cells(["cola"])[0]) | {"metric": "matthews", "scores": (-3.5, -1.0, 2.0)}))
    (record,) = csv.DictReader(io.StringIO(report.table_csv(of([cell]))))
    assert float(record["mean"]) == statistics.fmean(cell.scores) < 0
    assert tuple(map(float, record["scores"].split())) == cell.scores


@pytest.mark.parametrize(
    ("metric", "score", "fits"),
    [("accuracy", -1.0, False), ("matthews", -1.0, True), ("pearson_spearman", -1.0, True), ("my_own", -170.0, True),
     ("my_own", -math.inf, False), ("my_own", math.nan, False), ("my_own", 100.1, False)],
)  # fmt: skip
def test_a_score_lies_in_the_range_of_its_metric(metric, score, fits):
    fields = vars(make_cells(["t"], seeds=1)[0]) | {"metric": metric, "scores": (score,)}
    if fits:
        assert report.Cell(**fields).mean == score
    else:
        with pytest.raises(ValueError, match=f"score {score}; give percent"):
            report.Cell(**fields)


def test_a_pretrained_row_says_that_its_costs_leave_the_pretraining_out():
    tuned = report.Cell(**(vars(make_cells(["docstrings"])[0]) | {"row": "BERT", "flops": 1e12, "pretrained": True}))
    cells = [*make_cells(["docstrings"]), tuned]
    text = report.table_markdown(of(cells))
    *_, own, bert = split_markdown(text)
    assert bert[3:] == ["1.00E12 †", "1.10E15 †", "45 MB †", "10.0 min †"] and "†" not in "".join(own)
    assert "- † fine-tuning only, without pretraining" in text
    assert "†" not in report.table_markdown(of(cells[:-1]))
    assert [cell["pretrained"] for cell in json.loads(report.table_json(of(cells)))["cells"]] == [False] * 3 + [True]
    console = Console(width=150, file=io.StringIO())
    report.print_table(of(cells), console)
    assert "1.00E12 †" in console.file.getvalue() and "† fine-tuning only" in console.file.getvalue()
    known = [*cells[:-1], replace(tuned, pretraining_flops=2.79e19)]
    assert split_markdown(report.table_markdown(of(known)))[-1][3] == "1.00E12 † + 2.79E19 (reported)"
    assert json.loads(report.table_json(of(known)))["cells"][-1]["pretraining_flops"] == 2.79e19


def test_development_scores_are_a_table_of_their_own():
    cells = [replace(cell, split="dev", dev_scores=()) for cell in make_cells(["sciie"])]
    text = report.table_markdown(of(cells, split="dev", paper=TABLE_4))
    assert "Development scores in percent" in text and "Test scores" not in text
    _, _, *rows = split_markdown(text)
    assert rows[3] == ["task data only (reported)", "51.23 ± 1.13", "51.23", *"––––"]
    assert [row[0] for row in rows[4:]] == [f"K = {k} (reported)" for k in (50, 500, 5000)]
    assert "Table 4 of Yao et al." in text and "Their FLOPs" not in text
    assert "(reported)" not in report.table_markdown(of(cells, split="dev")), "table 2 is of test sets"
    assert {record["split"] for record in json.loads(report.table_json(of(cells)))["cells"]} == {"dev"}
    with pytest.raises(ValueError, match="cells of dev and test"):
        of([*cells, *make_cells(["news"])])
    with pytest.raises(ValueError, match="split 'train'; allowed are test, dev"):
        replace(cells[0], split="train")
