"""Workers of gloo in processes of their own, without Ray; one crew runs several trainings, so that it starts once."""

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from trainings import (
    SCHEDULE,
    VOCABULARY,
    keep_in,
    make_blocks,
    make_trainer,
    run_interrupted,
    stage_one,
)

from tlm_ray.evaluation.predictions import decide
from tlm_ray.training.loop.checkpoints import snapshot
from tlm_ray.training.loop.trainer import Trainer
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.scoring.prediction import predict

ODD = replace(SCHEDULE, batch_rows=9, learning_rate=1e-3, averaged=0.5, log_every=2)  # 2 and 4 do not divide 9
DEV = make_blocks(150, seed=2, labels=True)
STUCK = timedelta(seconds=100)  # after which a crew that waits for itself is told so


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training of a crew."""

    name: str
    sharded: bool
    micro_rows: int = 0
    stops: tuple[int, ...] = ()
    """steps at which it is interrupted"""
    start: str = ""
    """a checkpoint to begin with"""
    leaves: tuple[int, ...] = ()
    """steps after which its last worker wishes to leave, and it goes on from the checkpoint"""


def make_scored(case: Case, worker: Worker) -> Trainer:
    """Return a training with a dev set, whose rows the workers share out."""
    settings = stage_one(schedule=ODD)

    def evaluate(model: Any) -> dict[str, float]:
        predicted = decide(predict(model, DEV, pad_id=VOCABULARY.pad_id, worker=worker))
        return {"dev": 100 * float((predicted == DEV.labels).mean())}

    trainer = make_trainer(settings, worker, evaluate=evaluate)
    if case.start:
        trainer.resume(case.start)
    return trainer


def run_case(case: Case, worker: Worker, folder: Path) -> dict[str, Any]:
    """Train one case as one of its workers; return what is compared."""
    worker = replace(worker, sharded=case.sharded, micro_rows=case.micro_rows)
    own, left = folder / f"{case.name}-{worker.rank}", []
    if case.stops:
        trainer = run_interrupted(own, list(case.stops), lambda: make_scored(case, worker))
    elif case.leaves:
        trainer, left = run_leaving(case, worker, own)
    else:
        trainer = make_scored(case, worker)
        trainer.run(keep_in(own))
    return {
        "history": trainer.progress.history,
        "left": left,
        "tokens": trainer.progress.tokens,
        "weights": snapshot(trainer.model),
        "parameters": [name for name, _ in trainer.model.named_parameters()],
    }


def run_leaving(case: Case, worker: Worker, own: Path) -> tuple[Trainer, list[int]]:
    """Run until the last worker wishes to leave, then from the first one's checkpoint; return where it left too."""
    left: list[int] = []
    for wish in (*case.leaves, None):
        trainer = make_scored(case, worker)
        if left:
            dist.barrier()  # the first has written it
            trainer.resume(f"{own.parent}/{case.name}-0")
        is_last, progress = worker.rank == worker.world - 1, trainer.progress
        left.append(trainer.run(keep_in(own), is_leaving=lambda: is_last and progress.step == wish).step)  # noqa: B023
    return trainer, left


def work(rank: int, world: int, cases: list[Case], folder: Path) -> None:
    """Be one worker of a crew."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=STUCK)
    for case in cases:
        found = run_case(case, Worker(rank=rank, world=world), folder)
        torch.save(found, folder / f"{case.name}-{rank}.pt")
    gc.collect()  # a reducer that dropped the group last would wait, with the GIL, for a thread of gloo that wants it
    dist.destroy_process_group()


def run_crew(world: int, cases: list[Case], folder: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Run cases one after another on `world` workers; return what gives each worker's results of a case."""
    mp.spawn(work, (world, cases, folder), nprocs=world)
    return lambda name: [torch.load(folder / f"{name}-{rank}.pt") for rank in range(world)]
