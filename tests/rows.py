"""A batch laid out by hand."""

import numpy as np

from tlm_ray.training.objectives import Labels, Loss, Mlm, Targets, task_loss, text_loss
from tlm_ray.training.sampler.batches import Batch


def hand_batch(
    tokens: np.ndarray,
    attention: np.ndarray,
    *,
    types: np.ndarray | None = None,
    chosen: np.ndarray | None = None,
    values: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    rho2: float = 1.0,
    weighting: str = "released",
) -> Batch:
    """Return a batch of one worker whose objectives follow from what there is to predict.

    chosen: bool (rows, length), where the tokens of `values` are predicted; None for no MLM. labels: None for general
    text.
    """
    targets, loss = {}, Loss(())
    if chosen is not None:
        targets["mlm"] = Targets(values, chosen, int(chosen.sum()))
        loss = text_loss((Mlm(),))
    if labels is not None:
        targets["labels"] = Targets(labels, None, len(labels))
        loss = task_loss((Mlm(),), rho2=rho2, weighting=weighting) if chosen is not None else Loss(((Labels(), 1.0),))
    return Batch(
        stream="general" if labels is None else "task",
        loss=loss,
        tokens=tokens,
        attention=attention,
        types=types,
        targets=targets,
        tokens_total=int(attention.sum()),
        token_share=1.0,
        real_tokens=int(attention.sum()),
    )
