"""Count the operations of a stage's steps before any data is there, to plan recipes of equal cost."""

from functools import cache

import numpy as np
import transformers

from tlm_ray.training.encoders.adapters import Lora
from tlm_ray.training.encoders.starts import Pretrained, Scratch, Start, scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.model.flops import Flops
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Objective
from tlm_ray.training.sampler.batches import Batches
from tlm_ray.training.sampler.streams import Stream
from tlm_ray.training.settings import NUMBERS, TASK, StageSettings
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

ROWS = 2048  # per stream
SENTENCE = 20  # tokens
CYCLES = 4
TWO_CLASSES = ("a", "b")


def step_flops(
    settings: StageSettings,
    *,
    vocabulary: int,
    row_tokens: tuple[int, int],
    longest: tuple[int, int],
    labels: tuple[str, ...] = (),
) -> float:
    """Return the mean operations of a step, forward and backward, on rows of random tokens.

    row_tokens: their mean number in general and task rows; half to one and a half times as many occur, but at most
    `longest`. vocabulary: of random weights. labels: the classes' names, which a decoder writes (none: two of a word
    each). ValueError unless the stage starts from random weights of a geometry or from a pretrained encoder.
    """
    for tokens, most in zip(row_tokens, longest, strict=True):
        if tokens > most:
            raise ValueError(f"row_tokens {tokens}: rows have at most {most} tokens; give their mean")
    flops, vocabulary = _counter(settings.start, settings.heads, settings.adapters, vocabulary, labels or TWO_CLASSES)
    facts = Vocabulary(
        size=vocabulary,
        pad_id=0,
        mask_id=1,
        special_ids=(0, 1, 2, 3),
        ending_ids=(4,),
        sentinel_ids=tuple(range(vocabulary - max(one.sentinels for one in settings.heads), vocabulary)),
        end_id=3,
    )
    streams = tuple(
        Stream(
            name=name,
            number=NUMBERS[name],
            blocks=_random_rows(
                vocabulary, row_tokens[NUMBERS[name]], longest=longest[NUMBERS[name]], labels=name == TASK
            ),
            loss=loss,
            batch_rows=settings.schedule.batch_rows,
            seed=0,
        )
        for name, loss in settings.losses.items()
    )
    batches = Batches(streams=streams, mixer=settings.mixer, vocabulary=facts, seed=0)
    rho1 = getattr(settings, "rho1", 0) or 0
    steps = CYCLES * (rho1 + 1)
    counted = sum(flops.computed(batches.batch(step)) for step in range(steps)) / steps
    if not counted:
        names = ", ".join(objective.name for objective in settings.heads)
        raise ValueError(f"objectives {names}: their operations cannot be planned; they depend on values or a teacher")
    return counted


@cache  # of one model, whose operations are counted once for rows of any length
def _counter(
    start: Start, heads: tuple[Objective, ...], adapters: Lora | None, vocabulary: int, labels: tuple[str, ...]
) -> tuple[Flops, int]:
    """Return the counter of a stage's model, and the size of its vocabulary."""
    transformers.utils.logging.set_verbosity_error()  # heads are new here, of which it would warn
    if isinstance(start, Pretrained):
        model = JointModel.of(start, heads, tokenizer=None, labels=labels, seed=0)
    elif type(start) is Scratch:
        config = scratch_config(start.geometry, vocabulary=vocabulary, pad_id=0, labels=labels)
        model = JointModel(RandomWeights(config, seed=0), heads, family=start.family)
    else:
        raise ValueError(f"start {type(start).__name__}: operations are planned for Scratch(geometry) or Pretrained")
    if adapters:
        adapters.add_to(model.encoder)
    return Flops(model), model.config.vocab_size


def _random_rows(vocabulary: int, row_tokens: int, *, longest: int, labels: bool) -> Blocks:
    draw = np.random.default_rng(0)
    most = min(row_tokens + row_tokens // 2, longest)
    lengths = draw.integers(max(3, 2 * row_tokens - most), most + 1, ROWS)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = draw.integers(5, vocabulary, offsets[-1]).astype(np.int32)
    tokens[::SENTENCE] = 4
    tokens[offsets[:-1]], tokens[offsets[1:] - 1] = 2, 3
    return Blocks(tokens, offsets, labels=draw.integers(0, 2, ROWS) if labels else None)
