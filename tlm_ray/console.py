"""The console that a run prints its progress on."""

from rich.console import Console

console = Console(stderr=False, highlight=False, soft_wrap=True)
