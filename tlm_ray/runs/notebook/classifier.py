"""TLM as a scikit-learn classifier: fit on texts, predict, save."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import ray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.corpus.general.manifest import Corpus
from tlm_ray.evaluation.scores import Metric, metric_named
from tlm_ray.report.frames import learning_frame
from tlm_ray.report.story import Learned
from tlm_ray.runs.card import CARD, Scored, keep_card, model_card, read_card
from tlm_ray.runs.cli.connection import ray_options
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.notebook.arguments import check_arguments, corpus_of
from tlm_ray.runs.notebook.inputs import check_classes, signs_of, splits_of, texts_of
from tlm_ray.runs.notebook.rows import FOLDER, names_of, write_rows
from tlm_ray.runs.planning.minutes import is_enough, within
from tlm_ray.runs.preflight import check_cluster, check_starts, fitted
from tlm_ray.runs.recipes.adaptation import adapted
from tlm_ray.runs.recipes.budget import part_of
from tlm_ray.runs.recipes.marking import reading_marks
from tlm_ray.runs.recipes.paper import baseline, recipe_for, size_of
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.recipes.resizing import resized
from tlm_ray.runs.stages.making import Execution, make
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.registry import note
from tlm_ray.runs.telling import curves_of, learned_of
from tlm_ray.training.settings import MODEL

if TYPE_CHECKING:
    import pandas as pd

CLASSES = "classes.json"  # of a saved model
KINDS = (str, int, float, bool)  # of labels that a saved model can have


class TLMClassifier(ClassifierMixin, BaseEstimator):
    """A text classifier with scikit-learn's interface; what it made before is found by its content.

    corpus: unlabelled text of the same kind: a location or several, or a Ray Dataset; None trains on the labels alone.
    start: a pretrained encoder to adapt (hub name or local folder) instead of training from scratch. layers: keep only
    so many of its layers, evenly spaced, and its 5,000 most frequent pieces. scale, recipe: the recipe by name, or one
    of your own; with `start` those for CPUs fine-tune, after a third of stage one. minutes, part: a budget for the
    training, or the share of the recipe's tokens to train on. marks: the texts mark two spans, such as
    [[ this ]] and << that >>, whose states the classifier reads too. metric: chooses the model on dev. text, label:
    columns of a table in `fit`. column: that of the corpus. root: folder of all results. execution: workers and GPUs,
    which change no result, such as `Execution(root="", compute=Compute(...))`. verbose: print the progress. A tenth of
    the texts is the dev set, unless the data has one.
    """

    def __init__(
        self,
        corpus: Any = None,
        *,
        start: str = "",
        layers: int | None = None,
        scale: str = "mini",
        recipe: Recipe | None = None,
        minutes: float | None = None,
        part: float | None = None,
        marks: bool = False,
        metric: str | Metric = "macro_f1",
        seed: int = 0,
        text: str = "text",
        label: str = "label",
        column: str = "text",
        root: str = ".tlm",
        execution: Execution | None = None,
        verbose: bool = True,
    ):
        self.corpus = corpus
        self.start = start
        self.layers = layers
        self.scale = scale
        self.recipe = recipe
        self.minutes = minutes
        self.part = part
        self.marks = marks
        self.metric = metric
        self.seed = seed
        self.text = text
        self.label = label
        self.column = column
        self.root = root
        self.execution = execution
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> "TLMClassifier":
        """Retrieve, train and keep the model; X: texts, pairs of texts, or a table that has the labels too.

        ValueError names the argument, the row and the fix, before anything is trained.
        """
        check_arguments(self)
        splits = splits_of(X, y, text=self.text, label=self.label)
        check_classes(splits)
        signs = signs_of(splits["train"]) if self.marks else ()
        classes = _sorted({each for rows in splits.values() for each in rows.labels})
        known = dict(zip(names_of(classes), classes, strict=True))
        with _told(self.verbose):
            flow = self._flow()
            task = write_rows(flow.execution.root, splits, {each: name for name, each in known.items()})
            recipe = self._recipe(flow, task, signs)
            stages = flow.stages(recipe, task, self.seed)
            if stages.last.record(flow.execution.root) is None:
                check_starts([recipe], flow.execution)
            note(flow.execution.root, FOLDER, [stages.last])
            make([stages.last], flow.execution.root)
        read = flow.read(task)
        self.n_features_in_ = len(splits["train"].texts)
        self.model_ = storage.join(stages.last.folder(flow.execution.root), MODEL)
        self.classes_ = _array(classes)
        self.order_ = np.array([read.labels.index(name) for name in known])
        records = Records(flow.execution.root)
        facts = [records.facts(stage) for stage in stages.trained]
        self.learned_ = learned_of(stages, records, row=type(self).__name__, task=FOLDER, seed=self.seed)
        self.dev_score_: float = facts[-1]["dev"]
        scores = [Scored(split="dev", metric=metric_named(self.metric).name, value=self.dev_score_)]
        self.card_ = model_card(stages, records, task="own labels", scores=scores, made=self._called())
        rows, seconds = [len(read.splits[split]) for split in ("train", "dev")], sum(each["seconds"] for each in facts)
        self.report_ = (
            f"{len(classes)} classes, {rows[0]:,} rows to train on, {rows[1]:,} of dev",
            f"{read.metric} on dev: {self.dev_score_:.1f}",
            f"{facts[-1]['parameters'] / 1e6:.1f} M weights, {seconds:.0f} s of training",
            f"model: {storage.shown(self.model_)}",
        )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each text."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, (texts, classes), in the order of `classes_`."""
        from tlm_ray.training.scoring.predictor import PROBABILITIES, Predictor  # transformers takes 3 s

        self._check_fitted()
        texts = texts_of(X)
        if len(texts) != self.n_features_in_:
            raise ValueError(f"X: has {len(texts)} columns of texts, fit had {self.n_features_in_}; give as many")
        predictor = Predictor(self.model_, pair_column="text_pair" if len(texts) > 1 else "")
        table = pa.table(dict(zip(("text", "text_pair"), texts, strict=False)))
        return np.array(predictor(table)[PROBABILITIES].to_pylist())[:, self.order_]

    def save(self, folder: str) -> None:
        """Copy the model to a folder, which transformers opens too; ValueError for labels that JSON cannot hold."""
        self._check_fitted()
        folder, classes = storage.lasting(folder, "folder"), self.classes_.tolist()
        if wrong := [each for each in classes if not isinstance(each, KINDS)]:
            raise ValueError(f"label {wrong[0]!r}: is a {type(wrong[0]).__name__}; save takes texts and numbers")
        storage.copy_folder(self.model_, folder, without=(CARD,))
        keep_card(folder, self.card_)
        told = {"classes": classes, "order": self.order_.tolist(), "columns": self.n_features_in_}
        told |= {"dev": self.dev_score_, "report": self.report_, "learned": [asdict(each) for each in self.learned_]}
        storage.write_json(storage.join(folder, CLASSES), told)

    @classmethod
    def load(cls, folder: str) -> "TLMClassifier":
        """Open a model that `save` wrote."""
        if not storage.exists(file := storage.join(folder, CLASSES)):
            raise ValueError(
                f"folder {folder!r}: has no {CLASSES}; give one that `save` wrote (tlm_ray.Predictor opens any model)"
            )
        told, found = storage.read_json(file), cls()
        found.model_, found.n_features_in_ = storage.absolute(folder), told["columns"]
        found.classes_, found.order_ = _array(told["classes"]), np.array(told["order"])
        found.dev_score_, found.report_, found.card_ = told["dev"], tuple(told["report"]), read_card(folder)
        learned = told.get("learned", ())  # not in folders of earlier versions, or with more than curves
        found.learned_ = [Learned(**each | {"history": curves_of(each["history"])}) for each in learned]
        return found

    def report(self) -> str:
        """Return a few lines about the fitted model: its data, its dev score, its training and its folder."""
        self._check_fitted()
        return "\n".join(self.report_)

    def to_pandas(self) -> "pd.DataFrame":
        """Return the learning curves of the fitted model: stage, step, losses and dev score."""
        self._check_fitted()
        return learning_frame(self.learned_)

    def _html_repr(self) -> str:
        """Return what a notebook shows: the report and the learning curves, before `fit` scikit-learn's diagram."""
        if not hasattr(self, "model_"):
            return super()._html_repr()
        from tlm_ray.report.page import elements  # matplotlib takes 0.4 s

        return elements.model_html(self.report_, self.learned_)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: it takes texts, and no numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def _called(self) -> str:
        """Return the call that made this classifier, in one line, without the credentials of locations."""
        usual = type(self)().get_params(deep=False)
        given = {name: value for name, value in self.get_params(deep=False).items() if value is not usual[name]}
        words = [f"{name}={' '.join(storage.shown(repr(value)).split())}" for name, value in given.items()]
        return f"{type(self).__name__}({', '.join(words)})"

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError("TLMClassifier: call fit first")

    def _flow(self) -> Flow:
        """Return the flow over the corpus; connects to Ray if nobody has."""
        root = storage.lasting(self.root, "root", ".tlm")
        corpus = None if self.start and self.marks else corpus_of(self, root)
        if not ray.is_initialized():
            ray.init(**ray_options())  # Ray's own start would print lines of workers, and open a dashboard
        execution = fitted(replace(self.execution or Execution(root=root), root=root))
        check_cluster(execution, corpus.locations if isinstance(corpus, Corpus) else ())
        return Flow(execution=execution, corpus=corpus, metric=self.metric, column=self.column)

    def _recipe(self, flow: Flow, task: str, signs: Sequence[str] = ()) -> Recipe:
        """Return the recipe for a task's rows, within the budget; without a corpus it has no general text.

        signs: brackets of the spans that the classifier reads too.
        """
        size = size_of(flow.read(task).train_texts)
        recipe = self.recipe or recipe_for(FOLDER, self.scale, **size)
        if self.corpus is None:
            console.print("corpus: none, so the model learns from the labelled texts alone; text of their kind helps")
        if self.start:
            made = self._fine_tuned(recipe, size["train_rows"], flow)
        else:
            made = replace(recipe, k=0, rho1=0) if self.corpus is None else recipe
        made = reading_marks(made, signs) if signs else made
        made = made.settled(gpu=bool(flow.execution.compute.gpu))
        changes: Sequence[str] = []
        if self.minutes is not None:
            made, changes = within(self.minutes, made, flow.execution)
        elif self.part is not None:
            made, changes = part_of(made, self.part)
        for change in changes:
            console.print(change)
        return made

    def _fine_tuned(self, recipe: Recipe, rows: int, flow: Flow) -> Recipe:
        """Return the recipe of `start`: adapted to the corpus if there is one and the minutes are enough.

        One that reads marks is fine-tuned alone: adapting it brought -0.9 points on sciie (-2.7 to 1.0) and -0.4 on
        chemprot (-1.8 to 1.1), with 5 seeds each (RECORDS.md).
        """
        start = storage.absolute_if_there(str(self.start))
        if self.corpus is not None and self.marks:
            console.print("corpus: left out, because no gain of adapting an encoder that reads marks was shown")
        elif self.corpus is not None:
            made = self._cut(adapted(recipe, start, train_rows=rows))
            if is_enough(self.minutes, made, flow.execution):
                return made
            console.print(f"minutes {self.minutes:g}: too few to adapt the encoder, so it is fine-tuned alone")
        return self._cut(baseline(recipe, start, train_rows=rows))

    def _cut(self, recipe: Recipe) -> Recipe:
        return resized(recipe, layers=None if self.layers is None else int(self.layers))


@contextmanager
def _told(verbose: bool) -> Iterator[None]:
    """Print the progress, or nothing."""
    before, console.quiet = console.quiet, not verbose
    try:
        yield
    finally:
        console.quiet = before


def _sorted(classes: set[Any]) -> list[Any]:
    try:
        return sorted(classes)
    except TypeError:  # of a type without an order
        return sorted(classes, key=repr)


def _array(classes: Sequence[Any]) -> np.ndarray:
    """Return classes as an array: numpy would make tuples rows of a matrix."""
    if all(isinstance(each, KINDS) for each in classes):
        return np.array(classes)
    found = np.empty(len(classes), object)
    found[:] = classes
    return found
