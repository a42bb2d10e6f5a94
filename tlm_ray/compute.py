"""What a training runs on: workers, their resources and room for them, and how their work is laid out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Execution settings of a training, which change its speed but not its result."""

    workers: int = 1
    """number of processes, at most one per row of a step"""
    least_workers: int = 0
    """train with as many workers as the cluster has room for, from this number to `workers`; 0: always `workers`"""
    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    """Ray resources per worker; with GPU: 1 it uses one"""
    max_failures: int = 3
    """maximum number of retries after lost workers"""
    micro_rows: int = 0
    """maximum rows per forward pass of a worker, with accumulated gradients; 0: all, on a CPU those of 4,096 tokens"""
    packed: bool = False
    """whether rows are packed instead of padded"""
    sharded: bool = False
    """whether weights, gradients and optimizer state are sharded (FSDP2) instead of replicated (DDP)"""
    here: bool = False
    """train in the process that makes the stage, such as a trial of Ray Tune's"""

    def __post_init__(self) -> None:
        if self.micro_rows < 0:
            raise ValueError(f"micro_rows {self.micro_rows}: must be 1 or more, or 0 for all that fit")
        if self.workers < 1:
            raise ValueError(f"workers {self.workers}: a training needs 1 or more")
        if not 0 <= self.least_workers <= self.workers:
            raise ValueError(
                f"least_workers {self.least_workers}: must be from 1 to workers ({self.workers}), or 0 for just as many"
            )
        if self.here and self.workers > 1:
            raise ValueError(f"workers {self.workers}: with `here` a training has 1, the process that makes the stage")

    @property
    def parts(self) -> dict[str, float]:
        """The number of workers and the resources of each; speeds are comparable if these are equal."""
        return {"workers": self.workers, **self.resources}

    @property
    def needed(self) -> int:
        """The number of workers that a training needs to start."""
        return self.least_workers or self.workers

    @property
    def threads(self) -> int:
        """The CPU threads of a worker, one per CPU, so that results do not vary."""
        return max(1, int(self.resources.get("CPU", 1)))

    @property
    def apart(self) -> bool:
        """Whether workers need resources besides CPUs, so that they do not wait for data stages."""
        return any(amount for name, amount in self.resources.items() if name != "CPU")

    @property
    def gpu(self) -> bool:
        """Whether workers train on GPUs."""
        return self.resources.get("GPU", 0) > 0


def places(resources: Mapping[str, float], nodes: Sequence[Mapping[str, Any]]) -> int:
    """Count the workers that fit on the nodes, each on one node; ValueError for workers without resources."""
    needs = {name: amount for name, amount in resources.items() if amount}
    if not needs:
        raise ValueError(f"resources {dict(resources)}: a training worker needs something; give CPU: 1 (or GPU: 1)")
    return sum(
        min(int(node["Resources"].get(name, 0.0) / amount + 1e-6) for name, amount in needs.items())  # 5 of 0.2 in 1
        for node in nodes
    )
