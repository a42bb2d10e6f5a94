"""A cache, one per process, of the worker object; evicted 10 s after the last item."""

import gc
import threading
from typing import Any

import ray

from tlm_ray.process import give_back_memory, keep_memory

KEPT_S = 10.0  # after the last item


class Held:
    """The cached worker object of a process."""

    def __init__(self) -> None:
        self.made_of = ""
        self.kept: Any = None
        self.timer: threading.Timer | None = None

    def get(self, made_of: ray.ObjectRef) -> tuple[Any, Any]:
        """Return the cached worker and items of a work; created if not cached.

        made_of: a reference to the worker's class, its arguments (which may be references too), and the items.
        """
        if self.timer:
            self.timer.cancel()
        kept = self.kept if self.made_of == made_of.hex() else None  # the timer may have run in this moment
        if kept is None:
            self.made_of, self.kept = "", None  # before there is another
            keep_memory()
            kind, arguments, items = ray.get(made_of)
            kept = kind(*(ray.get(one) if isinstance(one, ray.ObjectRef) else one for one in arguments)), items
            self.made_of, self.kept = made_of.hex(), kept
        return kept

    def forget_later(self) -> None:
        """Evict the worker after a delay, unless it is used again before."""
        self.timer = threading.Timer(KEPT_S, self.forget)
        self.timer.daemon = True
        self.timer.start()

    def forget(self) -> None:
        """Evict the worker and free its memory, which training processes may need."""
        self.made_of, self.kept = "", None
        gc.collect()
        give_back_memory()


held = Held()  # of this process
