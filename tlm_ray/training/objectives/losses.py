"""Compute the loss of a step, as sums over a global count, so that the number of workers changes only rounding.

    general batch                      L_text
    task batch, "released" weighting   (rho2 L_text + L_labels) / (rho2 + 1)      (the released code)
    task batch, "paper" weighting      rho2 L_text + L_labels                     (the paper's equation)
    task batch, "mlm" weighting        L_text                                     (TAPT: labels unseen)
    stage two                          L_labels

L_text is the sum of the recipe's text objectives; in the paper, the MLM loss alone. With rho2 = 20 the released code
gives the task 1/21 of the paper's weight. It produced the published numbers.

A token-level loss weights every token equally, as the released code's random batches do. A batch has rows of similar
length, so its mean over tokens is weighted by its number of tokens. Otherwise a token of a row under 16 tokens would
weigh 7.5 times one of a row of 96 or more. On the embedded data (tiny, BM25 text, 3 seeds) that costs 6 points of
accuracy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tlm_ray.training.objectives.labels import Labels
from tlm_ray.training.objectives.objective import Objective, Targets

if TYPE_CHECKING:
    import torch

WEIGHTINGS = ("released", "paper", "mlm")


@dataclass(frozen=True)
class Loss:
    """The loss of a stream's batches: the weighted sum of its objectives' means, divided by a constant."""

    weights: tuple[tuple[Objective, float], ...]
    divisor: float = 1.0

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives, in the order in which they prepare batches."""
        return tuple(objective for objective, _ in self.weights)


def text_loss(objectives: tuple[Objective, ...]) -> Loss:
    """Return the loss of general text."""
    return Loss(tuple((objective, objective.weight) for objective in objectives))


def task_loss(
    objectives: tuple[Objective, ...],
    *,
    rho2: float,
    weighting: str,
    labels: Labels = Labels(),  # noqa: B008 - frozen
) -> Loss:
    """Return the loss of a task's text and labels, by one of WEIGHTINGS."""
    if weighting == "mlm":
        return text_loss(objectives)
    weights = (*((objective, rho2 * objective.weight) for objective in objectives), (labels, labels.weight))
    return Loss(weights, divisor=rho2 + 1 if weighting == "released" else 1.0)


def step_loss(
    sums: Mapping[str, "torch.Tensor"], targets: Mapping[str, Targets], loss: Loss, *, token_share: float, world: int
) -> "torch.Tensor":
    """Return this worker's loss, scaled so that the mean over workers is the loss of the whole batch.

    sums: sum of losses per objective on this worker. targets: their totals count the whole step. token_share: tokens of
    the whole step, relative to the mean of its stream.
    """
    total: Any = 0
    for objective, weight in loss.weights:
        if (own := targets.get(objective.name)) is None:
            continue
        share = token_share if own.of_tokens else 1.0
        total = total + weight * (sums[objective.name] * (share * world / max(1, own.total)))
    return total / loss.divisor
