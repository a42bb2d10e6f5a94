"""Estimate the time of stages from the records of earlier ones under the same root."""

import math
import statistics
from collections.abc import Mapping, Sequence

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.console import print_once
from tlm_ray.runs.recipes.budget import recipe_parameters, recipe_tokens, stage_tokens
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution
from tlm_ray.runs.stages.records import Record, Records
from tlm_ray.runs.stages.stage import Stage, fingerprint_of, plain, unique
from tlm_ray.training.cost import training_flops

# FLOPs per second of one worker, as the paper counts (padding included), for options that need a time before the first
# record. On one core with AVX-512, 48 recorded stages of tiny and mini had medians of 3.1e11 to 6.4e11; an H100 or H200
# reaches about 40 % of its bf16 peak.
CPU_FLOPS_PER_S, GPU_FLOPS_PER_S = 3e11, 3e14
TRAINED = ("stage_one", "stage_two")
UNITS = ("flops", "bytes")  # of work; other stages take as long as the recorded ones of their kind
MOST_READ = 50  # records per kind of stage
BUDGETS = "minutes.json"  # under the root, so that a budget in minutes gives the same recipe again


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
        return statistics.median(map(_took, earlier)) if earlier else cost.get("seconds")
    comparable = [each for each in earlier if each["cost"].get(unit)]
    far = [abs(math.log(_size(each["cost"], unit) / _size(cost, unit))) for each in comparable]
    rates = [_took(each) / each["cost"][unit] for each in comparable]
    near = [rate for rate, gap in zip(rates, far, strict=True) if gap <= min(far) + 1e-6]
    return cost[unit] * statistics.median(near) if near else None


def _took(record: Record) -> float:
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

    ValueError if the encoder's size is unknown.
    """
    parameters = recipe_parameters(recipe)
    if parameters is None:
        raise ValueError("--minutes: the speed of an encoder is unknown before it is opened; give --tokens instead")
    seconds = 0.0
    for name, tokens in stage_tokens(recipe).items():
        flops = training_flops(tokens=tokens, parameters=parameters)
        found = _seconds({"tokens": tokens, "flops": flops}, _earlier(name, records, compute)) if tokens else 0.0
        seconds += flops / _assumed_rate(records.root, compute) if found is None else found
    return seconds


def tokens_in(minutes: float, recipe: Recipe, execution: Execution) -> float:
    """Return the tokens, by the paper's rule, that a recipe trains on in `minutes`.

    The answer is stored under the root, because every training that is recorded later changes the estimate.
    """
    uri, compute = storage.join(execution.root, BUDGETS), execution.compute
    known = storage.read_record(uri, fix="delete this file") if storage.exists(uri) else {}
    key = fingerprint_of({"minutes": minutes, "recipe": plain(recipe, "recipe"), "compute": compute.parts})
    if key not in known:
        seconds = training_seconds(recipe, Records(execution.root), compute)
        known[key] = 60 * minutes / seconds * recipe_tokens(recipe)
        storage.write_record(uri, known)
    return known[key]
