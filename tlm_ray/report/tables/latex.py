"""Write the results table as LaTeX: two tabulars that need the package booktabs."""

from collections.abc import Sequence

from tlm_ray.report.formats import ABSENT
from tlm_ray.report.statistics.comparison import difference_text
from tlm_ray.report.tables.exports import remarks
from tlm_ray.report.tables.grids import make_grid
from tlm_ray.report.tables.results import ResultsData

CHARACTERS = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "†": r"\dag{}",
        "–": "--",
        "²": "$^2$",
        "\n": " ",
        "\r": " ",
    }
)


def table_latex(results: ResultsData) -> str:
    r"""Return the table, then the differences of the view's row from the others, bold as in `table_markdown`.

    It needs \usepackage{booktabs}; comments before it explain the numbers.
    """
    grid, comparison = make_grid(results), results.comparison
    own = [[line.name, *map(_cell, line.texts, line.best)] for line in grid.lines if not line.is_reported]
    reported = [[line.name, *map(escaped, line.texts)] for line in grid.lines if line.is_reported]
    comments = [f"% {' '.join(note.split())}" for note in (*results.claims(), *remarks(results), *results.notes)]
    parts = ["% \\usepackage{booktabs}", *comments, *tabular(["", *grid.columns], [own, reported])]
    if comparison.leads:
        lines = [
            [other, *(ABSENT if each is None else _cell(difference_text(each), each.is_shown) for each in found)]
            for other, found in comparison.lines
        ]
        parts += ["", *tabular([f"{comparison.row} minus", *comparison.columns], [lines])]
    return "\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Escape a text for LaTeX."""
    return text.translate(CHARACTERS)


def _cell(text: str, is_bold: bool) -> str:
    return f"\\textbf{{{escaped(text)}}}" if is_bold else escaped(text)


def tabular(columns: Sequence[str], groups: Sequence[Sequence[Sequence[str]]]) -> list[str]:
    """Return a tabular's lines; a row's first cell is text, the others are LaTeX; a rule separates groups of rows."""
    begin = f"\\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    lines = [begin, "\\toprule", _row(columns[0], [escaped(column) for column in columns[1:]])]
    for group in filter(None, groups):
        lines += ["\\midrule", *(_row(name, cells) for name, *cells in group)]
    return [*lines, "\\bottomrule", "\\end{tabular}"]


def _row(name: str, cells: Sequence[str]) -> str:
    # {} because a name that starts with [ or * would be taken as an option of the preceding command
    return " & ".join([f"{{}}{escaped(name)}", *cells]) + r" \\"
