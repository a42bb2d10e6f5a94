"""Stage one of several tasks: general text, and each task's rows at its rate, with a head per task.

Source of the rates: Raffel et al. 2020, section 3.5.2. What it returns is the encoder with its text objective's head; a
stage two per task goes on from there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tlm_ray import storage
from tlm_ray.identity import NO_RESULT
from tlm_ray.training.objectives import Loss, Objective, TaskLabels, task_loss, text_loss
from tlm_ray.training.sampler.mixers import Mixer, Rates, Shares
from tlm_ray.training.settings import BLOCKS, GENERAL, MODEL, TASK, Job, StageOne

if TYPE_CHECKING:
    from tlm_ray.training.loop.trainer import Evaluate
    from tlm_ray.training.loop.worker import Worker
    from tlm_ray.training.model.joint import JointModel


@dataclass(frozen=True, kw_only=True)
class MixedTask:
    """A task as the blocks' facts describe it."""

    name: str
    """name of its losses and dev scores in the history"""
    blocks: str
    """folder of its blocks"""
    rows: int
    """number of its training rows"""
    labels: TaskLabels


@dataclass(frozen=True, kw_only=True)
class MixedOne(StageOne):
    """Training on general batches and batches of several tasks; `tasks` is known once the blocks are there."""

    names: tuple[str, ...]
    """the tasks' names, in the order of their blocks"""
    rates: Rates
    tasks: tuple[MixedTask, ...] = field(default=(), metadata=NO_RESULT)

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | {"rates": self.rates, "names": self.names}

    def opened(self, job: Job) -> "MixedOne":
        from tlm_ray.training.tokens.preparation import FACTS

        tasks = []
        for number, (name, blocks) in enumerate(zip(self.names, (job.blocks, *job.further), strict=True)):
            facts = storage.read_record(storage.join(blocks, FACTS))
            labels = TaskLabels(number=number, labels=tuple(facts["labels"]))
            tasks.append(MixedTask(name=name, blocks=blocks, rows=facts["train_rows"], labels=labels))
        return replace(self, tasks=tuple(tasks))

    @property
    def losses(self) -> dict[str, Loss]:
        general = {GENERAL: text_loss(self.objectives)} if self.k else {}
        return general | {
            task.name: task_loss(self.objectives, rho2=self.rho2, weighting=self.weighting, labels=task.labels)
            for task in self.tasks
        }

    @property
    def is_scored(self) -> bool:
        return True

    @property
    def mixer(self) -> Mixer:
        return Shares(self.rho1 or 0, self.rates.of([task.rows for task in self.tasks]))

    @property
    def heads(self) -> tuple[Objective, ...]:
        return (*(task.labels for task in self.tasks), *self.objectives)

    @property
    def exports(self) -> Mapping[str, Objective]:
        return {MODEL: super().exports[MODEL]}

    def rows_of(self, stream: str, blocks: str) -> tuple[str, int]:
        if stream == GENERAL:
            return super().rows_of(stream, blocks)
        number = self.names.index(stream)
        return storage.join(self.tasks[number].blocks, BLOCKS[TASK]), 1 + number

    def evaluate(self, job: Job, *, pad_id: int, worker: "Worker") -> "Evaluate":
        """Return the function that scores a model on each task's dev set; "dev" is their mean."""
        from tlm_ray.training.scoring.evaluation import dev_scores

        own = {
            task.name: dev_scores(task.blocks, job.metric, pad_id=pad_id, worker=worker, objective=task.labels.name)
            for task in self.tasks
        }

        def evaluate(model: "JointModel") -> dict[str, float]:
            scores = {f"dev_{name}": score(model)["dev"] for name, score in own.items()}
            return scores | {"dev": fmean(scores.values())}

        return evaluate
