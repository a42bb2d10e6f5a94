"""Show what a labelled task was taken for, before any work: rows per class and split, some rows, unused columns."""

from collections import Counter

import numpy as np
from rich.table import Table
from rich.text import Text

from tlm_ray.console import console
from tlm_ray.corpus.labelled.marks import marks_of
from tlm_ray.corpus.labelled.task_files import SPLITS
from tlm_ray.corpus.labelled.tasks import Task

CLASSES, ROWS, LETTERS = 12, 3, 60  # at most so many are shown


def show_task(task: Task, *, reads_marks: bool = False) -> None:
    """Print a task's rows per class and split, its first training rows, its marks, and the columns that are not read.

    reads_marks: whether the classifier will read the states at the marks.
    """
    counts = {split: Counter(table["label"].to_pylist()) for split, table in task.splits.items()}
    table = Table("", box=None, header_style="dim")
    for split in SPLITS:
        table.add_column(split, justify="right")
    classes = sorted(range(len(task.labels)), key=lambda number: (-counts["train"][number], number))
    for number in classes[:CLASSES]:
        table.add_row(Text(task.labels[number]), *(f"{counts[split][number]:,}" for split in SPLITS))
    if more := classes[CLASSES:]:
        sums = (sum(counts[split][number] for number in more) for split in SPLITS)
        table.add_row(Text(f"{len(more):,} more classes"), *(f"{each:,}" for each in sums))
    if not task.labels:
        for share, name in ((0.25, "first quartile"), (0.5, "median"), (0.75, "third quartile")):
            found = (np.quantile(task.splits[split]["label"].to_numpy(), share) for split in SPLITS)
            table.add_row(name, *(f"{each:.4g}" for each in found))
    table.add_row(Text("rows"), *(f"{len(task.splits[split]):,}" for split in SPLITS))
    console.print(table)
    for row in task.splits["train"].slice(0, ROWS).to_pylist():
        label = task.labels[row["label"]] if task.labels else f"{row['label']:g}"
        console.print(f"  {label}: {_short(row['text'] + ' ' + row['text_pair'])}", markup=False)
    if marks := marks_of(task.train_texts):
        how = "where the classifier reads" if reads_marks else "where the classifier also reads with --marks"
        console.print("the texts mark two spans by {} {} and {} {}, {}".format(*marks.signs, how), markup=False)
    if task.unused:
        console.print(f"columns that are not used: {', '.join(task.unused)}", markup=False)


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LETTERS else f"{words[: LETTERS - 1]}…"
