"""What rho2 and stage two are worth, on development scores (Yao et al. 2022, tables 6 and 7).

    python experiments/ablations.py                                     # embedded data
    python experiments/ablations.py --rho2s 0 20 100 1000 --scale small --tasks sciie chemprot --corpus s3://... ...
    python experiments/ablations.py --dry-run

Expected before running: stage two adds most where stage one sees few labels; rho2 of 0 is below any of 20 to 1000.
"""

from dataclasses import dataclass, field, replace

import ray

from tlm_ray import (
    PLAIN,
    Flow,
    Mixture,
    Outcome,
    Score,
    Training,
    TrainingOptions,
    open_flow,
    parse,
    plain_errors,
    ray_options,
    run,
    scores_markdown,
    short_name,
    show_plan,
)  # fmt: skip

SCORES = {"stage one alone": "stage_one_dev", "both stages": "dev"}


@dataclass(frozen=True, kw_only=True)
class Ablations(TrainingOptions):
    """Options of the ablations."""

    rho1: int | None = None
    """general batches per task batch, instead of the recipe's"""
    rho2s: list[float] = field(default_factory=lambda: [0.0, 20.0])
    """values of rho2: weight of the MLM loss in task batches"""


def trainings(options: Ablations, flow: Flow) -> list[Training]:
    """One training per rho2, task and seed, then the plain classifiers of each task."""
    mixture = Mixture(rho1=options.rho1)
    recipes = {task: options.recipe(task, flow, mixture) for task in options.data.tasks}
    plain = [Training(row=one.name, task=task, recipe=one) for one in PLAIN for task in recipes]
    trained = [
        Training(row=f"rho2 = {rho2:g}", task=task, recipe=replace(recipe, rho2=rho2), seed=seed)
        for rho2 in options.rho2s
        for task, recipe in recipes.items()
        for seed in range(options.seeds)
    ]
    return trained + plain


def scores(outcome: Outcome) -> list[Score]:
    """One score per rho2, task and number of stages; plain classifiers, which have no stages, beside both."""
    facts = {training: outcome.facts(training) for training in outcome.stages}
    values: dict[tuple[str, str], list[float]] = {}
    for training, found in facts.items():
        for name, fact in SCORES.items():
            if found[fact] is not None:
                values.setdefault((training.row, f"{short_name(training.task)}, {name}"), []).append(found[fact])
    return [Score(row=row, column=column, values=tuple(own)) for (row, column), own in values.items()]


def main() -> None:
    options = parse(Ablations, __doc__)
    flow = open_flow(options.data, options.place, options.cluster)
    if options.dry_run:
        show_plan(trainings(options, flow), flow)
        return
    ray.init(**ray_options())
    outcome = run(trainings(options, flow), flow, name="ablations", tracking_uri=options.place.tracking_uri)
    print(scores_markdown(scores(outcome)))
    for uri in outcome.publish_scores(scores(outcome), options.place.out).values():
        print(uri)


if __name__ == "__main__":
    with plain_errors():
        main()
