"""Run an experiment that can have students: small models that learn what the seeds of a row predict."""

from dataclasses import dataclass, field
from itertools import product

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
    with another recipe also learn from rows with replaced words, and take four times the steps of stage two"""
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
        wanted = product(self.student_of, self.data.tasks)
        return super().trainings(flow) + [one for row, task in wanted for one in self._students(row, task, flow)]

    def _students(self, row: str, task: str, flow: Flow) -> list[Training]:
        """Return a task's students of a row, one per seed."""
        rows = {shown(name): recipe for name, recipe in self.recipes(task, flow).items()}
        if row not in rows:
            raise ValueError(f"--student-of {row!r}: allowed are the table's rows {', '.join(map(repr, rows))}")
        own, seeds = self.recipe(task, flow, self.mixture), tuple(range(self.teacher_seeds or self.seeds))
        teaching = Teaching(seeds=seeds) if rows[row] == own else Teaching.by_others(seeds=seeds, recipe=rows[row])
        name = f"{row}, student of {len(seeds)}"
        return [Training(row=name, task=task, recipe=own, seed=seed, teaching=teaching) for seed in range(self.seeds)]
