"""Count the FLOPs of a training as the paper does: six operations per token and parameter (note to table 2).

The rule counts a forward and a backward pass through every weight, and ignores attention, padding and hardware. It
serves only to compare trainings. Tokens are the capacity of the rows, filled or not.
"""

from collections.abc import Mapping
from typing import Any

from tlm_ray.training.encoders.starts import Start
from tlm_ray.training.loop.schedules import Schedule
from tlm_ray.training.sampler.mixers import Mixer
from tlm_ray.training.settings import StageOne


def training_flops(*, tokens: int, parameters: int, trained: int | None = None) -> int:
    """Return the floating-point operations of a training: 6 x tokens x parameters.

    trained: parameters that are not frozen, None for all; a frozen one needs no gradient of its own, 2 of the 6.
    ValueError for a negative count. Source: note to table 2 of Yao et al. (2022).
    """
    trained = parameters if trained is None else trained
    for name, count in (("tokens", tokens), ("parameters", parameters), ("trained", trained)):
        if count < 0:
            raise ValueError(f"{name} is {count}; must be 0 or more")
    return tokens * (4 * parameters + 2 * trained)


def flops_of(cost: Mapping[str, float], facts: Mapping[str, Any]) -> float:
    """Return the operations of a recorded training; cost: of its stage. facts: of its record."""
    parameters, trained = facts["parameters"], facts.get("parameters_trained")
    return float(training_flops(tokens=int(cost["tokens"]), parameters=parameters, trained=trained))


def mixed_tokens(
    schedule: Schedule, rho1: int | None, *, block_tokens: int, task_tokens: int, mixer: Mixer | None = None
) -> int:
    """Return the tokens of a stage with rho1 general batches per task batch; their row lengths may differ.

    mixer: places its batches otherwise.
    """
    task_steps = 0 if rho1 is None else schedule.steps // (rho1 + 1)  # each cycle ends with a task batch
    if mixer is not None:
        task_steps = sum(mixer.place(step)[0] for step in range(schedule.steps))
    general_steps = schedule.steps - task_steps
    return schedule.batch_rows * (general_steps * block_tokens + task_steps * task_tokens)


def stage_one_cost(settings: StageOne, *, block_tokens: int, task_tokens: int, vocabulary: int) -> dict[str, float]:
    """Return the tokens of stage one and, if the encoder's size is known, its FLOPs."""
    lengths = {"block_tokens": block_tokens, "task_tokens": task_tokens}
    tokens = mixed_tokens(settings.schedule, settings.rho1, mixer=settings.own_mixer, **lengths)
    return _cost(tokens, settings.start, vocabulary)


def stage_two_cost(schedule: Schedule, start: Start, *, task_tokens: int, vocabulary: int) -> dict[str, float]:
    """Return the tokens of stage two and, if the encoder's size is known, its FLOPs."""
    return _cost(schedule.steps * schedule.batch_rows * task_tokens, start, vocabulary)


def _cost(tokens: int, start: Start, vocabulary: int) -> dict[str, float]:
    parameters = start.parameters(vocabulary=vocabulary)
    if parameters is None:  # the size is unknown before the encoder is opened
        return {"tokens": tokens}
    return {"tokens": tokens, "flops": training_flops(tokens=tokens, parameters=parameters)}
