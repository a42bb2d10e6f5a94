"""Predict class scores, or a regression's numbers, of labelled rows, divided among the workers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.sampler.batches import padded_inputs
from tlm_ray.training.tokens.blocks import Blocks

ROWS = 64  # rows scored together; affects results only by rounding


def predict(model: JointModel, blocks: Blocks, *, pad_id: int, worker: Worker, objective: str = "labels") -> np.ndarray:
    """Return logits, float32 (rows, classes), on every worker. Rows of similar length are scored together, unmasked.

    objective: the one whose head to use, if a model has classifiers of several tasks.
    """
    classes = model.heads[objective].model.config.num_labels or 0
    return _each(model, blocks, partial(model.scores, objective=objective), classes, pad_id=pad_id, worker=worker)


def write(model: JointModel, blocks: Blocks, *, pad_id: int, worker: Worker) -> np.ndarray:
    """Return the class whose name an encoder-decoder writes, int64 (rows,), or -1 where it writes anything else."""
    found = _each(model, blocks, model.written, 1, pad_id=pad_id, worker=worker)
    return found[:, 0].astype(np.int64)


@torch.no_grad()
def _each(
    model: JointModel,
    blocks: Blocks,
    compute: Callable[[dict[str, Any]], torch.Tensor],
    columns: int,
    *,
    pad_id: int,
    worker: Worker,
) -> np.ndarray:
    """Return what a function of a batch's inputs computes for all rows, float32 (rows, columns)."""
    training = model.training
    model.eval()
    order = np.argsort(blocks.lengths, kind="stable")
    batches = [order[start : start + ROWS] for start in range(0, len(order), ROWS)]
    logits = torch.zeros(len(blocks), columns, device=worker.device)
    for turn in range(-(-len(batches) // worker.world)):
        number = turn * worker.world + worker.rank
        rows = batches[min(number, len(batches) - 1)]  # with sharded weights, all workers must compute
        inputs, _ = padded_inputs(blocks, rows, pad_id)
        tensors = {name: torch.from_numpy(array).to(worker.device) for name, array in inputs.items()}
        with worker.autocast():
            found = compute(tensors)
        if number < len(batches):
            logits[torch.from_numpy(rows)] = found
    if worker.world > 1:
        dist.all_reduce(logits)
    model.train(training)
    return logits.cpu().numpy()
