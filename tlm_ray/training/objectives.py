"""The loss of a step, from sums over a global count, so that the number of workers changes rounding only.

    general batch                      L_mlm
    task batch, "released" weighting   (rho2 L_mlm + L_task) / (rho2 + 1)      (the released code)
    task batch, "paper" weighting      rho2 L_mlm + L_task                     (the paper's equation)
    task batch, "mlm" weighting        L_mlm                                   (TAPT: labels unseen)
    stage two                          L_task

With rho2 = 20 the released code thus gives the task 1/21 of the paper's weight; it produced the published numbers.
"""

import torch

from tlm_ray.training.batches import Batch


def step_loss(
    mlm_sum: torch.Tensor,
    task_sum: torch.Tensor,
    batch: Batch,
    *,
    rho2: float,
    weighting: str,
    world: int,
) -> torch.Tensor:
    """Return this rank's share of the step's loss, scaled so that the mean over ranks is the whole batch's loss."""
    mlm = mlm_sum * (world / max(1, batch.masked_total))
    task = task_sum * (world / batch.rows)
    if batch.kind == "general":
        return mlm + 0.0 * task
    if batch.masked is None:
        return task + 0.0 * mlm
    if weighting == "mlm":
        return mlm + 0.0 * task
    return (rho2 * mlm + task) / (rho2 + 1) if weighting == "released" else rho2 * mlm + task
