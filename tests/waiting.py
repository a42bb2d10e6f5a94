"""Waiting for what another process or thread does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], *, timeout_s: float = 120.0, every_s: float = 0.2) -> T:
    """Return the first true value of a condition; AssertionError if there is none in time."""
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < end, f"{getattr(condition, '__name__', condition)}: not within {timeout_s:g} s"
        time.sleep(every_s)
    return value
