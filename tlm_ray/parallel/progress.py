"""Report the progress of parallel work: metrics, events and printed lines."""

import time
from collections.abc import Sequence
from typing import Any

from tlm_ray import events, metrics, ray_private
from tlm_ray.console import console

REPORT_EVERY_S = 5.0


def attempts(title: str) -> int:
    """Return how often the current task was lost before, and count the last time: the driver learns of it later."""
    lost = ray_private.attempt()
    if lost:
        metrics.ITEMS_LOST.add(work=title)
    return lost


class Progress:
    """Counts finished items, updates the metrics, and prints a line every few seconds."""

    def __init__(self, title: str, items: Sequence[dict[str, Any]], size: str, workers: int):
        self.title, self.size, self.workers = title, size, max(1, workers)
        self.sizes = [item[size] if size else 1 for item in items]
        self.parts = self.work = 0
        self.started = self.reported = time.monotonic()
        self._report()

    def _report(self) -> None:
        """Report how many items wait and run, if each worker that the user asked for has one."""
        left = len(self.sizes) - self.parts
        metrics.ITEMS_WAITING.set(max(0, left - self.workers), work=self.title)
        metrics.ITEMS_RUNNING.set(min(left, self.workers), work=self.title)

    def lost(self, place: int) -> None:
        """Tell that the item at index `place` was retried; the metric was counted when the retry began (`attempts`)."""
        events.warn("item retried", work=self.title, part=place + 1, parts=len(self.sizes))

    def end(self) -> None:
        """Report that no item is running any more, whether all are done or abandoned."""
        self.parts = len(self.sizes)
        self._report()

    def done(self, place: int) -> None:
        """Count the item at index `place` as done."""
        self.parts, self.work = self.parts + 1, self.work + self.sizes[place]
        self._report()
        metrics.ITEMS.add(work=self.title)
        if self.size == "passages":
            metrics.PASSAGES.add(self.sizes[place], work=self.title)
        now = time.monotonic()
        if now - self.reported > REPORT_EVERY_S and self.parts < len(self.sizes):
            rate = self.work / (now - self.started)
            pace = f"{rate:,.0f} {self.size}/s, " if self.size else ""
            left = (sum(self.sizes) - self.work) / rate
            parts = f"{self.parts} of {len(self.sizes)} parts"
            console.print(f"  {self.title}: {parts}, {pace}about {left:.0f} s left", style="dim")
            self.reported = now
