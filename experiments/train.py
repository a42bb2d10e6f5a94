"""Train one classifier for one task: retrieve, train, and copy the model of the best seed to --model.

    python experiments/train.py                                                          # embedded data
    python experiments/train.py --tasks reviews --task-root data/tasks --corpus data/corpus --model reviews-model
    python experiments/train.py ... --start google-bert/bert-base-uncased  # adapt it by retrieved text, then fine-tune
    python experiments/train.py ... --start google-bert/bert-base-uncased --before plain # fine-tune alone
    python experiments/train.py ... --start sentence-transformers/all-MiniLM-L6-v2 --layers 2   # a smaller one of it
    python experiments/train.py ... --seeds 1 --ensemble         # keep an encoder and a linear model, to average
    python experiments/train.py ... --seeds 5 --ensemble         # keep all seeds' models and a linear one, to average
    python experiments/train.py ... --part 0.33                  # train on a third of the recipe's tokens
    python experiments/train.py ... --seeds 5 --student          # one model, distilled from all seeds
    python experiments/train.py ... --teachers larger-model      # one model, distilled from any trained ones
    python experiments/train.py ... --teachers larger-model --ensemble   # keep a linear model beside it, to average
    python experiments/train.py ... --register reviews           # also in MLflow's registry

The folder opens with transformers, and with `experiments/predict.py`. The best seed is chosen on the dev set. The table
also has baselines: linear models on words, and BM25 neighbours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, Any, Literal

import ray
import tyro
from rich.console import Console
from rich.table import Table

from tlm_ray import (
    Flow,
    Mixture,
    OneTask,
    Recipe,
    Training,
    TrainingOptions,
    open_flow,
    parse,
    plain_errors,
    ray_options,
    run,
    show_plan,
    show_reasons,
    storage,
)  # fmt: skip
from tlm_ray.console import print_once
from tlm_ray.plain.linear import Linear
from tlm_ray.report.tables.cells import Cell
from tlm_ray.runs.cli.commands import predict_command
from tlm_ray.runs.cli.options import Place, settle_results
from tlm_ray.runs.cli.preview import show_task
from tlm_ray.runs.cli.recipe_options import Before, EncoderSize
from tlm_ray.runs.experiment import has_pipeline
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.flow.training import plain_trainings
from tlm_ray.runs.groups import name_of_mean
from tlm_ray.runs.outcome import LINEAR
from tlm_ray.storage.listing import check_only

ROW, STUDENT = "train", "student"


@dataclass(frozen=True, kw_only=True)
class ModelPlace(Place):
    """Locations of stages and of tracking; no tables are written."""

    out: Annotated[str, tyro.conf.Suppress] = ""

    def __post_init__(self) -> None:
        settle_results(self, root=".tlm")


@dataclass(frozen=True, kw_only=True)
class Train(TrainingOptions):
    """Options of one training."""

    data: OneTask = field(default_factory=OneTask)
    mixture: Mixture = field(default_factory=Mixture)
    place: ModelPlace = field(default_factory=ModelPlace)
    seeds: int = 2
    """number of trainings, with seeds 0, 1, ...; the best on dev is kept"""
    model: str = "model"
    """folder or URI for the trained model"""
    keep: Literal["encoder", "best"] = "encoder"
    """what goes to --model: the encoder, or the linear model instead if that has the higher dev score"""
    ensemble: bool = False
    """keep an ensemble: the models of all seeds and the linear model that is best on dev, in the folders `seed-0`, ...,
    `linear`. With --student or --teachers: the student in place of the seeds"""
    student: bool = False
    """keep one model, distilled from the ensemble of all seeds"""
    teachers: list[str] = field(default_factory=list)
    """keep one model, distilled from these: folders of encoders, of any tokenizer, or of linear models. From scratch
    and without --student it takes four times the steps of stage two"""
    register: str = ""
    """name under which MLflow registers the kept model"""
    start: str = ""
    """a pretrained encoder to fine-tune instead of training from scratch: hub name or local folder"""
    size: EncoderSize = field(default_factory=EncoderSize)
    student_layers: int | None = None
    """with --student: layers of the student, which is fine-tuned in twice the steps. Its teachers keep all layers and
    have the --new-words"""
    before: Before | None = None
    """training before the fine-tuning of --start: adapted (a short TLM, the default with a corpus, enough minutes and
    no --marks), plain (none, the default otherwise), mlm, tapt, dapt, dapt+tapt or tlm"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start and self.changes.architecture:
            raise ValueError(f"--architecture {self.changes.architecture}: --start is the encoder; give one of them")
        if self.start and self.changes.batch_rows is not None:
            raise ValueError("--batch-rows: is for trainings from random weights; leave it out, or leave out --start")
        settle_results(self, model="model")
        object.__setattr__(self, "teachers", [storage.absolute_if_there(each) for each in self.teachers])
        if self.before and not self.start:
            raise ValueError(f"--before {self.before}: applies to a pretrained encoder; give --start too")
        for name, count, needs in (
            ("layers", self.size.layers, "start"),
            ("new-words", self.size.new_words, "start"),
            ("student-layers", self.student_layers, "start"),
            ("student-layers", self.student_layers, "student"),
        ):
            if count is not None and not getattr(self, needs):
                raise ValueError(f"--{name} {count}: applies to --{needs}; give that, too")
        if self.student_layers is not None and self.student_layers < 1:
            raise ValueError(f"--student-layers {self.student_layers}: must be 1 or more")
        if (layers := self.size.layers) and self.student_layers:
            raise ValueError(f"--layers {layers}: teachers of --student-layers keep all layers; give one of them")
        if self.student and self.seeds < 2:
            raise ValueError(f"--student --seeds {self.seeds}: one model is not an ensemble; give --seeds 2 or more")
        if self.register and self.ensemble:
            other = "" if self.distils else ", or use --student"
            raise ValueError(f"--register {self.register}: registers one model; leave out --ensemble{other}")
        read = [*self.teachers, storage.absolute_if_there(self.start)]
        if overwritten := [one for one in read if f"{one}/".startswith(f"{self.model}/")]:
            raise ValueError(
                f"--model {self.model}: would overwrite {overwritten[0]}, which is read; give another folder"
            )
        for name, value in (("ensemble", self.ensemble), ("register", self.register)):
            if self.keep == "best" and value:
                raise ValueError(f"--keep best --{name}: that is for encoders alone; give one of them")

    @property
    def distils(self) -> bool:
        """Whether a student is what is kept."""
        return self.student or bool(self.teachers)


def trainings(options: Train, flow: Flow) -> list[Training]:
    """Return a training per seed, their student if asked for, and the plain classifiers."""
    task = options.data.task
    if options.start:
        before = options.before or usual(options, flow)
        if options.before or options.changes.marks or not (options.data.corpus or flow.is_embedded(task)):
            refuse_unread(options, before)
        recipe = options.fine_tuned(options.start, before, task, flow, options.mixture, size=options.size)
    else:
        recipe = options.recipe(task, flow, options.mixture)
    if options.register and not has_pipeline(recipe):
        raise ValueError(
            f"--register {options.register}: MLflow cannot log a model that reads --marks or writes its labels; leave "
            "out --register"
        )
    trained = [Training(row=ROW, task=task, recipe=recipe, seed=seed) for seed in range(options.seeds)]
    return trained + taught(options, flow, recipe) + plain_trainings(flow, [task])


def refuse_unread(options: Train, before: Before) -> None:
    """Raise ValueError for an option that has no effect on an encoder which is trained like this first."""
    changes, passages, mixture = options.changes, options.passages, options.mixture
    given: dict[str, Any] = {"rho1": mixture.rho1, "external-only": mixture.external_only or None}
    if before in ("plain", "mlm", "tapt"):
        given |= {"k": passages.k, "depth": passages.depth, "clean": changes.clean or None}
    if before != "mlm":
        given |= {"rho2": mixture.rho2}
    if before == "plain":
        given |= {"steps": changes.steps}
    unread = [name for name, value in given.items() if value is not None]
    if before not in ("adapted", "tlm") and unread:
        why = f"--before {before}" if options.before else "no --corpus"
        why = "--marks; leave it out, or add --before adapted" if by_marks(options) else f"{why}; leave it out"
        raise ValueError(f"--{unread[0]}: has no effect with --start and {why}")


def by_marks(options: Train) -> bool:
    """Return whether --marks decides that a pretrained encoder is fine-tuned alone, although there is a corpus.

    Where it read the marks, adapting it first brought -0.9 points on sciie (-2.7 to 1.0) and -0.4 on chemprot (-1.8 to
    1.1), with 5 seeds each (RECORDS.md).
    """
    return bool(options.changes.marks and options.data.corpus and not options.before)


def usual(options: Train, flow: Flow) -> Before:
    """Return what trains a pretrained encoder first: text that resembles the task, where corpus and time allow it."""
    task = options.data.task
    if by_marks(options):
        print_once("--before plain: no gain of adapting an encoder that reads --marks was shown; or --before adapted")
    if options.changes.marks or not (options.data.corpus or flow.is_embedded(task)):
        return "plain"
    whole = options.whole_fine_tuned(options.start, "adapted", task, flow, options.mixture, size=options.size)
    if options.budget.is_enough(whole, flow):
        return "adapted"
    print_once(f"--before plain: {options.budget.minutes:g} minutes are too few to adapt the encoder first")
    return "plain"


def taught(options: Train, flow: Flow, recipe: Recipe) -> list[Training]:
    """Return the student if asked for, once its teachers are known to fit the task."""
    if not options.distils:
        return []
    if options.teachers:
        from tlm_ray.training.students.teaching import check_teachers  # transformers: 3 s, which --help need not take

        task = options.data.task
        check_teachers(options.teachers, None if flow.is_embedded(task) else flow.read(task).labels)
    seeds = tuple(range(options.seeds)) if options.student else ()
    models = tuple(options.teachers)
    if options.student_layers:
        size = EncoderSize(layers=options.student_layers)
        small = options.fine_tuned(options.start, "plain", options.data.task, flow, options.mixture, size=size)
        teaching = Teaching(seeds=seeds, recipe=recipe, models=models)
        return [Training(row=STUDENT, task=options.data.task, recipe=small, teaching=teaching)]
    others = options.teachers and not (options.student or options.start)  # from scratch, it can replace words
    teaching = (Teaching.by_others if others else Teaching)(seeds=seeds, models=models)
    return [Training(row=STUDENT, task=options.data.task, recipe=recipe, teaching=teaching)]


def main() -> None:
    options = parse(Train, __doc__)
    flow = open_flow(options.data, options.place, options.cluster)
    is_own = not flow.is_embedded(options.data.task)
    if is_own:
        show_task(flow.read(options.data.task), reads_marks=options.changes.marks)
    if options.dry_run or options.why:
        wanted = trainings(options, flow)
        show_plan(wanted, flow, price=options.price) if options.dry_run else show_reasons(wanted, flow)
        return
    model = options.model
    if options.ensemble:  # `model/*` would read other folders there as members of the ensemble
        check_only(model, [*(f"seed-{seed}" for seed in range(1 if options.distils else options.seeds)), LINEAR])
    ray.init(**ray_options())
    outcome = run(
        trainings(options, flow),
        flow,
        name="train",
        tracking_uri=options.place.tracking_uri,
        log_models=options.log_models,
        ensembles=[ROW, STUDENT],
        pooled=True,
    )
    facts = {training: outcome.facts(training) for training in outcome.stages}
    trained = [training for training in facts if training.row == ROW]
    best = max(trained, key=lambda training: facts[training]["dev"])
    table = Table("", "dev", "test", "minutes", box=None, header_style="dim")
    for training, found in facts.items():
        name = f"seed {training.seed}" if training.row == ROW else training.row
        seconds = found["seconds"] + found["seconds_taught"]
        add_row(table, f"{name}{' (best)' if training is best else ''}", found["dev"], found["test"], seconds)
    cells = outcome.cells()
    for cell in cells:
        if cell.row not in (ROW, STUDENT) and cell.row.startswith((ROW, STUDENT)):
            name = f"a seed {short(cell.row)}, mean" if len(cell.scores) > 1 else short(cell.row)
            add_row(table, name, fmean(cell.dev_scores), cell.mean, cell.wall_s)
    Console().print(table)
    if options.ensemble:
        kept = outcome.keep_ensemble(STUDENT if options.distils else ROW, model)
    else:
        kept, chosen = [model], next((one for one in facts if one.row == STUDENT), best)
        chosen = better(facts, chosen, options.keep)
        row, seeds = (STUDENT, 1) if options.distils else (ROW, options.seeds)
        tell_ensemble(cells, name_of_mean(row, seeds, with_linear=True), facts[chosen]["dev"])
        outcome.keep_model(chosen, model)
        if options.register:
            outcome.log_model(chosen, register=options.register)
    print(*map(storage.shown, kept), sep="\n")
    if is_own:
        command = predict_command(flow.read(options.data.task), kept if options.ensemble else [model])
        print(f"\n{storage.shown(command)}")


def better(facts: Mapping[Training, Mapping[str, float]], chosen: Training, keep: str) -> Training:
    """Return the training to keep, and say so if a linear model has the higher dev score."""
    linear = max((one for one in facts if isinstance(one.recipe, Linear)), key=lambda one: facts[one]["dev"])
    scores = f"{facts[linear]['dev']:.1f} on dev against {facts[chosen]['dev']:.1f}"
    if facts[linear]["dev"] <= facts[chosen]["dev"]:
        return chosen
    if keep == "best":
        print(f"kept: {linear.row}, {scores}")
        return linear
    print(f"{linear.row} has the higher score, {scores}; --keep best keeps it instead")
    return chosen


def tell_ensemble(cells: Sequence[Cell], row: str, dev: float) -> None:
    """Print that --ensemble would keep models of a higher dev score, if so."""
    found = next((fmean(cell.dev_scores) for cell in cells if cell.row == row), dev)
    if found > dev:
        name = short(row)
        which = f"the encoder {name}" if name.startswith("with") else name
        print(f"{which} has the higher score, {found:.1f} on dev against {dev:.1f}; --ensemble keeps these models")


def short(row: str) -> str:
    """Return an ensemble's name without that of the table's only row."""
    return row.removeprefix(ROW).lstrip(", ")


def add_row(table: Table, name: str, dev: float, test: float, seconds: float) -> None:
    """Add a row of scores and minutes."""
    table.add_row(name, f"{dev:.2f}", f"{test:.2f}", f"{seconds / 60:.1f}")


if __name__ == "__main__":
    with plain_errors():
        main()
