"""Run an experiment that can have students: small models that learn what the seeds of a row predict."""

from dataclasses import dataclass, field

from tlm_ray.runs.cli.table import Table
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.flow.training import Training
from tlm_ray.storage import shown


@dataclass(frozen=True, kw_only=True)
class TaughtTable(Table):
    """The command line of an experiment that can have students; derive yours from it."""

    student_of: list[str] = field(default_factory=list)
    """rows whose seeds teach students, a further row each. Students have the table's recipe and seeds. Those of a row
    with another recipe also learn from rows with replaced words, and take four times the steps of stage two. --steps
    and --steps-two are theirs, too"""
    teacher_seeds: int | None = None
    """how many seeds of such a row teach: 0, 1, ... (default: as many as --seeds)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher_seeds is not None and not self.student_of:
            raise ValueError(f"--teacher-seeds {self.teacher_seeds}: applies to --student-of; give that, too")
        if self.teacher_seeds is not None and self.teacher_seeds < 1:
            raise ValueError(f"--teacher-seeds {self.teacher_seeds}: must be 1 or more")

    def trainings(self, flow: Flow) -> list[Training]:
        """Return the trainings of all rows, then those of students."""
        tasks = self.data.tasks if self.student_of else []
        return super().trainings(flow) + [student for task in tasks for student in self._students(task, flow)]

    def _students(self, task: str, flow: Flow) -> list[Training]:
        """Return a task's students, one per row of teachers and seed."""
        rows = {shown(name): recipe for name, recipe in self.recipes(task, flow).items()}
        if unknown := [row for row in self.student_of if row not in rows]:
            raise ValueError(f"--student-of {unknown[0]!r}: allowed are the table's rows {', '.join(map(repr, rows))}")
        own, seeds = self.recipe(task, flow, self.mixture), tuple(range(self.teacher_seeds or self.seeds))
        alike = Teaching(seeds=seeds)
        return [
            Training(row=f"{row}, student of {len(seeds)}", task=task, recipe=own, seed=seed, teaching=teaching)
            for row in self.student_of
            for teaching in [alike if rows[row] == own else Teaching.by_others(seeds=seeds, recipe=rows[row])]
            for seed in range(self.seeds)
        ]
