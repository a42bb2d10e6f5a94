"""What a process of the cluster has made for its items: kept for the next one, and let go when none comes."""

import gc
import threading
from typing import Any

import ray

from tlm_ray.process import give_back_memory, keep_memory

KEPT_S = 10.0  # after the last item


class Held:
    """The worker that a process has made last."""

    def __init__(self) -> None:
        self.made_of, self.worker = "", None
        self.timer: threading.Timer | None = None

    def get(self, made_of: ray.ObjectRef) -> Any:
        """Return the worker of a class and its arguments, which `ray.put` references stand for; made if not held."""
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
        """Let go of what is held, unless it is asked for again soon."""
        self.timer = threading.Timer(KEPT_S, self.forget)
        self.timer.daemon = True
        self.timer.start()

    def forget(self) -> None:
        """Let go of what is held, and of its memory: processes of trainings may be waiting for it."""
        self.made_of, self.worker = "", None
        gc.collect()
        give_back_memory()


held = Held()  # of this process
