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
        self.made_of, self.worker = "", None
        self.timer: threading.Timer | None = None

    def get(self, made_of: ray.ObjectRef) -> Any:
        """Return the cached worker of a class and its arguments (`ray.put` references); created if not cached."""
        if self.timer:
            self.timer.cancel()
        worker = self.worker if self.made_of == made_of.hex() else None  # the timer may have run in this moment
        if worker is None:
            self.made_of, self.worker = "", None  # before there is another
            keep_memory()
            kind, arguments = ray.get(made_of)
            worker = kind(*(ray.get(one) if isinstance(one, ray.ObjectRef) else one for one in arguments))
            self.made_of, self.worker = made_of.hex(), worker
        return worker

    def forget_later(self) -> None:
        """Evict the worker after a delay, unless it is used again before."""
        self.timer = threading.Timer(KEPT_S, self.forget)
        self.timer.daemon = True
        self.timer.start()

    def forget(self) -> None:
        """Evict the worker and free its memory, which training processes may need."""
        self.made_of, self.worker = "", None
        gc.collect()
        give_back_memory()


held = Held()  # of this process
