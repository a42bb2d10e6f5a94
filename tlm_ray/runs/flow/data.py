"""Lay out the data stages: corpora and tasks, embedded or from files, and passages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

from tlm_ray import storage
from tlm_ray.console import console
from tlm_ray.corpus.cleaning import Cleaning
from tlm_ray.corpus.cleaning.job import CLEANING_VERSION, check_libraries, clean_corpus, pages_of
from tlm_ray.corpus.cleaning.steps import SOURCE
from tlm_ray.corpus.cleaning.steps import WORK as CLEANING_WORK
from tlm_ray.corpus.embedded import packages
from tlm_ray.corpus.embedded.embedded_task import SEED
from tlm_ray.corpus.general.dataset import FOLDER, corpus_from
from tlm_ray.corpus.general.manifest import Corpus, open_corpus
from tlm_ray.corpus.general.passages import PASSAGES_VERSION, WORK, cut_passages
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.corpus.labelled.task_columns import Columns
from tlm_ray.corpus.labelled.tasks import UNNAMED, Task, read_task, write_task
from tlm_ray.evaluation.scores import Metric, metric_named
from tlm_ray.identity import set_later
from tlm_ray.runs.flow import work
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.locks import locked
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.stage import Stage

if TYPE_CHECKING:
    import ray.data

EMBEDDED = "docstrings"  # the name of the embedded corpus and of its task
EMBEDDED_ROWS = 504  # training rows of the embedded task, for recipes that depend on them
# since these versions, the stages' files and all results made from them carry a sha256
DOCUMENTS_VERSION, TASK_VERSION = 3, 2
PAIRS = {"held_out": "each text of a pair"}  # earlier versions held out only both, joined
TAGS = {"tags": "removed"}  # earlier versions took names of tags for words


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Where a stage reads documents from, and how that identifies its result."""

    open: Callable[[Mapping[str, str]], Corpus]
    """opens them, given the locations of the stage's inputs"""
    parameters: dict[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Stage] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    size: int = 0
    """bytes; 0 if unknown before it is made"""
    names: str = ""
    """column with the names of the documents' files, see `cut_passages`"""


@dataclass(frozen=True, kw_only=True)
class DataFlow:
    """The sources of data, and the stages that read them."""

    execution: Execution
    corpus: "Corpus | ray.data.Dataset | None" = None
    """the general corpus: None for the embedded one, or a Ray Dataset, whose texts are written below the root once"""
    corpora: "Mapping[str, Corpus | ray.data.Dataset]" = field(default_factory=dict)
    """further corpora by name, for recipes that name one"""
    column: str = "text"
    """name of the text column of Datasets"""
    task_root: str = ""
    """folder of named tasks; "" for the hub"""
    metric: str | Metric = ""
    """metric instead of the tasks' own: a name, or a Metric of your own; "" for the tasks' own"""
    columns: Columns = UNNAMED
    """columns of text and label in the tasks' files; unnamed ones are found by name"""

    def __post_init__(self) -> None:
        """Write what is a Dataset, so that all corpora are files."""
        if self.corpus is not None:
            object.__setattr__(self, "corpus", self._as_files(self.corpus))
        object.__setattr__(self, "corpora", {name: self._as_files(given) for name, given in self.corpora.items()})

    def _as_files(self, given: "Corpus | ray.data.Dataset") -> Corpus:
        """Return a corpus, or a Dataset's once no other job writes one: a file that is written again has changed."""
        if isinstance(given, Corpus):
            return given
        with locked(self.execution.root, f"{FOLDER}/texts", wait=True):
            return corpus_from(given, root=self.execution.root, column=self.column)

    @cached_property
    def documents(self) -> Stage:
        """The stage of the embedded corpus and task, from the docstrings of installed packages."""
        return Stage(
            name="documents",
            version=DOCUMENTS_VERSION,
            parameters={"packages": packages.installed_packages(), "seed": SEED},
            make=lambda folder, _: work.write_docstrings(folder, workers=self.execution.workers),
            cost={"seconds": 60.0},
        )

    def passages(self, recipe: Recipe) -> Stage:
        """Return the stage of the corpus cut into passages."""
        corpus, share = self.corpus_of(recipe), recipe.corpus_share
        source = self._source(corpus) if recipe.cleaning is None else self._cleaned(corpus, recipe.cleaning)
        parameters = {"passage_tokens": recipe.passage_tokens} | ({"share": share} if share < 1 else {})
        beside = storage.join(self.execution.root, "passages")
        options: dict[str, Any] = parameters | {"workers": self.execution.workers, "beside": beside}
        return Stage(
            name="passages",
            version=PASSAGES_VERSION,
            parameters=parameters | source.parameters,
            inputs=source.inputs,
            parts=source.parts,
            make=lambda folder, inputs: cut_passages(folder, source.open(inputs), source=source.names, **options),
            scratch=WORK,
            cost={"bytes": share * source.size} if source.size else {"seconds": 10.0},
        )

    def cleaned(self, corpus: Corpus | None, cleaning: Cleaning) -> Stage:
        """Return the stage of a corpus' cleaned pages; None for the embedded corpus."""
        check_libraries(cleaning)
        source, workers = self._source(corpus), self.execution.workers
        return Stage(
            name="cleaned",
            version=CLEANING_VERSION,
            parameters={"cleaning": cleaning} | source.parameters,
            inputs=source.inputs,
            parts=source.parts,
            make=lambda folder, inputs: clean_corpus(folder, source.open(inputs), cleaning, workers=workers),
            scratch=CLEANING_WORK,
            cost={"bytes": source.size} if source.size else {"seconds": 30.0},
        )

    def _source(self, corpus: Corpus | None) -> "_Source":
        """Return where documents are read from: a corpus, or None for the embedded one."""
        if corpus is None:
            return _Source(
                open=lambda inputs: open_corpus(_whole(inputs["documents"], "corpus"), column="text"),
                inputs={"documents": self.documents},
            )
        return _Source(
            open=lambda _: corpus,
            parameters=corpus.readers | {"column": corpus.column, "corpus": corpus.digest},
            parts={"corpus": {file.name: file.digest for file in corpus.files}},
            size=corpus.size,
        )

    def _cleaned(self, corpus: Corpus | None, cleaning: Cleaning) -> "_Source":
        return _Source(
            open=lambda inputs: pages_of(inputs["cleaned"]),
            inputs={"cleaned": self.cleaned(corpus, cleaning)},
            size=0 if corpus is None else corpus.size,
            names=SOURCE,
        )

    @property
    def all_corpora(self) -> list[Corpus]:
        """The general corpora, without the embedded one."""
        return cast("list[Corpus]", [*([] if self.corpus is None else [self.corpus]), *self.corpora.values()])

    def corpus_of(self, recipe: Recipe) -> Corpus | None:
        """Return the general corpus of a recipe; None for the embedded one."""
        if not recipe.corpus:
            return cast("Corpus | None", self.corpus)
        if recipe.corpus not in self.corpora:
            raise ValueError(f"corpus {recipe.corpus!r}: the flow's corpora are {', '.join(self.corpora) or 'none'}")
        return cast("Corpus", self.corpora[recipe.corpus])

    def is_embedded(self, task: str) -> bool:
        """Return whether a task is the embedded one."""
        return task == EMBEDDED and not self.task_root

    def task(self, name: str) -> Stage:
        """Return the stage of a task. Files are read and checked now, the embedded task when its stage runs."""
        if self.is_embedded(name):
            metric = metric_named(self.metric or "accuracy")
            return Stage(
                name="task",
                version=TASK_VERSION,
                parameters={"name": EMBEDDED, "metric": metric.name},
                inputs={"documents": self.documents},
                make=lambda folder, inputs: write_task(
                    folder, read_task(_whole(inputs["documents"], "task"), metric=metric)
                ),
                cost={"seconds": 1.0},
                label=name,
            )
        task = self.read(name)
        return Stage(
            name="task",
            version=TASK_VERSION,
            parameters={"metric": task.metric, "labels": task.labels, "digests": task.digests},
            parts={"digests": dict(zip(("train", "dev", "test"), task.digests, strict=True))},
            make=lambda folder, _: write_task(folder, task),
            cost={"seconds": 1.0},
            label=short_name(name),
        )

    def reading(self, *tasks: str) -> dict[str, str]:
        """Return how retrieval reads these tasks where earlier versions read them otherwise; {} for most tasks."""
        read = [self.read(task) for task in tasks if not self.is_embedded(task)]
        pairs, tags = any(task.has_pairs for task in read), any(task.tags for task in read)
        return (PAIRS if pairs else {}) | (TAGS if tags else {})

    def train_rows(self, task: str) -> int:
        """Return the number of a task's training rows."""
        return EMBEDDED_ROWS if self.is_embedded(task) else len(self.read(task).splits["train"])

    @property
    def scoring(self) -> dict[str, Any]:
        """The version of a metric of your own, as a further parameter of the stages that score."""
        later = set_later(self.metric) if isinstance(self.metric, Metric) else {}
        return {f"metric_{name}": value for name, value in later.items()}

    def read(self, name: str) -> Task:
        """Read a task from files, once per process, and print the notes about them."""
        return task_once(name, self.task_root, self.metric, self.columns)


def of_numbers(*blocks: Stage) -> dict[str, Any]:
    """Return a further parameter of trainings on numbers, which earlier ones learned in the labels' unit."""
    tasks = [stage.inputs["task"].parameters for stage in blocks if "task" in stage.inputs]
    return {"numbers": "standardised"} if any(task.get("labels") == () for task in tasks) else {}


@lru_cache(maxsize=64)
def task_once(name: str, task_root: str, metric: str | Metric, columns: Columns) -> Task:
    """Read a task and print its notes, once per process, so that all trainings of an experiment see the same files."""
    task = read_task(name, task_root=task_root, metric=metric, columns=columns)
    for note in task.notes:
        console.print(f"{task.name}: {note}", markup=False)
    return task


def _whole(documents: str, part: str) -> str:
    """Return the folder of the embedded corpus or task; ValueError names a corrupt file."""
    storage.check_sums(documents)
    return storage.join(documents, part)
