"""Run an experiment that can have students: small models that learn what the seeds of a row predict."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tlm_ray.runs.cli.recipe_options import EncoderSize
from tlm_ray.runs.cli.table import Table
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.storage import shown
from tlm_ray.training.encoders.starts import Pretrained, Trimmed

SCRATCH = 0  # the layers of a student that starts from random weights


@dataclass(frozen=True, kw_only=True)
class TaughtTable(Table):
    """The command line of an experiment that can have students; derive yours from it."""

    student_of: list[str] = field(default_factory=list)
    """rows whose seeds teach students, a further row each, with rows of their ensembles. Students have the table's
    recipe and seeds. Those of a row with another recipe also learn from rows with replaced words, and take four times
    the steps of stage two. --steps and --steps-two are theirs, too"""
    teacher_seeds: int | None = None
    """how many seeds of such a row teach: 0, 1, ... (default: as many as --seeds)"""
    student_layers: list[int] = field(default_factory=lambda: [SCRATCH])
    """students start from so many layers of the row's pretrained encoder, evenly spaced, and its 5,000 most frequent
    pieces: a row each; 0 for random weights. From layers they are fine-tuned in twice the steps, without replaced
    words"""

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = " ".join(map(str, self.student_layers))
        if self.teacher_seeds is not None and not self.student_of:
            raise ValueError(f"--teacher-seeds {self.teacher_seeds}: applies to --student-of; give that, too")
        if self.teacher_seeds is not None and self.teacher_seeds < 1:
            raise ValueError(f"--teacher-seeds {self.teacher_seeds}: must be 1 or more")
        if self.student_layers != [SCRATCH] and not self.student_of:
            raise ValueError(f"--student-layers {layers}: applies to --student-of; give that, too")
        if min(self.student_layers, default=-1) < 0 or len(set(self.student_layers)) < len(self.student_layers):
            raise ValueError(f"--student-layers {layers}: give numbers of 0 or more, each once")

    def trainings(self, flow: Flow) -> list[Training]:
        """Return the trainings of all rows, then those of students."""
        tasks = self.data.tasks if self.student_of else []
        return super().trainings(flow) + [student for task in tasks for student in self._students(task, flow)]

    def rows_with_ensembles(self, trainings: Sequence[Training]) -> Sequence[str]:
        """Return also the rows of students."""
        return [*super().rows_with_ensembles(trainings), *dict.fromkeys(one.row for one in trainings if one.teaching)]

    def _students(self, task: str, flow: Flow) -> list[Training]:
        """Return a task's students, one per row of teachers and seed."""
        rows = {shown(name): recipe for name, recipe in self.recipes(task, flow).items()}
        if unknown := [row for row in self.student_of if row not in rows]:
            raise ValueError(f"--student-of {unknown[0]!r}: allowed are the table's rows {', '.join(map(repr, rows))}")
        seeds = tuple(range(self.teacher_seeds or self.seeds))
        return [
            Training(
                row=f"{row}, student of {len(seeds)}{f' with {layers} of its layers' * (layers > SCRATCH)}",
                task=task,
                recipe=recipe,
                seed=seed,
                teaching=teaching,
            )
            for row in self.student_of
            for layers in self.student_layers
            for recipe, teaching in [self._taught_by(rows[row], seeds, layers, task, flow)]
            for seed in range(self.seeds)
        ]

    def _taught_by(
        self, teacher: Recipe, seeds: tuple[int, ...], layers: int, task: str, flow: Flow
    ) -> tuple[Recipe, Teaching]:
        """Return the recipe of a teacher's students, and how they learn."""
        if layers == SCRATCH:
            own = self.recipe(task, flow, self.mixture)
            alike = Teaching(seeds=seeds)
            return own, alike if teacher == own else Teaching.by_others(seeds=seeds, recipe=teacher)
        if not isinstance(teacher.start, Pretrained) or isinstance(teacher.start, Trimmed):
            raise ValueError(f"--student-layers {layers}: applies to rows of a whole pretrained encoder")
        size = EncoderSize(layers=layers)
        own = self.fine_tuned(teacher.start.source, "plain", task, flow, self.mixture, size=size)
        return own, Teaching(seeds=seeds, recipe=teacher)
