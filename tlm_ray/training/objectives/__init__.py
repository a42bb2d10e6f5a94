"""Objectives: what a model learns of a batch's rows. Each owns its targets, its head, its loss and its export.

    Labels      the task's classes or numbers
    Mlm         masked tokens (BERT)

An objective of your own is a frozen dataclass that derives from `Objective`, given as `Recipe(objectives=(...))`.
"""

from tlm_ray.training.objectives.labels import Labels
from tlm_ray.training.objectives.losses import WEIGHTINGS, Loss, step_loss, task_loss, text_loss
from tlm_ray.training.objectives.mlm import Mlm
from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets

__all__ = [
    "WEIGHTINGS",
    "Keys",
    "Labels",
    "Loss",
    "Mlm",
    "Objective",
    "Prediction",
    "Rows",
    "Targets",
    "step_loss",
    "task_loss",
    "text_loss",
]
