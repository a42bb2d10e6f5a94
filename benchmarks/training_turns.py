"""One side of the training benchmark in processes of its own, asked turn by turn."""

import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from training_sides import HEADLESS, RELEASED, Ours, Released, Work

from tlm_ray.process import tune_torch
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.flops import matmul_rate

SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, kw_only=True)
class Side:
    """A side of the comparison: a released loop, or ours in a precision (`how`), with one or more workers."""

    name: str
    how: str
    threads: int
    world: int = 1
    packed: bool = False


def start(work: Work, side: Side, rank: int) -> Connection:
    """Start one worker of a side; return the connection to it."""
    pipe, inner = SPAWN.Pipe()
    SPAWN.Process(target=serve, args=(inner, work, side, rank, os.getpid()), daemon=True).start()
    inner.close()  # so that the wait ends if the process dies
    return pipe


def ask(pipes: list[Connection], question: float | None) -> list[Any]:
    """Let all workers of a side run for some seconds."""
    for pipe in pipes:
        pipe.send(question)
    return [pipe.recv() for pipe in pipes]


def serve(pipe: Connection, work: Work, side: Side, rank: int, group: int) -> None:
    """Run a worker: receive seconds, send non-padding tokens per second; on None, send the totals and stop."""
    transformers.utils.logging.set_verbosity_error()
    if side.world > 1:
        store = f"file://{tempfile.gettempdir()}/bench-{group}-{side.world}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=side.world)
    torch.set_num_threads(side.threads)
    before, own, step, spent = peak_bytes(work.device), make(work, side, rank), 0, 0.0
    for least in iter(pipe.recv, None):
        seconds, tokens = 0.0, 0
        while wanted(seconds < least, side.world):
            own_seconds, own_tokens = own.step(step)
            seconds, tokens, step = seconds + own_seconds, tokens + own_tokens, step + 1
        seconds += synchronised(work.device)
        spent += seconds
        pipe.send(tokens / seconds)
    pipe.send({"memory": (peak_bytes(work.device) - before) / 1e9} | used(own, spent))
    if side.world > 1:
        del own  # DDP's reducer must end before its group
        dist.destroy_process_group()


def make(work: Work, side: Side, rank: int) -> Released | Ours:
    """Create a worker's side."""
    if side.how in (RELEASED, HEADLESS):
        return Released(work, head=side.how == RELEASED)
    tune_torch()
    return Ours(work, Worker(rank=rank, world=side.world, device=work.device, precision=side.how, packed=side.packed))


def wanted(more: bool, world: int) -> bool:
    """Return whether any worker wants another step, which all must then take."""
    if world == 1:
        return more
    votes = torch.tensor(float(more))
    dist.all_reduce(votes)
    return bool(votes > 0)


def used(own: Released | Ours, seconds: float) -> dict[str, float]:
    """Return the share of time our loop waits for batches, and its utilisation of the matrix rate."""
    if isinstance(own, Released):
        return {}
    pace, place = own.trainer.pace, own.trainer.worker
    rate = pace.real_flops / seconds / matmul_rate(place.device, place.precision)
    return {"waiting": pace.waiting / seconds, "utilisation": rate}


def synchronised(device: str) -> float:
    """Wait for a GPU to finish; return the seconds."""
    started = time.perf_counter()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_bytes(device: str) -> int:
    """Return this process's peak of memory: resident (Linux), or allocated on its GPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
