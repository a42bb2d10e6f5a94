"""The console that a run prints its progress on."""

from functools import cache

from rich.console import Console

console = Console(stderr=False, highlight=False, soft_wrap=True)


@cache
def print_once(line: str) -> None:
    """Print a line that rows, tasks and trials would repeat, once per process."""
    console.print(line, markup=False)
