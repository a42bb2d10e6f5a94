"""Train the pretrained rivals: an encoder, frozen and fine-tuned, with settings chosen on dev.

    python experiments/rivals_pretrained.py --encoder FOLDER --tasks sciie chemprot --task-root data/tasks
    python experiments/rivals_pretrained.py --encoder FOLDER --called all-MiniLM-L6-v2 --passes 5 ...
    python experiments/rivals_pretrained.py --encoder FOLDER --tasks sciie --task-root data/tasks --marks
    python experiments/rivals_pretrained.py --encoder FOLDER --dry-run

Two rows: logistic regression on the frozen encoder's embeddings, and the encoder fine-tuned. The learning rate of each
task is chosen on dev, with seed 0 and all epochs: fewer would favour rates that are too high. Then all seeds train at
that rate.
Expected before running: fine-tuned above frozen, and above TF-IDF.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

import ray
import tyro

from tlm_ray import (
    Cluster,
    Data,
    Flow,
    Place,
    Recipe,
    Scale,
    Stage,
    Stages,
    TfIdf,
    Training,
    View,
    baseline,
    events,
    make,
    parse,
    plain_errors,
    ray_options,
    run,
    short_name,
    show_plan,
    show_reasons,
    storage,
)  # fmt: skip
from tlm_ray.plain import FrozenEncoder
from tlm_ray.runs.cli.options import settle
from tlm_ray.runs.cli.recipe_options import Changes, check_price
from tlm_ray.runs.flow.plain import PlainStages
from tlm_ray.runs.flow.training import plain_trainings
from tlm_ray.runs.preflight import check_starts, fitted
from tlm_ray.runs.recipes.fine_tuning import fine_tuning_passes, with_fine_tuning
from tlm_ray.runs.stages.registry import note
from tlm_ray.storage.digests import identity_of

NAME = "rivals_pretrained"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class Tasks(Data):
    """Which tasks; general text is not read."""

    corpus: Annotated[list[str], tyro.conf.Suppress] = field(default_factory=list)
    column: Annotated[str, tyro.conf.Suppress] = "text"


@dataclass(frozen=True, kw_only=True)
class Rivals:
    """Options of the table of pretrained rivals."""

    data: Tasks = field(default_factory=Tasks)
    place: Place = field(default_factory=Place)
    cluster: Cluster = field(default_factory=Cluster)
    encoder: str
    """hub name or local folder of the encoder, with its tokenizer and safetensors weights"""
    called: str = ""
    """its name in the table; default: the last part of its location"""
    seeds: int = 2
    """fine-tunings per task at the chosen rate, with seeds 0, 1, ..."""
    passes: list[int] = field(default_factory=list)
    """epochs of fine-tuning: one number, or one per task; default 10, or 3 with over 5,000 rows; 1,000 steps or more"""
    rates: list[float] = field(default_factory=lambda: [5e-5, 1e-4, 3e-4])
    """learning rates to choose from"""
    task_tokens: int | None = None
    """tokens per row when fine-tuning, longer texts are cut; default 128, or what three in four texts need"""
    marks: bool = False
    """the fine-tuned classifier also reads the states at the two spans that texts mark, such as [[ ... ]]"""
    dry_run: bool = False
    """list every stage, reused or to make, with its cost, and exit"""
    price: float | None = None
    """price per GPU hour (CPU hour without GPUs), for --dry-run"""
    why: bool = False
    """list every stage to make and how it differs from the nearest recorded one, and exit"""

    def __post_init__(self) -> None:
        settle(self, storage.absolute_if_there, "encoder")
        if self.seeds < 1:
            raise ValueError(f"--seeds {self.seeds}: must be 1 or more")
        check_price(self.price, dry_run=self.dry_run)
        if len(self.passes) not in (0, 1, len(self.data.tasks)) or any(each < 1 for each in self.passes):
            given, tasks = " ".join(map(str, self.passes)), len(self.data.tasks)
            raise ValueError(f"--passes {given}: give one number of 1 or more, or one for each of {tasks} tasks")
        if self.task_tokens is not None and self.task_tokens < 3:
            raise ValueError(f"--task-tokens {self.task_tokens}: must be 3 or more, two of which begin and end a row")
        if not self.rates or not all(0 < rate < 1 for rate in self.rates):
            raise ValueError(f"--rates {' '.join(map(str, self.rates))}: give one or more, each between 0 and 1")

    @property
    def rows(self) -> tuple[str, str]:
        """The names of the two rows: frozen, fine-tuned."""
        name = self.called or short_name(self.encoder)
        return f"{name} frozen + logistic regression", f"{name} fine-tuned"

    def passes_of(self, task: str, flow: Flow) -> int:
        """Return the epochs of fine-tuning on a task."""
        if self.passes:
            return (self.passes * len(self.data.tasks))[self.data.tasks.index(task)]
        return fine_tuning_passes(flow.train_rows(task))

    def recipe(self, task: str, flow: Flow, *, passes: int, rate: float) -> Recipe:
        """Return the recipe that fine-tunes the encoder on a task."""
        recipe = Scale().recipe(task, flow)
        rows = flow.train_rows(task)
        made = baseline(recipe, self.encoder, train_rows=rows)
        made = with_fine_tuning(made, train_rows=rows, passes=passes, learning_rate=rate)
        made = made if self.task_tokens is None else replace(made, task_tokens=self.task_tokens)
        return Changes(marks=self.marks).marked(made, task, flow, self.data.tasks)

    def without_training(self, flow: Flow) -> list[Training]:
        """Return the trainings of rows that train no encoder."""
        frozen = FrozenEncoder(source=self.encoder)
        own = [Training(row=self.rows[0], task=task, recipe=frozen) for task in self.data.tasks]
        return own + plain_trainings(flow, self.data.tasks)

    def tried(self, task: str, flow: Flow) -> dict[float, Training]:
        """Return the trainings that choose a task's rate."""
        passes = self.passes_of(task, flow)
        recipes = {rate: self.recipe(task, flow, passes=passes, rate=rate) for rate in self.rates}
        return {rate: Training(row=f"rate {rate:g}", task=task, recipe=recipe) for rate, recipe in recipes.items()}

    def dev_scores(self, task: str, flow: Flow) -> dict[float, float]:
        """Return the dev score of each rate that is trained so far."""
        records = {rate: trained(one, flow).record(self.place.root) for rate, one in self.tried(task, flow).items()}
        return {rate: record["facts"]["dev"] for rate, record in records.items() if record}

    def fine_tuned(self, task: str, flow: Flow) -> list[Training]:
        """Return a task's trainings at the best rate on dev (the first of equals, or if not all are trained)."""
        found = self.dev_scores(task, flow)
        rate = max(found, key=found.__getitem__) if len(found) == len(self.rates) else self.rates[0]
        recipe = self.recipe(task, flow, passes=self.passes_of(task, flow), rate=rate)
        return [Training(row=self.rows[1], task=task, recipe=recipe, seed=seed) for seed in range(self.seeds)]

    def trainings(self, flow: Flow) -> list[Training]:
        """Return the trainings of the table."""
        return self.without_training(flow) + [one for task in self.data.tasks for one in self.fine_tuned(task, flow)]

    def notes(self, flow: Flow) -> list[str]:
        """Return notes on the encoder, and on how its rates were chosen."""
        return [described(self.encoder), *(self._choice(task, flow) for task in self.data.tasks)]

    def _choice(self, task: str, flow: Flow) -> str:
        found, (first, *_) = self.dev_scores(task, flow), self.fine_tuned(task, flow)
        assert isinstance(first.recipe, Recipe)
        scores = ", ".join(f"{score:.1f} at {rate:g}" for rate, score in found.items())
        rate = first.recipe.stage_two.learning_rate
        edge = ", the highest tried" if len(self.rates) > 1 and rate == max(self.rates) else ""
        return (
            f"{short_name(task)}: fine-tuned for {self.passes_of(task, flow)} epochs at rate {rate:g}{edge}; "
            f"dev scores of seed 0: {scores}"
        )


def described(encoder: str) -> str:
    """Return a line about an encoder: kind, size and digest of its weights; ValueError if it does not open."""
    import transformers

    from tlm_ray.retrieval.methods.embedding import Encoder

    transformers.utils.logging.set_verbosity_error()  # no warning about a missing head, which is not needed
    transformers.utils.logging.disable_progress_bar()
    model, files = Encoder(encoder).model, identity_of(encoder).get("files", {})
    digest = f", {WEIGHTS} of sha256 {files[WEIGHTS]}" if WEIGHTS in files else ""
    size = f"{model.num_parameters() / 1e6:.1f} M weights"
    return f"{encoder}: {model.config.model_type} of {size}{digest}; its pretraining is not part of the costs"


def main() -> None:
    options = parse(Rivals, __doc__)
    events.write_to(options.place.log_json)
    flow = Flow(
        execution=options.cluster.execution(options.place),
        task_root=options.data.task_root,
        metric=options.data.metric,
        columns=options.data.columns,
    )
    tried = [one for task in options.data.tasks for one in options.tried(task, flow).values()]
    if options.dry_run or options.why:
        wanted = [*tried, *options.trainings(flow)]
        own: dict[str, Any] = {"last": partial(last_of, tried={trained(one, flow).fingerprint for one in tried})}
        show_plan(wanted, flow, price=options.price, **own) if options.dry_run else show_reasons(wanted, flow, **own)
        return
    print(described(options.encoder))
    ray.init(**ray_options())
    new = [one.recipe for one in tried if trained(one, flow).record(flow.execution.root) is None]
    check_starts(new, flow.execution)  # before the linear models, which take minutes
    uri = options.place.tracking_uri
    run(options.without_training(flow), flow, name=NAME, tracking_uri=uri)
    try_rates(tried, flow)
    outcome = run(options.trainings(flow), flow, name=NAME, tracking_uri=uri)
    frozen, tuned = options.rows
    view = View(against=tuned, expected=[(tuned, frozen), (tuned, TfIdf.name)])
    outcome.show(view, options.place.out, options.notes(flow))


def trained(training: Training, flow: Flow) -> Stage:
    """Return the stage that fine-tunes, which scores only dev."""
    assert isinstance(training.recipe, Recipe)
    return flow.stages(training.recipe, training.task, training.seed).last


def last_of(stages: Stages | PlainStages, tried: set[str]) -> Stage:
    """Return the stage to make: for a tried rate the one that fine-tunes."""
    is_tried = isinstance(stages, Stages) and stages.last.fingerprint in tried
    return stages.trained[-1] if is_tried else stages.metrics


def try_rates(tried: Sequence[Training], flow: Flow) -> None:
    """Make the trainings that choose rates, scored only on dev."""
    execution = fitted(flow.execution)
    flow = replace(flow, execution=execution)
    lasts = [trained(one, flow) for one in tried]
    note(execution.root, f"{NAME}_rates", lasts)
    make(lasts, execution.root, side_by_side=execution.side_by_side, overlap=execution.compute.apart)


if __name__ == "__main__":
    with plain_errors():
        main()
