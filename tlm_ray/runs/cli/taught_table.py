"""Run an experiment that can have students: small models that learn what the seeds of a row predict."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tlm_ray.runs.cli.table import Table
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.storage import shown
from tlm_ray.training.encoders.starts import Pretrained, Trimmed


@dataclass(frozen=True, kw_only=True)
class TaughtTable(Table):
    """The command line of an experiment that can have students; derive yours from it."""

    student_of: list[str] = field(default_factory=list)
    """rows whose seeds teach students, a further row each, with rows of their ensembles. Students have the table's
    recipe and seeds. Those of a row with another recipe also learn from rows with replaced words, and take four times
    the steps of stage two. --steps and --steps-two are theirs, too"""
    teacher_seeds: int | None = None
    """how many seeds of such a row teach: 0, 1, ... (default: as many as --seeds)"""
    student_layers: int | None = None
    """students start from N layers of the row's pretrained encoder, evenly spaced, and its 5,000 most frequent pieces
    (default: from random weights). They are fine-tuned in twice the steps, without replaced words"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("teacher_seeds", "student_layers"):
            value, option = getattr(self, name), f"--{name.replace('_', '-')}"
            if value is not None and not self.student_of:
                raise ValueError(f"{option} {value}: applies to --student-of; give that, too")
            if value is not None and value < 1:
                raise ValueError(f"{option} {value}: must be 1 or more")

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
        found = {row: self._taught_by(rows[row], seeds, task, flow) for row in self.student_of}
        layers = f" with {self.student_layers} of its layers" if self.student_layers else ""
        return [
            Training(
                row=f"{row}, student of {len(seeds)}{layers}", task=task, recipe=recipe, seed=seed, teaching=teaching
            )
            for row, (recipe, teaching) in found.items()
            for seed in range(self.seeds)
        ]

    def _taught_by(self, teacher: Recipe, seeds: tuple[int, ...], task: str, flow: Flow) -> tuple[Recipe, Teaching]:
        """Return the recipe of a teacher's students, and how they learn."""
        if self.student_layers is None:
            own = self.recipe(task, flow, self.mixture)
            alike = Teaching(seeds=seeds)
            return own, alike if teacher == own else Teaching.by_others(seeds=seeds, recipe=teacher)
        if not isinstance(teacher.start, Pretrained) or isinstance(teacher.start, Trimmed):
            raise ValueError(f"--student-layers {self.student_layers}: applies to rows of a whole pretrained encoder")
        source = teacher.start.source
        own = self.fine_tuned(source, "plain", task, flow, self.mixture, layers=self.student_layers)
        return own, Teaching(seeds=seeds, recipe=teacher)
