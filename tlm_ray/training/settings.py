"""The settings of the two stages, as values: what names a training, what its workers get, and what it computes on.

Free of torch and Ray, so that a driver can plan a thousand trainings.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.evaluation.scores import Metric
from tlm_ray.identity import LATER, set_later
from tlm_ray.training.mixers import Cycle, Mixer
from tlm_ray.training.objectives import Labels, Loss, Mlm, Objective, task_loss, text_loss
from tlm_ray.training.optimizers import AdamW, Optimizer
from tlm_ray.training.schedules import Schedule
from tlm_ray.training.starts import Start

if TYPE_CHECKING:
    from tlm_ray.training.trainer import Evaluate
    from tlm_ray.training.worker import Worker

GENERAL, TASK = "general", "task"  # the streams
BLOCKS = {GENERAL: "general.arrow", TASK: "train.arrow"}  # where their rows lie in a folder of blocks
NUMBERS = {GENERAL: 0, TASK: 1}  # what keys their shuffles
CHECKPOINTS = "checkpoints"  # the folder of a running training's checkpoints
MODEL = "model"  # the folder of a trained stage that transformers opens
TASK_MODEL = "task_model"  # likewise, of stage one: the encoder with the task's head
STOPPED, MOVES = "stopped", "moves"  # instead of facts: why a training cannot go on; the step it goes on at elsewhere


@dataclass(frozen=True, kw_only=True)
class StageSettings(ABC):
    """What the two stages have in common, and what a worker must know of either."""

    start: Start
    """what the model begins with"""
    schedule: Schedule
    precision: str
    seed: int
    optimizer: Optimizer = field(default=AdamW(), metadata=LATER)
    k: int = 0
    """ranks of general text that are trained on, 0 for none"""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """The parameters that name the stage's result."""

    @property
    @abstractmethod
    def losses(self) -> dict[str, Loss]:
        """What is learned of each stream, by its name."""

    @property
    @abstractmethod
    def mixer(self) -> Mixer:
        """Which stream a step's batch comes from."""

    @property
    def heads(self) -> tuple[Objective, ...]:
        """The objectives that the model has heads for."""
        return (Labels(),)

    @property
    @abstractmethod
    def exports(self) -> Mapping[str, Objective]:
        """The objectives whose models are the stage's result, by the folder that each is written to."""

    @property
    def keeps_best(self) -> bool:
        """Whether the result has the weights of the best dev score, else the last ones."""
        return False

    def rows_of(self, stream: str, blocks: str) -> tuple[str, int]:
        """Return where a stream's rows lie, given the folder of blocks, and the number that keys their shuffles."""
        return storage.join(blocks, BLOCKS[stream]), NUMBERS[stream]

    @property
    def is_scored(self) -> bool:
        """Whether the model is scored on dev while it trains: where the stage learns labels."""
        return Labels.name in [objective.name for loss in self.losses.values() for objective in loss.objectives]

    def evaluate(self, job: "Job", *, pad_id: int, worker: "Worker") -> "Evaluate | None":
        """Return what scores a model at each evaluation; None where the stage learns no labels."""
        from tlm_ray.training.evaluation import dev_scores

        return dev_scores(job.blocks, job.metric, pad_id=pad_id, worker=worker) if self.is_scored else None


@dataclass(frozen=True, kw_only=True)
class StageOne(StageSettings):
    """Training on general and task batches; the result opens as the first objective's model (AutoModelForMaskedLM).

    Where it learned labels, it opens as AutoModelForSequenceClassification too.
    """

    rho1: int | None
    """general batches before each task batch; None for no task batches"""
    rho2: float
    """weight of the text objectives in a task batch"""
    weighting: str
    """of a task batch's losses: see tlm_ray.training.objectives.losses"""
    objectives: tuple[Objective, ...] = field(default=(Mlm(),), metadata=LATER)
    """what is learned of text"""

    @property
    def identity(self) -> dict[str, Any]:
        parameters = {
            "schedule": self.schedule,
            "rho2": self.rho2,
            "weighting": self.weighting,
            "precision": self.precision,
            "seed": self.seed,
            "k": self.k,
            "rho1": self.rho1,
        }
        return parameters | self.start.identity | set_later(self)

    @property
    def losses(self) -> dict[str, Loss]:
        general = {GENERAL: text_loss(self.objectives)} if self.k else {}
        if self.rho1 is None:
            return general
        return general | {TASK: task_loss(self.objectives, rho2=self.rho2, weighting=self.weighting)}

    @property
    def mixer(self) -> Mixer:
        return Cycle(self.rho1)

    @property
    def heads(self) -> tuple[Objective, ...]:
        return (Labels(), *self.objectives)

    @property
    def exports(self) -> Mapping[str, Objective]:
        return {MODEL: self.objectives[0]} | ({} if self.rho1 is None else {TASK_MODEL: Labels()})


@dataclass(frozen=True, kw_only=True)
class StageTwo(StageSettings):
    """Training on the task alone with a fresh head; the result opens as AutoModelForSequenceClassification.

    It starts from stage one's model, or from the recipe's pretrained encoder where there is no stage one.
    """

    labels: Labels = field(default=Labels(), metadata=LATER)
    """how the task is learned"""

    @property
    def identity(self) -> dict[str, Any]:
        return {"schedule": self.schedule, "precision": self.precision, "seed": self.seed} | set_later(self)

    @property
    def losses(self) -> dict[str, Loss]:
        return {TASK: Loss(((self.labels, 1.0),))}

    @property
    def mixer(self) -> Mixer:
        return Cycle(0)

    @property
    def heads(self) -> tuple[Objective, ...]:
        return (self.labels,)

    @property
    def exports(self) -> Mapping[str, Objective]:
        return {MODEL: self.labels}

    @property
    def keeps_best(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training as its workers get it."""

    folder: str
    """the stage's own: checkpoints, progress and the model go there"""
    blocks: str
    """a folder of the blocks stage"""
    counts: str = ""
    """a folder of the counts stage, whose embeddings and bias the model begins with; "" for its random ones"""
    taught: str = ""
    """a folder of the soft labels stage, whose task rows are learned instead of the blocks'; "" for none"""
    settings: StageSettings
    compute: Compute
    metric: str | Metric = ""
    """of the dev score, "" for the one that the blocks' facts name"""
