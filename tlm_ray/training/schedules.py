"""The numbers of a training, free of torch: a model's geometry, a stage's schedule, the names of loss weightings."""

from dataclasses import dataclass

LOSSES = ("general_mlm", "task_mlm", "task")  # logged apart, always
FAMILIES = ("bert", "modernbert")
WEIGHTINGS = ("released", "paper", "mlm")  # tlm_ray.training.objectives says what they are
NOTE = "progress.json"  # where a running training says how far it is
NOTE_EVERY_S = 10.0
CHECKPOINTS = "checkpoints"  # the folder of a running training's checkpoints
MODEL = "model"  # the folder of a trained stage that transformers opens


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """An encoder of random weights: layers, width, attention heads, feed-forward width, positions, dropout, scale.

    family: "bert" (Devlin et al. 2019) or "modernbert" (Warner et al. 2024: rotary positions, norms before products,
    gated feed-forward), which learns to attend in a third of the steps. init_std: of the random weights.
    """

    layers: int
    width: int
    heads: int
    intermediate: int
    positions: int = 512
    dropout: float = 0.1
    init_std: float = 0.02
    family: str = "bert"

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family {self.family!r}: allowed are {', '.join(FAMILIES)}")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast a stage trains.

    learning_rate rises linearly over warmup_steps, then falls linearly to 0 at the last step. batch_rows counts the
    whole step, over all workers. evaluate_every and log_every count steps.
    """

    steps: int
    batch_rows: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    evaluate_every: int
    log_every: int = 10

    def __post_init__(self) -> None:
        for name in ("steps", "batch_rows", "evaluate_every", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be 1 or more")
        if not 0 <= self.warmup_steps <= self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps}: must lie between 0 and steps ({self.steps})")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        return self.learning_rate * (self.steps - step) / max(1, self.steps - self.warmup_steps)
