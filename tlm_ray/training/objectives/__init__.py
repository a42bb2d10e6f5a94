"""Training objectives; each defines its targets, head, loss and export.

    Labels      the task's classes or numbers
    Mlm         masked tokens (BERT)
    Clm         next tokens (GPT), for a decoder
    Nsp, Sop    pairs of segments: do they belong together (BERT), in this order (ALBERT)
    Generator   masked tokens, filled by a small encoder of its own, and
    Rtd         which tokens it replaced (ELECTRA)

To add your own, derive a frozen dataclass from `Objective` and pass it as `Recipe(objectives=(...))`.
"""

from tlm_ray.training.objectives.clm import Clm
from tlm_ray.training.objectives.labels import Labels
from tlm_ray.training.objectives.losses import WEIGHTINGS, Loss, step_loss, task_loss, text_loss
from tlm_ray.training.objectives.mlm import Mlm
from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets
from tlm_ray.training.objectives.pairs import Nsp, Sop
from tlm_ray.training.objectives.rtd import Generator, Rtd

__all__ = [
    "WEIGHTINGS",
    "Clm",
    "Generator",
    "Keys",
    "Labels",
    "Loss",
    "Mlm",
    "Nsp",
    "Objective",
    "Prediction",
    "Rows",
    "Rtd",
    "Sop",
    "Targets",
    "step_loss",
    "task_loss",
    "text_loss",
]
