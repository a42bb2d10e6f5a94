"""Read one training's scores and costs from the records of its stages."""

from typing import Any

from tlm_ray.plain import PlainClassifier
from tlm_ray.runs.flow.plain import PlainStages
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage, Stages, unique
from tlm_ray.training.cost import flops_of

OF_TEACHERS = ("stage_one", "stage_two", "student_rows", "teacher_labels", "soft_labels")  # whose time is a student's


def facts_of(training: Training, stages: Stages | PlainStages, records: Records) -> dict[str, Any]:
    """Return a training's scores and costs, see `Outcome.facts`; stages: its own."""
    scores = records.facts(stages.metrics)
    tasks = training.recipe.tasks if isinstance(training.recipe, Recipe) else ()
    shared = 1 / len(tasks) if training.task in tasks else 1.0  # of stage one, the first that is trained
    trained = [(stage, records.facts(stage), 1.0 if number else shared) for number, stage in enumerate(stages.trained)]
    counted = [share * facts.get("flops_counted", 0) for _, facts, share in trained]
    return {
        "dev": scores["dev"],
        "test": scores.get("test"),
        "metric": scores["metric"],
        "flops": sum(share * flops_of(stage.cost, facts) for stage, facts, share in trained),
        "flops_counted": sum(counted) if all(counted) else 0,  # 0 if a stage's are unknown
        "data_bytes": records.facts(stages.task)["train_bytes"] + _general_bytes(stages, training.recipe, records),
        "seconds": sum(share * facts["seconds"] for _, facts, share in trained) if trained else scores["seconds"],
        "seconds_taught": sum(
            (shared if stage.name == "stage_one" else 1.0) * _took(stage, records) for stage in _taught_by(stages)
        ),
        "parameters": trained[-1][1]["parameters"] if trained else 0,
        "texts_per_s": scores.get("texts_per_s", 0.0),
    }


def _taught_by(stages: Stages | PlainStages) -> list[Stage]:
    """Return the stages of a student's teachers, each once, without those that are its own; [] for all others."""
    taught = stages.trained[-1].inputs.get("taught") if stages.trained else None
    own = {stage.fingerprint for stage in stages.trained}
    behind = unique([taught]) if taught else []
    return [stage for stage in behind if stage.name in OF_TEACHERS and stage.fingerprint not in own]


def _took(stage: Stage, records: Records) -> float:
    """Return the seconds of a stage: of all its workers if it counts them, else its own count, else its wall time.

    A training's own count includes runs before a kill.
    """
    record = records.of(stage) or {}
    counts = [record.get("facts", {}), record]
    return float(next((each[name] for each in counts for name in ("worker_seconds", "seconds") if name in each), 0.0))


def _general_bytes(stages: Stages | PlainStages, recipe: Recipe | PlainClassifier, records: Records) -> int:
    """Count the selected text that a training learns from, recipes before it included, each text once."""
    sizes: dict[str, int] = {}
    own, made = (recipe, stages) if isinstance(recipe, Recipe) and isinstance(stages, Stages) else (None, None)
    while own is not None and made is not None:
        if made.neighbours is not None:
            size = int(own.general_share * sum(records.facts(made.neighbours).get("rank_bytes", [])[: own.k]))
            sizes[made.neighbours.fingerprint] = max(size, sizes.get(made.neighbours.fingerprint, 0))
        own, made = own.after, made.before
    return sum(sizes.values())
