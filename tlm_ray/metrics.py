"""What a platform team watches: all metrics of tlm_ray, which Ray's own agents export to Prometheus.

Where no Ray is connected they do nothing, and what Ray refuses is dropped: whoever looks on must not cost a run. Tags
are kinds (of stages, of work, of losses), never fingerprints: a node keeps the counters of all processes that it had
for as long as it lives, and Ray tells processes apart by a tag of its own, WorkerId.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

PREFIX = "tlm_"
AGAIN_S = 1.0  # Ray drops a gauge that was not set for two of its reports, 20 s


class Metric:
    """A metric by its name, what it tells, and its tags; made in Ray when it is first used."""

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
    """What only grows; Prometheus makes rates of it."""

    kind = "Counter"

    def add(self, amount: float = 1, **tags: str) -> None:
        """Count an amount above 0; what is 0 or less changes nothing."""
        if amount > 0:
            self._tell("inc", amount, tags)


class Gauge(Metric):
    """A value as it was when it was set, for 20 s."""

    kind = "Gauge"

    def set(self, value: float, **tags: str) -> None:
        """Set the value of some tags."""
        self._tell("set", value, tags)


class Level(Gauge):
    """A gauge that holds until it is set again, or its process ends."""

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
        """Set all values again."""
        for tags, value in list(self.values.items()):
            super().set(value, **dict(tags))


class Histogram(Metric):
    """How often a value lay below each of some boundaries."""

    kind = "Histogram"

    def __init__(self, name: str, words: str, *tags: str, boundaries: Sequence[float]):
        super().__init__(name, words, *tags, boundaries=list(boundaries))

    def observe(self, value: float, **tags: str) -> None:
        """Count a value."""
        self._tell("observe", value, tags)


def _connected() -> bool:
    """Say whether this process has a Ray; one that never imported it has none."""
    return getattr(sys.modules.get("ray"), "is_initialized", bool)()


@cache
def _hold() -> None:
    """Set levels again for as long as the process lives."""
    threading.Thread(target=_set_again, daemon=True, name="tlm_ray metrics").start()


def _set_again() -> None:
    while True:
        time.sleep(AGAIN_S)
        for metric in ALL:
            if isinstance(metric, Level):
                metric.again()


# Stages, told by the driver. stage: the room that it is made in; lane: data or train
STAGES = Counter("stages", "Stages that ended: found (made before), made or failed.", "stage", "outcome")
STAGE_SECONDS = Histogram(
    "stage_seconds",
    "Seconds that a stage took to make.",
    "stage",
    boundaries=(1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
)
STAGES_WAITING = Level("stages_waiting", "Stages that are to be made.", "lane")
STAGES_RUNNING = Level("stages_running", "Stages that are being made.", "lane")

# Parallel work, told by who spreads it. work: its title in the lines of progress, such as search
ITEMS = Counter("items", "Items of parallel work that are done.", "work")
PASSAGES = Counter("passages", "Passages of the items that are done.", "work")
ITEMS_LOST = Counter("items_lost", "Items begun anew because their process or node died.", "work")
ITEMS_WAITING = Level("items_waiting", "Items that wait for a worker.", "work")
ITEMS_RUNNING = Level("items_running", "Items that a worker has.", "work")

# Trainings, told by the first worker of each whenever losses are logged. stage: stage_one or stage_two
TOKENS = Counter("training_tokens", "Tokens trained on by all workers, without padding.", "stage")
LOSS = Gauge("training_loss", "Mean loss since losses were logged before.", "stage", "loss")
UTILISATION = Gauge("training_utilisation", "Share of a matrix product's speed that tokens have.", "stage")
RESUMED = Counter("trainings_resumed", "Trainings that went on from a checkpoint.", "stage")

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
