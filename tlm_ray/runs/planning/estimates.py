"""Estimate the time of stages from the records of earlier ones under the same root."""

import math
import statistics
from collections.abc import Mapping, Sequence

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.console import print_once
from tlm_ray.runs.recipes.budget import recipe_parameters, stage_tokens
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.records import Record, Records
from tlm_ray.runs.stages.stage import Stage, unique
from tlm_ray.training.cost import flops_of, training_flops

# FLOPs per second of one worker, as the paper counts (padding included), for options that need a time before the first
# record. On one core with AVX-512, 48 recorded stages of tiny and mini had medians of 3.1e11 to 6.4e11; an H100 or H200
# reaches about 40 % of its bf16 peak.
CPU_FLOPS_PER_S, GPU_FLOPS_PER_S = 3e11, 3e14
TRAINED = ("stage_one", "stage_two")
UNITS = ("flops", "bytes")  # of work; other stages take as long as the recorded ones of their kind
MOST_READ = 50  # records per kind of stage


def stage_seconds(
    stages: Sequence[Stage], records: Records, compute: Compute, *, assumed: bool = False
) -> dict[str, float]:
    """Estimate the seconds of stages and their dependencies, by fingerprint, without those that are unknown.

    Cached stages take 0. compute: of each training. assumed: before the first recorded training, assume a speed and
    print it.
    """
    there = records.found(stages)
    wanted = [stage for stage in unique(stages) if stage.fingerprint not in there]
    earlier = {name: _earlier(name, records, compute) for name in {stage.name for stage in wanted}}
    seconds = dict.fromkeys(there, 0.0)
    for stage in wanted:
        found = _seconds(stage.cost, earlier[stage.name])
        if found is None and assumed and "flops" in stage.cost:
            found = stage.cost["flops"] / _assumed_rate(records.root, compute)
        seconds |= {} if found is None else {stage.fingerprint: found}
    return seconds


def _seconds(cost: Mapping[str, float], earlier: Sequence[Record]) -> float | None:
    """Return the seconds of a stage of some cost: at the median rate of those of the nearest size, None if unknown."""
    unit = next((unit for unit in UNITS if cost.get(unit)), None)
    if unit is None:
        if "tokens" in cost:  # of an encoder that is not opened yet
            return None
        return statistics.median(map(took, earlier)) if earlier else cost.get("seconds")
    comparable = [(each, known) for each in earlier if (known := _known_cost(each)).get(unit)]
    far = [abs(math.log(_size(known, unit) / _size(cost, unit))) for _, known in comparable]
    rates = [took(each) / known[unit] for each, known in comparable]
    near = [rate for rate, gap in zip(rates, far, strict=True) if gap <= min(far) + 1e-6]
    return cost[unit] * statistics.median(near) if near else cost.get("seconds")


def _known_cost(record: Record) -> Mapping[str, float]:
    """Return the cost of a recorded stage, with the FLOPs of an encoder whose size was unknown when it was planned."""
    cost = record["cost"]
    if "tokens" in cost and "flops" not in cost and record["facts"].get("parameters"):
        return cost | {"flops": flops_of(cost, record["facts"])}
    return cost


def took(record: Record) -> float:
    """Return the seconds that a stage took; a resumed stage's own count includes those before it was killed."""
    return max(record["seconds"], record["facts"].get("seconds", 0.0))


def _size(cost: Mapping[str, float], unit: str) -> float:
    """Return what rates depend on: of a training its model's size, else the amount of data."""
    return cost["flops"] / cost["tokens"] if unit == "flops" else cost[unit]


def _earlier(name: str, records: Records, compute: Compute) -> list[Record]:
    """Return records of stages of a kind; of trainings those on the same resources, if need be of the other stage."""
    kinds = sorted(TRAINED, key=lambda kind: kind != name) if name in TRAINED else [name]
    for kind in kinds:
        read = [each for each in records.named(kind, most=MOST_READ) if each.get("seconds") and "cost" in each]
        own = [each for each in read if name not in TRAINED or each["facts"].get("compute") == compute.parts]
        if own:
            return own
    return []


def _assumed_rate(root: str, compute: Compute) -> float:
    """Return the FLOPs per second of a training before the first is recorded, and print it once."""
    rate = GPU_FLOPS_PER_S if compute.gpu else CPU_FLOPS_PER_S
    print_once(
        f"no training on these resources is recorded under {storage.shown(root)}: assuming {rate:.0e} FLOPs per second "
        f"of each {'GPU' if compute.gpu else 'CPU'} worker"
    )
    return rate * compute.workers


def training_seconds(recipe: Recipe, records: Records, compute: Compute) -> float:
    """Estimate the seconds of both training stages, before the first recorded training at an assumed speed.

    An encoder that was not made here is opened for its size.
    """
    parameters = recipe_parameters(recipe)
    if parameters is None:
        from tlm_ray.training.encoders.sizes import counted_parameters  # torch: 3 s, for encoders of others alone

        parameters = counted_parameters(recipe.start, vocabulary=recipe.vocabulary)
    seconds = 0.0
    for name, tokens in stage_tokens(recipe).items():
        flops = training_flops(tokens=tokens, parameters=parameters)
        found = _seconds({"tokens": tokens, "flops": flops}, _earlier(name, records, compute)) if tokens else 0.0
        seconds += flops / _assumed_rate(records.root, compute) if found is None else found
    return seconds
