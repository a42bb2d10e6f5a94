"""How a model is served: a module that imports neither Ray Serve nor transformers, for command lines."""

import math
from dataclasses import dataclass, field

AT_WORK = 32  # requests per replica that count as at work, so that its next batch is there when one ends


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request may hold."""

    max_texts: int = 256
    """texts per request at most"""
    max_megabytes: float = 1.0
    """size of a request at most, in units of 10^6 bytes"""

    def __post_init__(self) -> None:
        for name, value in (("max_texts", self.max_texts), ("max_megabytes", self.max_megabytes)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} {value:g}: must be above 0")

    @property
    def max_bytes(self) -> int:
        """Bytes of a request at most."""
        return int(self.max_megabytes * 1e6)


@dataclass(frozen=True, kw_only=True)
class Service:
    """How a model is served."""

    model: tuple[str, ...]
    """folder or URI of a trained or linear model, or hub name of any classifier; several models predict together"""
    replicas: int = 1
    """processes that hold the model, on all nodes"""
    cpus: float | None = None
    """CPUs per replica; if unset: 1, or 0 with GPUs, whose nodes may offer none"""
    gpus: float = 0
    """GPUs per replica"""
    queue: int = 128
    """requests that wait for a replica; more are refused with status 503"""
    precision: str = "fp32"
    """fp32 or bf16"""
    limits: Limits = field(default_factory=Limits)
    """what one request may hold"""

    def __post_init__(self) -> None:
        if isinstance(self.model, str) or not self.model:
            raise ValueError(f"model {self.model!r}: must be a tuple of one folder or hub name, or several")
        for name, value in (("replicas", self.replicas), ("queue", self.queue)):
            if value < 1:
                raise ValueError(f"{name} {value}: must be 1 or more")
        for name, number in (("cpus", self.own_cpus), ("gpus", self.gpus)):
            if not 0 <= number < math.inf:
                raise ValueError(f"{name} {number:g}: must be 0 or more")

    @property
    def own_cpus(self) -> float:
        """CPUs per replica."""
        return float(not self.gpus) if self.cpus is None else self.cpus

    @property
    def most(self) -> int:
        """Requests that are held at a time, at work or waiting."""
        return self.queue + self.replicas * AT_WORK
