"""The console on which a run says what it does."""

from rich.console import Console

console = Console(stderr=False, highlight=False, soft_wrap=True)
