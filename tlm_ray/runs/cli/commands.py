"""Commands to go on with, to print at the end of another."""

import os
import shlex

from tlm_ray.command import VIA
from tlm_ray.corpus.labelled.tasks import Task


def predict_command(task: Task, models: list[str]) -> str:
    """Return the command that predicts new texts from a file like the task's."""
    program = ["tlm", "predict"] if os.environ.get(VIA) else ["python", "experiments/predict.py"]
    pair = ["--pair-column", task.columns.text_pair] if task.columns.text_pair else []
    words = ["--column", task.columns.text, *pair, "--out", "predictions"]
    return shlex.join([*program, "--model", *models, "--texts", "new.csv", *words])
