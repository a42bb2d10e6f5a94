"""All metrics of tlm_ray, which Ray's agents export to Prometheus.

Without Ray they do nothing, and errors of Ray are ignored, because monitoring must never fail a run. Tags have low
cardinality (kinds of stages, work, losses), never fingerprints: a node keeps the counters of all its processes for its
lifetime. Ray adds the tag WorkerId per process.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

PREFIX = "tlm_"
AGAIN_S = 1.0  # Ray drops a gauge that was not set for two reports, 20 s


class Metric:
    """A metric with its name, description and tags; created in Ray on first use."""

    kind = ""  # Ray's class

    def __init__(self, name: str, words: str, *tags: str, **options: Any):
        self.name, self.words, self.tags, self.options = PREFIX + name, words, tags, options

    @cached_property
    def _made(self) -> Any:
        from ray.util import metrics

        return getattr(metrics, self.kind)(self.name, self.words, tag_keys=self.tags, **self.options)

    def _tell(self, method: str, value: float, tags: Mapping[str, str]) -> None:
        if _connected():
            with contextlib.suppress(Exception):
                getattr(self._made, method)(float(value), tags=dict(tags))


class Counter(Metric):
    """A counter, which only grows; Prometheus computes rates from it."""

    kind = "Counter"

    def add(self, amount: float = 1, **tags: str) -> None:
        """Add an amount; 0 or less changes nothing."""
        if amount > 0:
            self._tell("inc", amount, tags)


class Gauge(Metric):
    """A gauge that expires 20 s after it was set."""

    kind = "Gauge"

    def set(self, value: float, **tags: str) -> None:
        """Set the value of some tags."""
        self._tell("set", value, tags)


class Level(Gauge):
    """A gauge that keeps its value until it is set again or its process ends."""

    def __init__(self, name: str, words: str, *tags: str):
        super().__init__(name, words, *tags)
        self.values: dict[tuple[tuple[str, str], ...], float] = {}

    def set(self, value: float, **tags: str) -> None:
        """Set the value of some tags."""
        self.values[tuple(tags.items())] = value
        super().set(value, **tags)
        if _connected():
            _hold()

    def again(self) -> None:
        """Set all values again, before Ray drops them."""
        for tags, value in list(self.values.items()):
            super().set(value, **dict(tags))


class Histogram(Metric):
    """A histogram: counts of values below each boundary."""

    kind = "Histogram"

    def __init__(self, name: str, words: str, *tags: str, boundaries: Sequence[float]):
        super().__init__(name, words, *tags, boundaries=list(boundaries))

    def observe(self, value: float, **tags: str) -> None:
        """Count a value."""
        self._tell("observe", value, tags)


def _connected() -> bool:
    """Return whether this process is connected to Ray, without importing Ray."""
    return getattr(sys.modules.get("ray"), "is_initialized", bool)()


@cache
def _hold() -> None:
    """Refresh the gauges that keep their values, for the life of the process."""
    threading.Thread(target=_set_again, daemon=True, name="tlm_ray metrics").start()


def _set_again() -> None:
    while True:
        time.sleep(AGAIN_S)
        for metric in ALL:
            if isinstance(metric, Level):
                metric.again()


# Stages, reported by the driver, or by the trial of a sweep. stage: the kind of stage; lane: data, train, plain or
# sweep; process: driver or trial
STAGES = Counter("stages", "Stages that ended: found (reused), made or failed.", "stage", "outcome")
STAGE_SECONDS = Histogram(
    "stage_seconds",
    "Seconds to make a stage.",
    "stage",
    boundaries=(1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
)
STAGES_WAITING = Level("stages_waiting", "Stages that wait to be made.", "lane")
STAGES_RUNNING = Level("stages_running", "Stages that are running, and sweeps.", "lane", "stage", "process")

# Parallel work, reported by its caller. work: its title in the progress lines, such as search
ITEMS = Counter("items", "Finished items of parallel work.", "work")
PASSAGES = Counter("passages", "Passages of the finished items.", "work")
ITEMS_LOST = Counter("items_lost", "Items retried because their process or node died.", "work")
ITEMS_WAITING = Level("items_waiting", "Items waiting for a worker.", "work")
ITEMS_RUNNING = Level("items_running", "Items running on a worker.", "work")

# Trainings, reported by each one's first worker whenever losses are logged. stage: stage_one or stage_two
TOKENS = Counter("training_tokens", "Tokens trained on by all workers, without padding.", "stage")
LOSS = Gauge("training_loss", "Mean loss since the last log.", "stage", "loss")
LOSS_RISE = Gauge("training_loss_rise", "Mean loss since the last log, minus this training's lowest.", "stage", "loss")
UTILISATION = Gauge(
    "training_utilisation",
    "Utilisation: operations on real tokens per second, as a share of a matrix product's rate.",
    "stage",
)
RESUMED = Counter("trainings_resumed", "Trainings resumed from a checkpoint.", "stage")

# A service. status: of HTTP
SERVED_TEXTS = Counter("served_texts", "Texts that replicas predicted.")
SERVED_REQUESTS = Counter("served_requests", "Requests that the door answered.", "status")
SERVED_SECONDS = Histogram(
    "served_seconds",
    "Seconds from a request's arrival to its answer.",
    boundaries=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
