"""tlm_ray: task-driven language modeling (Yao et al., ICML 2022) on Ray.

Give it labelled texts and a huge general corpus. It retrieves the tiny part of the corpus that matters for the task,
trains an encoder from scratch on both, then on the task alone.

The words used everywhere:

    corpus      the general text, any size; cut into *passages* of about 128 word pieces
        task        labelled texts with train, dev and test splits; training texts serve as the *queries*
        neighbours  the passages that a method retrieved for the queries, each with its best *rank*
        k           passages kept per query
        depth       passages retrieved per query; any smaller k is a prefix
        general     retrieved data, as opposed to the *task*'s own data
        block       a row of token ids for training; a *batch* is the rows of one optimizer step
        rho1        general batches per task batch; rho2: weight of the MLM loss in a task batch
        stage one   masked language modelling on general and task data, and the task; stage two: the task alone
        recipe      every setting that changes a result; *execution* settings change none
        stage       a result identified by its inputs: `root/name/fingerprint`; complete once `record.json` exists

Names are imported when they are first used, so that the pure parts (retrieval kernel, batches, masking) load neither
Ray nor MLflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; tests/test_door.py checks that both lists are equal
    from tlm_ray.corpus.hub import short_name as short_name
    from tlm_ray.corpus.manifest import open_corpus as open_corpus
    from tlm_ray.corpus.passages import PassageStore as PassageStore
    from tlm_ray.corpus.tasks import read_task as read_task
    from tlm_ray.plain import PLAIN as PLAIN
    from tlm_ray.plain import TfIdf as TfIdf
    from tlm_ray.plain import Windows as Windows
    from tlm_ray.report import Cell as Cell
    from tlm_ray.report import Results as Results
    from tlm_ray.report import View as View
    from tlm_ray.report import print_table as print_table
    from tlm_ray.report import publish as publish
    from tlm_ray.retrieval.selection import SelectionStore as SelectionStore
    from tlm_ray.runs.cli.connection import ray_options as ray_options
    from tlm_ray.runs.cli.errors import plain_errors as plain_errors
    from tlm_ray.runs.cli.options import Cluster as Cluster
    from tlm_ray.runs.cli.options import Corpora as Corpora
    from tlm_ray.runs.cli.options import Data as Data
    from tlm_ray.runs.cli.options import Folders as Folders
    from tlm_ray.runs.cli.options import OneTask as OneTask
    from tlm_ray.runs.cli.options import Place as Place
    from tlm_ray.runs.cli.options import Workers as Workers
    from tlm_ray.runs.cli.options import open_flow as open_flow
    from tlm_ray.runs.cli.options import parse as parse
    from tlm_ray.runs.cli.recipe_options import Budget as Budget
    from tlm_ray.runs.cli.recipe_options import Changes as Changes
    from tlm_ray.runs.cli.recipe_options import Methods as Methods
    from tlm_ray.runs.cli.recipe_options import Mixture as Mixture
    from tlm_ray.runs.cli.recipe_options import Passages as Passages
    from tlm_ray.runs.cli.recipe_options import Scale as Scale
    from tlm_ray.runs.cli.recipe_options import TrainingOptions as TrainingOptions
    from tlm_ray.runs.cli.table import Table as Table
    from tlm_ray.runs.cli.table import present as present
    from tlm_ray.runs.experiment import run as run
    from tlm_ray.runs.experiment import show_plan as show_plan
    from tlm_ray.runs.experiment import show_reasons as show_reasons
    from tlm_ray.runs.flow.flow import Flow as Flow
    from tlm_ray.runs.flow.training import Training as Training
    from tlm_ray.runs.outcome import Outcome as Outcome
    from tlm_ray.runs.recipes.paper import baseline as baseline
    from tlm_ray.runs.recipes.paper import pretraining as pretraining
    from tlm_ray.runs.recipes.paper import recipe_for as recipe_for
    from tlm_ray.runs.recipes.recipe import Recipe as Recipe
    from tlm_ray.runs.recipes.space import Space as Space
    from tlm_ray.runs.recipes.space import read_values as read_values
    from tlm_ray.runs.stages.making import Execution as Execution
    from tlm_ray.runs.stages.making import make as make
    from tlm_ray.runs.stages.stage import Stage as Stage
    from tlm_ray.runs.stages.stage import Stages as Stages
    from tlm_ray.runs.sweeps.searches import Scheduler as Scheduler
    from tlm_ray.runs.sweeps.searches import Search as Search
    from tlm_ray.runs.sweeps.sweeping import best_recipe as best_recipe
    from tlm_ray.runs.sweeps.sweeping import show_sweep as show_sweep
    from tlm_ray.runs.sweeps.sweeping import sweep as sweep
    from tlm_ray.runs.sweeps.trials import Trials as Trials
    from tlm_ray.runs.sweeps.tuning import Limits as Limits
    from tlm_ray.training.inference import Predictions as Predictions
    from tlm_ray.training.inference import predict_texts as predict_texts
    from tlm_ray.training.predictor import Predictor as Predictor

_DOOR = {
    "short_name": "tlm_ray.corpus.hub",
    "open_corpus": "tlm_ray.corpus.manifest",
    "PassageStore": "tlm_ray.corpus.passages",
    "read_task": "tlm_ray.corpus.tasks",
    "PLAIN": "tlm_ray.plain",
    "TfIdf": "tlm_ray.plain",
    "Windows": "tlm_ray.plain",
    "Cell": "tlm_ray.report",
    "Results": "tlm_ray.report",
    "View": "tlm_ray.report",
    "print_table": "tlm_ray.report",
    "publish": "tlm_ray.report",
    "SelectionStore": "tlm_ray.retrieval.selection",
    "Table": "tlm_ray.runs.cli.table",
    "present": "tlm_ray.runs.cli.table",
    "ray_options": "tlm_ray.runs.cli.connection",
    "plain_errors": "tlm_ray.runs.cli.errors",
    "Execution": "tlm_ray.runs.stages.making",
    "make": "tlm_ray.runs.stages.making",
    "run": "tlm_ray.runs.experiment",
    "show_plan": "tlm_ray.runs.experiment",
    "show_reasons": "tlm_ray.runs.experiment",
    "Cluster": "tlm_ray.runs.cli.options",
    "Corpora": "tlm_ray.runs.cli.options",
    "Data": "tlm_ray.runs.cli.options",
    "Folders": "tlm_ray.runs.cli.options",
    "OneTask": "tlm_ray.runs.cli.options",
    "Place": "tlm_ray.runs.cli.options",
    "Workers": "tlm_ray.runs.cli.options",
    "open_flow": "tlm_ray.runs.cli.options",
    "parse": "tlm_ray.runs.cli.options",
    "Outcome": "tlm_ray.runs.outcome",
    "Flow": "tlm_ray.runs.flow.flow",
    "Budget": "tlm_ray.runs.cli.recipe_options",
    "Changes": "tlm_ray.runs.cli.recipe_options",
    "Methods": "tlm_ray.runs.cli.recipe_options",
    "Mixture": "tlm_ray.runs.cli.recipe_options",
    "Passages": "tlm_ray.runs.cli.recipe_options",
    "Scale": "tlm_ray.runs.cli.recipe_options",
    "TrainingOptions": "tlm_ray.runs.cli.recipe_options",
    "Recipe": "tlm_ray.runs.recipes.recipe",
    "baseline": "tlm_ray.runs.recipes.paper",
    "pretraining": "tlm_ray.runs.recipes.paper",
    "recipe_for": "tlm_ray.runs.recipes.paper",
    "Training": "tlm_ray.runs.flow.training",
    "Stage": "tlm_ray.runs.stages.stage",
    "Stages": "tlm_ray.runs.stages.stage",
    "Limits": "tlm_ray.runs.sweeps.tuning",
    "Scheduler": "tlm_ray.runs.sweeps.searches",
    "Search": "tlm_ray.runs.sweeps.searches",
    "Space": "tlm_ray.runs.recipes.space",
    "Trials": "tlm_ray.runs.sweeps.trials",
    "best_recipe": "tlm_ray.runs.sweeps.sweeping",
    "read_values": "tlm_ray.runs.recipes.space",
    "show_sweep": "tlm_ray.runs.sweeps.sweeping",
    "sweep": "tlm_ray.runs.sweeps.sweeping",
    "Predictions": "tlm_ray.training.inference",
    "predict_texts": "tlm_ray.training.inference",
    "Predictor": "tlm_ray.training.predictor",
}
__all__ = list(_DOOR)
__version__ = "0.1.0"

if not TYPE_CHECKING:  # else a type checker would accept every name, as Any

    def __getattr__(name: str) -> Any:
        if name not in _DOOR:
            raise AttributeError(f"module 'tlm_ray' has no attribute {name!r}")
        return getattr(import_module(_DOOR[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_DOOR])
