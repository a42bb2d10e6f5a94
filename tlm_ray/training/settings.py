"""Settings of the two stages, as plain values: what identifies a training, what workers receive, and the hardware.

This imports neither torch nor Ray, so a driver can plan thousands of trainings.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.evaluation.scores import Metric
from tlm_ray.identity import LATER, NO_RESULT, set_later
from tlm_ray.training.encoders.adapters import Lora
from tlm_ray.training.encoders.starts import Start
from tlm_ray.training.loop.optimizers import AdamW, Optimizer
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.objectives import Labels, Loss, Mlm, Objective, task_loss, text_loss
from tlm_ray.training.sampler.mixers import Cycle, Mixer

if TYPE_CHECKING:
    from tlm_ray.training.loop.trainer import Evaluate
    from tlm_ray.training.loop.worker import Worker

GENERAL, TASK = "general", "task"  # names of the streams
BLOCKS = {GENERAL: "general.arrow", TASK: "train.arrow"}  # files of their rows in a folder of blocks
NUMBERS = {GENERAL: 0, TASK: 1}  # keys of their shuffles
CHECKPOINTS = "checkpoints"  # folder of a running training's checkpoints
MODEL = "model"  # folder of a stage's model, which transformers can open
TASK_MODEL = "task_model"  # the same for stage one's encoder with its task head
STOPPED, MOVES = "stopped", "moves"  # keys of a result without facts: reason to stop, or step to resume at


@dataclass(frozen=True, kw_only=True)
class StageSettings(ABC):
    """Common settings of the two stages, for drivers and workers."""

    start: Start
    """the initial model"""
    schedule: Schedule
    precision: str
    seed: int
    optimizer: Optimizer = field(default=AdamW(), metadata=LATER)
    adapters: Lora | None = field(default=None, metadata=LATER)
    """train these and the heads; None: all weights"""
    k: int = 0
    """train on general text with ranks below k; 0 for none"""
    general_share: float = field(default=1.0, metadata=LATER)
    """share of its blocks, at equal distances"""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """The parameters that identify the stage's result."""

    @property
    @abstractmethod
    def losses(self) -> dict[str, Loss]:
        """The loss of each stream, by name."""

    @property
    @abstractmethod
    def mixer(self) -> Mixer:
        """The mixer that chooses the stream of each step."""

    @property
    def heads(self) -> tuple[Objective, ...]:
        """The objectives with a head in the model."""
        return (Labels(),)

    @property
    @abstractmethod
    def exports(self) -> Mapping[str, Objective]:
        """The objectives whose models are the stage's result, by output folder."""

    @property
    def keeps_best(self) -> bool:
        """Whether the result has the weights of the best dev score, instead of the last ones."""
        return False

    def rows_of(self, stream: str, blocks: str) -> tuple[str, int]:
        """Return the location of a stream's rows, given the folder of blocks, and the key of their shuffles."""
        return storage.join(blocks, BLOCKS[stream]), NUMBERS[stream]

    @property
    def taught_by(self) -> str:
        """The location of the model that objectives learn from; "" for none."""
        return ""

    @property
    def is_scored(self) -> bool:
        """Whether the stage learns labels, so that the model is scored on dev during training."""
        return any(isinstance(one, Labels) for loss in self.losses.values() for one in loss.objectives)

    def opened(self, job: "Job") -> "StageSettings":
        """Return the settings with what only the job's blocks say."""
        return self

    def evaluate(self, job: "Job", *, pad_id: int, worker: "Worker") -> "Evaluate | None":
        """Return the function that scores a model at each evaluation; None if the stage learns no labels."""
        from tlm_ray.training.scoring.evaluation import dev_scores

        return dev_scores(job.blocks, job.metric, pad_id=pad_id, worker=worker) if self.is_scored else None


@dataclass(frozen=True, kw_only=True)
class StageOne(StageSettings):
    """Training on general and task batches; the result opens as the first objective's model (AutoModelForMaskedLM).

    If it learned labels, it also opens as AutoModelForSequenceClassification.
    """

    rho1: int | None
    """general batches before each task batch; None for no task batches"""
    rho2: float
    """weight of the text objectives in a task batch"""
    weighting: str
    """weighting of a task batch's losses, see tlm_ray.training.objectives.losses"""
    objectives: tuple[Objective, ...] = field(default=(Mlm(),), metadata=LATER)
    """objectives of the text"""
    labels: Labels = field(default=Labels(), metadata=LATER)
    """the task objective"""
    own_mixer: Mixer | None = field(default=None, metadata=LATER)
    """which stream each step is from, as a frozen dataclass; None: `Cycle` by rho1"""
    exported: str = field(default="", metadata=LATER)
    """name of the objective with whose model stage two starts; "" for the first"""
    teacher: str = field(default="", metadata=NO_RESULT)
    """location of a trained model that objectives learn from; the stage has it as an input, or its identity"""

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
        return general | {
            TASK: task_loss(self.objectives, rho2=self.rho2, weighting=self.weighting, labels=self.labels)
        }

    @property
    def mixer(self) -> Mixer:
        return self.own_mixer or Cycle(self.rho1)

    @property
    def taught_by(self) -> str:
        return self.teacher

    @property
    def heads(self) -> tuple[Objective, ...]:
        return (self.labels, *self.objectives)

    @property
    def exports(self) -> Mapping[str, Objective]:
        model = next((one for one in self.objectives if one.name == self.exported), self.objectives[0])
        return {MODEL: model} | ({} if self.rho1 is None else {TASK_MODEL: self.labels})


@dataclass(frozen=True, kw_only=True)
class StageTwo(StageSettings):
    """Training on the task alone with a fresh head; the result opens as AutoModelForSequenceClassification.

    It starts from stage one's model or, without a stage one, from the recipe's pretrained encoder.
    """

    labels: Labels = field(default=Labels(), metadata=LATER)
    """the task objective"""
    auxiliary: tuple[Objective, ...] = field(default=(), metadata=LATER)
    """objectives of the task's text beside it, each with its weight"""

    @property
    def identity(self) -> dict[str, Any]:
        return {"schedule": self.schedule, "precision": self.precision, "seed": self.seed} | set_later(self)

    @property
    def losses(self) -> dict[str, Loss]:
        return {TASK: Loss(((self.labels, self.labels.weight), *((one, one.weight) for one in self.auxiliary)))}

    @property
    def mixer(self) -> Mixer:
        return Cycle(0)

    @property
    def heads(self) -> tuple[Objective, ...]:
        return (self.labels, *self.auxiliary)

    @property
    def exports(self) -> Mapping[str, Objective]:
        return {MODEL: self.labels}

    @property
    def keeps_best(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training, in the form that workers receive."""

    folder: str
    """the stage's folder, for checkpoints, progress and the model"""
    blocks: str
    """folder of a blocks stage"""
    further: tuple[str, ...] = ()
    """folders of the blocks of further tasks, which are trained together"""
    counts: str = ""
    """folder of a counts stage with initial embeddings and bias; "" for random ones"""
    taught: str = ""
    """folder of a soft labels stage, whose task rows replace those of the blocks; "" for none"""
    settings: StageSettings
    compute: Compute
    metric: str | Metric = ""
    """metric of the dev score; "" for the one in the blocks' facts"""
