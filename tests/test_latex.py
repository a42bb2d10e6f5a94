"""The table as LaTeX: the cells of the Markdown, escaped."""

import re

from report_cells import make_cells, make_differences, of

from tlm_ray.report.tables.grids import make_grid
from tlm_ray.report.tables.latex import escaped, table_latex

ROWS = ("[x] 50 % & more_of #1", "b \\ {c} $d$ ~^", "c|<d>")


def test_each_cell_stands_in_its_column_and_is_escaped():
    results = of(make_cells(["sciie", "a_task"], rows=ROWS), notes=["two\nlines"])
    text = table_latex(results)
    body = [line for line in text.splitlines() if line.endswith(r" \\")]
    cells = [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in body]
    grid = make_grid(results)
    assert text.count("\\begin{tabular}{l" + "r" * len(grid.columns) + "}") == text.count("\\end{tabular}") == 1
    assert [len(row) for row in cells] == [1 + len(grid.columns)] * (1 + len(grid.lines))
    assert cells[1] == ["{}" + r"[x] 50 \% \& more\_of \#1", *(escaped(cell) for cell in grid.lines[0].texts)]
    assert cells[2][0] == "{}" + r"b \textbackslash{} \{c\} \$d\$ \textasciitilde{}\textasciicircum{}"
    assert all(rule in text for rule in ("\\toprule", "\\midrule", "\\bottomrule"))
    assert re.fullmatch(r"\d+\.\d\d \$\\pm\$ \d\.\d\d", cells[1][1])


def test_what_is_no_cell_is_a_comment():
    lines = table_latex(of(make_cells(["sciie"]), notes=["two\nlines"])).splitlines()
    assert lines[0] == "% \\usepackage{booktabs}" and "% two lines" in lines
    assert all(line.startswith("%") for line in lines[: lines.index("\\toprule") - 1])


def test_differences_are_a_second_table_bold_where_they_are_shown():
    shares = {"worse": 0.5, "better": 0.9}
    results = of(make_cells(["t"], rows=tuple(shares)), make_differences(["t"], shares), against="better")
    _, second = table_latex(results).split("\n\n")
    assert second.startswith("\\begin{tabular}{lr}") and "{}better minus & t" in second
    assert re.search(r"\{\}worse & \\textbf\{\+\d+\.\d \(\d+\.\d to \d+\.\d\)\}", second)
