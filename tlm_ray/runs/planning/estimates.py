"""Estimate a run's time per stage: trainings from their pace on this hardware, data stages from their input size."""

from collections.abc import Iterator, Sequence

from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.flow.plain import PlainStages
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.planning.paces import Paces, machine_cpus, start_seconds, trainings_of
from tlm_ray.runs.planning.plan import training_rate
from tlm_ray.runs.planning.sizes import Sizes, sizes_of
from tlm_ray.runs.recipes.budget import recipe_parameters, recipe_tokens
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.stage import Stage, Stages, found
from tlm_ray.training.settings import StageSettings

# Measured on two cores of an AMD EPYC: seconds to start, and core-seconds per megabyte of text
PER_MB = {"passages": 0.055, "statistics": 0.017, "neighbours": 0.017, "blocks": 0.9}
START_S = {"documents": 12.0, "passages": 1.5, "statistics": 2.0, "neighbours": 4.0, "blocks": 2.0}
DOCUMENTS_S = 50.0  # core-seconds to read the docstrings
SCORED_S = 4.5e-11  # seconds per query word and passage
TOKENIZER_S, TOKENIZER_MB_S = 1.5, 0.35
COUNTS_S, COUNTED_MB_S = 1.8, 0.12
SCORES_S, SCORED_TOKEN_S = 0.6, 6e-6  # seconds for the metrics of a training
MB = 1e6


def stage_seconds(trainings: Sequence[Training], flow: Flow, *, measures: bool = True) -> dict[str, float]:
    """Estimate the seconds of stages to run, by fingerprint, without those that are unknown.

    measures: whether to measure unknown paces, which takes some seconds per kind of training.
    """
    laid_out = [(one, one.stages(flow)) for one in trainings]
    there = found([stages.metrics for _, stages in laid_out], flow.execution.root)
    paces, seconds = Paces(execution=flow.execution, measures=measures), dict.fromkeys(there, 0.0)
    for one, stages in laid_out:
        if isinstance(one.recipe, Recipe) and isinstance(stages, Stages):
            recipe = one.recipe.settled(gpu=flow.execution.compute.gpu)
            sizes = sizes_of(flow, recipe, one.task)
            for stage, needs in _data_stages(recipe, stages, sizes, flow.execution.workers or machine_cpus()):
                seconds.setdefault(stage.fingerprint, needs)
            for own, stage, settings in trainings_of(recipe, stages, one.seed):
                if stage.fingerprint not in seconds and paces.knows(own, settings, sizes):
                    steps = stage.parameters["schedule"].steps
                    seconds[stage.fingerprint] = paces.seconds(own, settings, sizes, steps)
        elif isinstance(stages, PlainStages):
            seconds.setdefault(stages.metrics.fingerprint, 5.0)
    return seconds


def _data_stages(recipe: Recipe, stages: Stages, sizes: Sizes, workers: int) -> Iterator[tuple[Stage, float]]:
    """Yield the data stages with their seconds."""
    corpus, selected = sizes.text_bytes / MB, sizes.selected_bytes(recipe.depth) / MB * recipe.uses_general
    words = sizes.queries * sum(sizes.task_tokens) / len(sizes.task_tokens)
    read = {"passages": corpus, "statistics": corpus, "neighbours": corpus, "blocks": selected, "documents": 0.0}
    for stage in stages.metrics.upstream():
        if stage.name in START_S:
            own = PER_MB.get(stage.name, 0.0) * read[stage.name]
            own += DOCUMENTS_S * (stage.name == "documents")
            own += SCORED_S * words * sizes.passages * ("statistics" in stage.inputs)
            yield stage, START_S[stage.name] + own / workers
    yield stages.tokenizer, TOKENIZER_S + TOKENIZER_MB_S * selected * (recipe.tokenizer == "trained")
    if stages.counts is not None:
        yield stages.counts, COUNTS_S + COUNTED_MB_S * selected
    tokens = (sizes.dev_rows + sizes.test_rows) * words / max(1, sizes.queries)
    yield stages.metrics, SCORES_S + SCORED_TOKEN_S * tokens


def training_seconds(recipe: Recipe, task: str, flow: Flow) -> float:
    """Estimate the seconds of both training stages; ValueError if the pace is unknown."""
    recipe = recipe.settled(gpu=flow.execution.compute.gpu)
    paces, compute = Paces(execution=flow.execution), flow.execution.compute
    if paces.can_measure:
        sizes = sizes_of(flow, recipe, task)
        settings: list[StageSettings] = [] if recipe.stage_one is None else [recipe.settings_one(0)]
        settings += [] if recipe.one_stage else [recipe.settings_two(0, recipe.start)]
        return sum(paces.seconds(recipe, each, sizes, each.schedule.steps) for each in settings)
    parameters = recipe_parameters(recipe)
    if parameters is None:
        raise ValueError("--minutes: the speed of an encoder is unknown before it is opened; give --tokens instead")
    rate = training_rate("stage_one", flow.execution.root, compute)
    return 2 * start_seconds(compute) + 6 * recipe_tokens(recipe) * parameters / rate
