"""Print the results table in a terminal, split to fit its width."""

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tlm_ray.report.tables.grids import PRETRAINED_NOTE, Grid, make_grid
from tlm_ray.report.tables.results import ResultsData
from tlm_ray.report.tables.sentences import standing, summary


def print_table(results: ResultsData, console: Console) -> None:
    """Print the table and its summary; columns beyond the console's width follow in further tables."""
    grid = make_grid(results)
    for columns in _column_groups(grid, console.width):
        console.print(_part(grid, columns))
        console.print()
    if any(cell.pretrained for cell in results.cells):
        console.print(PRETRAINED_NOTE, highlight=False)
    for line in (*standing(results), *summary(results), *results.notes):
        console.print(Text(line))  # no markup, because a row may be called [red]


def _column_groups(grid: Grid, width: int) -> list[list[int]]:
    """Split the columns so that each group, with the row names before it, fits the width."""
    padding = 3  # a space on both sides of each column, and one for rounding at the edges
    room = width - padding - max(cell_len(line.name) for line in grid.lines)
    groups: list[list[int]] = []
    used = room + 1
    for column, name in enumerate(grid.columns):
        texts = [*_header(name).split("\n"), *(line.texts[column] for line in grid.lines)]
        needed = max(map(cell_len, texts)) + padding
        if used + needed > room:
            groups.append([])
            used = 0
        groups[-1].append(column)
        used += needed
    return groups


def _header(column: str) -> str:
    return column.replace(" (", "\n(")


def _part(grid: Grid, columns: list[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in columns:
        header = Text(_header(grid.columns[column]))  # no markup, because a task may be called [red]
        table.add_column(header, justify="right", no_wrap=True)
    own = [line for line in grid.lines if not line.is_reported]
    for line in grid.lines:
        base = "dim" if line.is_reported else ""
        texts = [Text(line.texts[c], style="bold" if line.best[c] else base) for c in columns]
        is_last_own = line is own[-1] and len(own) < len(grid.lines)
        table.add_row(Text(line.name, style=base), *texts, end_section=is_last_own)
    return table
