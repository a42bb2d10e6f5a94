"""Predict class scores, or a regression's numbers, of labelled rows, divided among the workers."""

import numpy as np
import torch
import torch.distributed as dist

from tlm_ray.training.batches import pad
from tlm_ray.training.blocks import Blocks
from tlm_ray.training.model import JointModel
from tlm_ray.training.worker import Worker

ROWS = 64  # rows scored together; affects results only by rounding


@torch.no_grad()
def predict(model: JointModel, blocks: Blocks, *, pad_id: int, worker: Worker, objective: str = "labels") -> np.ndarray:
    """Return logits, float32 (rows, classes), on every worker. Rows of similar length are scored together, unmasked.

    objective: the one whose head to use, if a model has classifiers of several tasks.
    """
    training = model.training
    model.eval()
    order = np.argsort(blocks.lengths, kind="stable")
    batches = [order[start : start + ROWS] for start in range(0, len(order), ROWS)]
    classes = model.heads[objective].model.config.num_labels or 0
    logits = torch.zeros(len(blocks), classes, device=worker.device)
    for turn in range(-(-len(batches) // worker.world)):
        number = turn * worker.world + worker.rank
        rows = batches[min(number, len(batches) - 1)]  # with sharded weights, all workers must compute
        tokens, attention, places = pad(blocks, rows, pad_id)
        inputs = {"input_ids": tokens, "attention_mask": attention}
        if blocks.types is not None:
            inputs["token_type_ids"] = np.where(attention, blocks.types[places], 0).astype(np.int64)
        tensors = {name: torch.from_numpy(array).to(worker.device) for name, array in inputs.items()}
        with worker.autocast():
            found = model.scores(tensors, objective)
        if number < len(batches):
            logits[torch.from_numpy(rows)] = found
    if worker.world > 1:
        dist.all_reduce(logits)
    model.train(training)
    return logits.cpu().numpy()
