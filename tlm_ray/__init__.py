"""tlm_ray: task-driven language modeling (Yao et al., ICML 2022) on Ray.

Give it labelled texts and a huge general corpus. It retrieves the tiny part of the corpus that matters for the task,
trains an encoder from scratch on both, then on the task alone.

The words used everywhere:

    corpus      the general text, any size; cut into *passages* of about 128 word pieces
    task        labelled texts with train, dev and test splits; its training texts are the *queries*
    neighbours  the passages that a method retrieved for the queries, each with its best *rank*
    k           passages kept a query; *depth*: passages retrieved a query, so that any smaller k is a cut
    general     data that was retrieved; *task* data is the task's own
    block       a row of token ids as training reads it; a *batch* is the rows of one optimizer step
    rho1        general batches a task batch; rho2: weight of the MLM loss in a task batch
    stage one   masked language modelling on general and task data, and the task; stage two: the task alone
    recipe      every number that decides a result; *execution* is everything that does not
    stage       a result named by what made it: `root/name/fingerprint`, complete when `record.json` is there

Names are imported when they are first used, so that the pure parts (retrieval kernel, batches, masking) load neither
Ray nor MLflow.
"""

from importlib import import_module
from typing import Any

_DOOR = {
    "Options": "tlm_ray.runs.options",
    "ray_options": "tlm_ray.runs.connection",
    "plain_errors": "tlm_ray.runs.options",
    "Training": "tlm_ray.runs.experiment",
    "Outcome": "tlm_ray.runs.experiment",
    "run": "tlm_ray.runs.experiment",
    "show_plan": "tlm_ray.runs.experiment",
    "Recipe": "tlm_ray.runs.recipes",
    "recipe_for": "tlm_ray.runs.recipes",
    "baseline": "tlm_ray.runs.recipes",
    "Flow": "tlm_ray.runs.pipeline",
    "Execution": "tlm_ray.runs.execution",
    "Stage": "tlm_ray.runs.stages",
    "make": "tlm_ray.runs.execution",
    "Space": "tlm_ray.runs.sweeping",
    "sweep": "tlm_ray.runs.sweeping",
    "show_sweep_plan": "tlm_ray.runs.sweeping",
    "best_recipe": "tlm_ray.runs.sweeping",
    "predict_texts": "tlm_ray.training.inference",
    "read_task": "tlm_ray.corpus.tasks",
    "open_corpus": "tlm_ray.corpus.manifest",
    "Cell": "tlm_ray.report",
    "markdown_rows": "tlm_ray.report",
    "print_table": "tlm_ray.report",
    "publish_table": "tlm_ray.report",
}
__all__ = list(_DOOR)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"module 'tlm_ray' has no attribute {name!r}")
    return getattr(import_module(_DOOR[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_DOOR])
