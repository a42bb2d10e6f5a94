"""Training objectives; each defines its targets, head, loss and export.

    Labels      the task's classes or numbers
    MarkedLabels          the same, with the states at two marked spans
    Mlm         masked tokens (BERT)
    Clm         next tokens (GPT), for a decoder
    Nsp, Sop    pairs of segments: do they belong together (BERT), in this order (ALBERT)
    Generator   masked tokens, filled by a small encoder of its own, and
    Rtd         which tokens it replaced (ELECTRA)
    SoftTokens, Cosine    a teacher's predictions and last states (DistilBERT)
    LayersOfTeacher       its hidden states and attention scores (TinyBERT)
    Spans, TextLabels     what was in gaps, and the names of labels, both written by a decoder (T5)

To add your own, derive a frozen dataclass from `Objective` and pass it as `Recipe(objectives=(...))`.
"""

from tlm_ray.training.objectives.clm import Clm
from tlm_ray.training.objectives.labels import Labels, TaskLabels
from tlm_ray.training.objectives.layers import LayersOfTeacher
from tlm_ray.training.objectives.losses import WEIGHTINGS, Loss, step_loss, task_loss, text_loss
from tlm_ray.training.objectives.marked_labels import MarkedLabels
from tlm_ray.training.objectives.mlm import Mlm
from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets
from tlm_ray.training.objectives.pairs import Nsp, Sop
from tlm_ray.training.objectives.rtd import Generator, Rtd
from tlm_ray.training.objectives.soft import Cosine, SoftTokens
from tlm_ray.training.objectives.spans import Spans
from tlm_ray.training.objectives.text_labels import TextLabels, classifier_of

__all__ = [
    "WEIGHTINGS",
    "Clm",
    "Cosine",
    "Generator",
    "Keys",
    "Labels",
    "LayersOfTeacher",
    "Loss",
    "MarkedLabels",
    "Mlm",
    "Nsp",
    "Objective",
    "Prediction",
    "Rows",
    "Rtd",
    "SoftTokens",
    "Sop",
    "Spans",
    "Targets",
    "TaskLabels",
    "TextLabels",
    "classifier_of",
    "step_loss",
    "task_loss",
    "text_loss",
]
