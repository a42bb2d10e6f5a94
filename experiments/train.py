"""One classifier for one task: retrieve, train, and put the model of the best seed where you want it.

    python experiments/train.py                                                          # embedded data
    python experiments/train.py --tasks reviews --task-root data/tasks --corpus data/corpus --model reviews-model
    python experiments/train.py ... --start google-bert/bert-base-uncased                # fine-tune instead

The folder opens with transformers as it is, and with `experiments/predict.py`. The dev set chooses the seed.
"""

from dataclasses import dataclass

import ray
import tyro
from rich.console import Console
from rich.table import Table

from tlm_ray import Options, Training, baseline, plain_errors, ray_options, run, show_plan, storage


@dataclass(frozen=True, kw_only=True)
class Train(Options):
    """Options of one training."""

    model: str = "model"
    """folder or URI for the trained model"""
    start: str = ""
    """a pretrained encoder to fine-tune instead of training from scratch: hub name or local folder"""
    before: str = "plain"
    """what comes before its fine-tuning: plain (nothing), mlm, tapt, dapt or tlm"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.tasks) != 1:
            raise ValueError(f"--tasks {' '.join(self.tasks)}: name one; main_table.py trains several")
        if self.before != "plain" and not self.start:
            raise ValueError(f"--before {self.before}: comes before the fine-tuning of an encoder; give --start too")
        if self.start and self.minutes is not None:
            raise ValueError(f"--minutes {self.minutes}: the speed of --start is not known; give --tokens")


def trainings(options: Train) -> list[Training]:
    """One training a seed."""
    (task,) = options.tasks
    recipe = options.recipe(task)
    recipe = baseline(recipe, options.start, options.before) if options.start else recipe
    return [Training(row="train", task=task, recipe=recipe, seed=seed) for seed in range(options.seeds)]


def main() -> None:
    options = tyro.cli(Train, description=__doc__)
    if options.dry_run:
        show_plan(trainings(options), options)
        return
    ray.init(**ray_options())
    outcome = run(trainings(options), options, name="train")
    facts = {training: outcome.facts(training) for training in outcome.stages}
    best = max(facts, key=lambda training: facts[training]["dev"])
    table = Table("seed", "dev", "test", "minutes", box=None, header_style="dim")
    for training, found in facts.items():
        numbers = (f"{found['dev']:.2f}", f"{found['test']:.2f}", f"{found['seconds'] / 60:.1f}")
        table.add_row(f"{training.seed}{' (best)' if training is best else ''}", *numbers)
    Console().print(table)
    model = storage.absolute(options.model)
    storage.copy_folder(outcome.model(best), model)
    print(model)


if __name__ == "__main__":
    with plain_errors():
        main()
