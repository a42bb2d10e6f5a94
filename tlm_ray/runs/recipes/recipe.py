"""Define a recipe: all settings that decide the result of a training.

A recipe identifies a result. Settings of how to run it (workers, shards, GPUs, folders) are in
`tlm_ray.runs.stages.making`.
"""

from dataclasses import dataclass, field, replace
from functools import partial

from tlm_ray.corpus.cleaning import Cleaning
from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.identity import LATER
from tlm_ray.retrieval.methods import Bm25, Method, method_named
from tlm_ray.runs.recipes.precision import fastest_precision
from tlm_ray.training.encoders.adapters import Lora
from tlm_ray.training.encoders.starts import FewerLayers, Pretrained, Start
from tlm_ray.training.loop.optimizers import AdamW, Optimizer
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.mixing import MixedOne
from tlm_ray.training.objectives import WEIGHTINGS, Labels, Mlm, Objective, SoftTokens
from tlm_ray.training.objectives.written import Written
from tlm_ray.training.sampler.mixers import Mixer, Rates
from tlm_ray.training.settings import GENERAL, MODEL, StageOne, StageTwo
from tlm_ray.training.tokens.counts import Counts

HISTORY = ("dev", "learning_rate", "step")  # entries that a task's name would replace
CHOICES = {
    "weighting": WEIGHTINGS,
    "precision": ("auto", "fp32", "bf16"),
    "vocabulary_text": ("depth", "k"),
}
LEAST_TOKENS = {"passage_tokens": 1, "block_tokens": 4, "task_tokens": 4}  # a row has two special ones and two of text


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of one way to train on a task."""

    scale: str
    """name of the recipe that this one derives from"""
    start: Start
    """initial model: Scratch(geometry), Architecture(source), Pretrained(source), Trimmed(source, layers), ..."""
    vocabulary: int
    """vocabulary size of a trained tokenizer"""
    stage_one: Schedule | None
    """schedule of stage one; None skips it"""
    stage_two: Schedule
    after: "Recipe | None" = None
    """start from the stage-one model and tokenizer of this other recipe, as adaptive pretraining does"""
    teacher: "Recipe | Pretrained | None" = field(default=None, metadata=LATER)
    """stage one learns from this recipe's stage one, whose tokenizer it shares, or from a trained model"""
    one_stage: bool = False
    """skip stage two: stage one's task head is the result (table 7)"""
    k: int
    """passages used per query; 0: task data only"""
    rho1: int | None
    """general batches per task batch; None for no task batches at all (external data only, table 5)"""
    rho2: float
    """weight of the text objectives in a task batch"""
    method: Method = Bm25()  # noqa: RUF009 - frozen
    """retrieval method: one of tlm_ray.retrieval.methods, by name or with settings, or your own"""
    corpus: str = ""
    """name of one of the flow's `corpora`; "" for its `corpus`"""
    corpus_share: float = 1.0
    """share of the corpus' documents to retrieve from, sampled by a hash of their text (table 3)"""
    cleaning: Cleaning | None = field(default=None, metadata=LATER)
    """what is dropped from the corpus before it is cut into passages; None: nothing"""
    general_share: float = field(default=1.0, metadata=LATER)
    """share of the selected blocks to train on, which are then repeated more often"""
    depth: int = 0
    """passages retrieved per query, at least k, so one retrieval serves every smaller k; 0 means k"""
    weighting: str = "released"
    """weighting of a task batch's losses: see tlm_ray.training.objectives.losses"""
    objectives: tuple[Objective, ...] = (Mlm(),)
    """what stage one learns from text, beside the labels"""
    tasks: tuple[str, ...] = field(default=(), metadata=LATER)
    """tasks that stage one learns together, each with a head of its own; (): the task of the training alone"""
    rates: Rates = field(default=Rates(), metadata=LATER)
    """how often each of several tasks gets a batch"""
    mixer: Mixer | None = field(default=None, metadata=LATER)
    """which of general text (0) and task (1) each step of stage one is from; None: in turn, by rho1"""
    exported: str = ""
    """name of the objective with whose model stage two starts; "" for the first"""
    labels: Labels = Labels()  # noqa: RUF009 - frozen
    """how the task is learned; stage one smooths no labels"""
    auxiliary: tuple[Objective, ...] = field(default=(), metadata=LATER)
    """what stage two learns from the task's text beside its labels, such as (Clm(times=0.5),) for a decoder"""
    optimizer: Optimizer = AdamW()  # noqa: RUF009 - frozen
    optimizer_two: Optimizer | None = field(default=None, metadata=LATER)
    """optimizer of stage two, such as AdamW(layer_decay=0.8); None: the same"""
    adapters: Lora | None = field(default=None, metadata=LATER)
    """stage two trains these and the head, and freezes the encoder; None: it trains all weights"""
    counts: Counts | None = None
    """initialise token embeddings and output bias from token counts; None: random"""
    tokenizer: str = "trained"
    """"trained" (WordPiece of `vocabulary` entries on selected and task text), or a hub name or local folder"""
    vocabulary_text: str = field(default="depth", metadata=LATER)
    """ranks of selected text that train the tokenizer: "depth" (all; every smaller k shares it) or "k" (below k)"""
    passage_tokens: int = 128
    """word pieces per passage"""
    block_tokens: int = 128
    """tokens per general block"""
    task_tokens: int = 128
    """tokens per task example"""
    precision: str = "fp32"
    """precision of matrix products: fp32, bf16, or auto (bf16 if the hardware is fast at it)"""

    def __post_init__(self) -> None:
        if not self.depth:
            object.__setattr__(self, "depth", max(1, self.k))
        object.__setattr__(self, "method", method_named(self.method))
        self._check_choices()
        self._check_amounts()
        self._check_start()
        self._check_teacher()
        self._check_tasks()
        self._check_writing()
        self._check_objectives()
        self._check_auxiliary()
        self._check_stages()
        self._check_lengths()

    def _check_choices(self) -> None:
        for name, allowed in CHOICES.items():
            if (value := getattr(self, name)) not in allowed:
                raise ValueError(f"{name} {value!r}: allowed are {', '.join(allowed)}")

    def _check_amounts(self) -> None:
        k, rho1 = self.k, self.rho1
        if not 0 <= k <= self.depth:
            raise ValueError(
                f"k {k}: must lie between 0 and depth ({self.depth}), the passages retrieved per query; "
                "lower k or raise --depth"
            )
        if rho1 is not None and not _is_whole(rho1, least=0):
            raise ValueError(
                f"rho1 {rho1!r}: must be a whole number of 0 or more, the general batches before each task batch"
            )
        if rho1 is None and k == 0:
            raise ValueError("rho1 None: without task batches k must be 1 or more, or there is nothing to train on")
        if not self.rho2 >= 0:
            raise ValueError(f"rho2 {self.rho2!r}: must be 0 or more, the weight of the MLM loss in a task batch")
        for name, things in (("corpus_share", "documents"), ("general_share", "blocks")):
            if not 0 < (share := getattr(self, name)) <= 1:
                raise ValueError(f"{name} {share!r}: must be above 0 and at most 1, a share of {things}")

    def _check_start(self) -> None:
        start = self.start
        if self.stage_one is None and not self.begins_trained:
            raise ValueError("stage_one None: stage two needs a trained encoder; give start=Pretrained(...), or after")
        if isinstance(start, Pretrained) and start.pieces and self.tokenizer != start.source:
            raise ValueError(
                f"tokenizer {self.tokenizer!r}: the start has pieces of its own; give tokenizer={start.source!r}"
            )
        if self.after is not None and (self.after.stage_one is None or self.counts is not None):
            raise ValueError("after: must be a recipe with a stage one, and its embeddings are kept; give counts=None")

    def _check_teacher(self) -> None:
        """Raise ValueError if a part needs a teacher that the recipe has not, or the reverse."""
        start, teacher = self.start, self.teacher
        takers = [one.name for one in self.objectives if one.needs_teacher]
        takers += ["start"] if isinstance(start, FewerLayers) else []
        if teacher is None:
            if takers:
                raise ValueError(f"teacher None: {takers[0]} needs one; give teacher=RECIPE or Pretrained(folder)")
            return
        if not isinstance(teacher, Recipe | Pretrained):
            raise ValueError(f"teacher: is a {type(teacher).__name__}; give a recipe or Pretrained(folder)")
        if start.pieces or (teacher if isinstance(teacher, Pretrained) else teacher.start).pieces:
            raise ValueError(
                "teacher: a Trimmed or Extended encoder has tokens of its own; give Pretrained or Scratch as both "
                "starts"
            )
        if not takers or self.stage_one is None:
            raise ValueError("teacher: stage one does not learn from it; give objectives such as SoftTokens()")
        if isinstance(teacher, Pretrained) and self.tokenizer == "trained":
            raise ValueError(
                f"tokenizer 'trained': the student shares the teacher's tokens; give tokenizer={teacher.source!r}"
            )
        if isinstance(start, FewerLayers) and self.counts is not None:
            raise ValueError("counts: would replace the teacher's embeddings, with which it starts; give counts=None")
        if not isinstance(teacher, Pretrained) and (teacher.stage_one is None or self.after is not None):
            raise ValueError("teacher: must be a recipe with a stage one, and the student has no `after`")
        if isinstance(teacher, Recipe) and any(isinstance(one, SoftTokens) for one in self.objectives):
            exported = teacher.settings_one(0).exports[MODEL]
            if not isinstance(exported, Mlm):
                raise ValueError(
                    f"teacher: its stage one exports {exported.name}, and SoftTokens learns from mlm; give "
                    "exported='mlm' to the teacher, or leave SoftTokens out"
                )

    def _check_tasks(self) -> None:
        """Raise ValueError if several tasks cannot be trained together."""
        if not self.tasks:
            return
        if not isinstance(self.tasks, tuple):
            raise ValueError(f"tasks {self.tasks!r}: must be a tuple of names")
        names = list(map(short_name, self.tasks))
        if len(set(names)) < len(names):
            raise ValueError(f"tasks {', '.join(self.tasks)}: name each once, by different last parts")
        if taken := set(names) & {GENERAL, *HISTORY}:
            raise ValueError(f"tasks: {min(taken)!r} has a meaning in the history of a training; rename the task")
        if self.stage_one is None or self.rho1 is None or self.one_stage or self.weighting == "mlm":
            raise ValueError("tasks: are learned in a stage one with task batches, and each has a stage two of its own")
        if self.after is not None or self.teacher is not None:
            raise ValueError("tasks: are trained together from the start; give neither after nor teacher")

    def _check_writing(self) -> None:
        """Raise ValueError if an encoder-decoder has objectives of an encoder, or the reverse."""
        family, everything = self.start.family, (*self.objectives, self.labels, *self.auxiliary)
        written = [one.name for one in everything if isinstance(one, Written)]
        if family is not None and (len(written) < len(everything) if family.writes else bool(written)):
            names = ", ".join(one.name for one in everything)
            fix = "objectives=(Spans(),), labels=TextLabels()" if family.writes else "objectives of an encoder"
            raise ValueError(f"objectives {names}: do not fit the family {family.name!r}; give {fix}")
        if written and (self.tasks or isinstance(self.start, FewerLayers)):
            raise ValueError(
                "objectives: a decoder has one task and all its layers; give neither tasks nor FewerLayers"
            )
        if written and self.adapters is not None:
            raise ValueError("adapters: are for encoders; a decoder trains all its weights")
        sentinels = max(one.sentinels for one in everything)
        if sentinels and self.tokenizer == "trained" and self.vocabulary < 2 * sentinels:
            raise ValueError(f"vocabulary {self.vocabulary}: {sentinels} are sentinels; give {2 * sentinels} or more")

    def _check_objectives(self) -> None:
        """Raise ValueError if objectives share a name, or one cannot prepare the rows after those before it."""
        names = [one.name for one in self.objectives]
        for group in (self.objectives, (self.labels,), self.auxiliary):
            for number, one in enumerate(group):
                before = [other.name for other in group[:number]]
                one.check(tokens=max(self.block_tokens, self.task_tokens), before=before)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"objectives {self.objectives!r}: give one or more, each with a different name")
        if self.exported and self.exported not in names:
            raise ValueError(f"exported {self.exported!r}: allowed are {', '.join(names)}, the recipe's objectives")

    def _check_auxiliary(self) -> None:
        names = [one.name for one in self.auxiliary]
        unfit = not all(one.in_stage_two for one in self.auxiliary)
        if len(set(names)) < len(names) or Labels.name in names or unfit:
            raise ValueError(
                f"auxiliary {', '.join(names)}: give objectives of tokens, each once, such as Clm(times=0.5)"
            )
        if any(one.needs_teacher or one.reads_layers for one in self.auxiliary):
            raise ValueError(f"auxiliary {self.auxiliary!r}: stage two has no teacher; give objectives such as Clm()")

    def _check_stages(self) -> None:
        """Raise ValueError if a part needs a stage, or an input of it, that the recipe leaves out."""
        if self.one_stage and self.adapters is not None:
            raise ValueError("adapters: are trained in stage two, which one_stage leaves out; give one of them")
        if self.one_stage and (self.stage_one is None or self.rho1 is None or self.weighting == "mlm"):
            raise ValueError("one_stage True: needs a stage one that learns the task's labels; give stage_one and rho1")
        if self.counts is not None and (self.stage_one is None or (self.counts.embeddings and not self.start.width)):
            raise ValueError(
                f"counts {self.counts}: need a stage one and a start that knows its width, such as Scratch; give "
                "counts=None, or Counts(embeddings=False)"
            )
        if self.mixer is not None and (not self.uses_general or self.rho1 is None or self.tasks):
            raise ValueError("mixer: chooses between general text and one task; give both, k and rho1 above 0")

    def _check_lengths(self) -> None:
        for name, least in LEAST_TOKENS.items():
            if not _is_whole(value := getattr(self, name), least=least):
                raise ValueError(f"{name} {value!r}: must be a whole number of {least} or more")
        longest, positions = max(self.block_tokens, self.task_tokens), self.start.positions
        if positions is not None and longest > positions:
            raise ValueError(f"block_tokens and task_tokens: {longest} is more than the model's {positions} positions")

    @property
    def vocabulary_k(self) -> int | None:
        """The rank below which selected text trains the tokenizer; None if all of it does."""
        return self.k if self.vocabulary_text == "k" and self.k < self.depth else None

    @property
    def begins_trained(self) -> bool:
        """Whether training starts from trained weights."""
        return self.after is not None or isinstance(self.start, Pretrained)

    @property
    def uses_general(self) -> bool:
        """Whether general text is an input; without it, corpus and retrieval have no effect."""
        return self.k > 0 and self.rho1 != 0 and self.stage_one is not None

    def settled(self, *, gpu: bool) -> "Recipe":
        """Return the recipe with "auto" precision resolved, for GPUs or for this processor."""
        return replace(self, precision=fastest_precision(gpu=gpu)) if self.precision == "auto" else self

    def settings_one(self, seed: int) -> StageOne:
        """Return the settings of stage one.

        Without general text, k, rho1 and the method have no effect and are not part of the fingerprint.
        """
        if self.stage_one is None:
            raise ValueError("stage_one None: this recipe has no stage one")
        names = tuple(map(short_name, self.tasks))
        settings = partial(MixedOne, names=names, rates=self.rates) if self.tasks else StageOne
        return settings(
            start=self.start,
            schedule=self.stage_one,
            objectives=self.objectives,
            labels=Labels() if self.tasks else self.labels.in_stage_one,  # several tasks have heads of their own
            own_mixer=self.mixer,
            exported=self.exported,
            optimizer=self.optimizer,
            k=self.k if self.uses_general else 0,
            general_share=self.general_share if self.uses_general else 1.0,
            rho1=self.rho1 if self.uses_general else 0,
            rho2=self.rho2,
            weighting=self.weighting,
            precision=self.precision,
            seed=seed,
        )

    def settings_two(self, seed: int, start: Start) -> StageTwo:
        """Return the settings of stage two, which starts from stage one's model or a pretrained encoder."""
        return StageTwo(
            start=start,
            schedule=self.stage_two,
            labels=self.labels,
            auxiliary=self.auxiliary,
            optimizer=self.optimizer_two or self.optimizer,
            adapters=self.adapters,
            precision=self.precision,
            seed=seed,
        )


def _is_whole(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
