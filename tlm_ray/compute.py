"""What a training runs on: workers, their resources, and how their work is laid out."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Compute:
    """What a training runs on; it changes how fast, not what."""

    workers: int = 1
    """processes; a training whose steps have fewer rows takes one per row"""
    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    """of each worker, by Ray's names; GPU: 1 makes it use one"""
    max_failures: int = 3
    """lost workers to recover from before giving up"""
    micro_rows: int = 0
    """rows that go through a worker's model at once, 0 for all of its share of a step; gradients are added up"""
    packed: bool = False
    """rows are laid one after another, not padded"""
    sharded: bool = False
    """weights, gradients and optimizer state are shared out over the workers (FSDP2), else copied to each (DDP)"""

    def __post_init__(self) -> None:
        if self.micro_rows < 0:
            raise ValueError(f"micro_rows {self.micro_rows}: must be 0 (all rows of a step at once) or more")
        if self.workers < 1:
            raise ValueError(f"workers {self.workers}: a training needs 1 or more")

    @property
    def parts(self) -> dict[str, float]:
        """How many workers there are, and what each has: what speeds may be compared by."""
        return {"workers": self.workers, **self.resources}

    @property
    def threads(self) -> int:
        """Threads of a worker's arithmetic on CPUs, one for each of its CPUs, so that results do not vary."""
        return max(1, int(self.resources.get("CPU", 1)))

    @property
    def apart(self) -> bool:
        """Whether workers need more than CPUs, so that they do not wait for what data stages hold."""
        return any(amount for name, amount in self.resources.items() if name != "CPU")

    @property
    def gpu(self) -> bool:
        """Whether workers train on GPUs."""
        return self.resources.get("GPU", 0) > 0
