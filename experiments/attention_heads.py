"""Count attention heads that attend to a neighbour or to special tokens (Yao et al. 2022, figure 3).

    python experiments/attention_heads.py                                # embedded data, an encoder pretrained here
    python experiments/attention_heads.py --start FacebookAI/roberta-base --scale medium --tasks rct-20k sciie chemprot
    python experiments/attention_heads.py --dry-run

Writes a table of counts over seeds, and a figure of every head's weights over one text. Expected, as in the paper: TLM
has more positional and fewer vertical heads than a fine-tuned pretrained encoder.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import ray
from pretrained import Kind, PretrainedTable

from tlm_ray import (
    Flow,
    Recipe,
    Stage,
    Stages,
    parse,
    plain_errors,
    ray_options,
    run,
    short_name,
    show_plan,
    show_reasons,
    storage,
)
from tlm_ray.report.figures.attention import heads_figure, heads_markdown, heads_records
from tlm_ray.report.formats import json_text
from tlm_ray.runs.flow.attention import attention_stage, read_example, read_heads
from tlm_ray.runs.flow.plain import PlainStages
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.registry import note


@dataclass(frozen=True, kw_only=True)
class AttentionHeads(PretrainedTable):
    """Options of the attention-head counts."""

    name = "attention_heads"

    kinds: list[Kind] = field(default_factory=lambda: ["plain"])
    """steps before the pretrained encoder's fine-tuning, a row each"""
    rows: int = 200
    """number of dev texts to analyse the heads on"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows < 1:
            raise ValueError(f"--rows {self.rows}: must be 1 or more (number of dev texts)")
        if self.changes.marks:
            raise ValueError("--marks: adds no attention head, and its model opens as a classifier alone; leave it out")


def watched(flow: Flow, rows: int, stages: Stages | PlainStages) -> Stage:
    """Return the stage that analyses a training's heads."""
    assert isinstance(stages, Stages), "plain classifiers have no heads"
    return attention_stage(flow, stages, rows=rows)


def main() -> None:
    options = parse(AttentionHeads, __doc__)
    flow, place = options.flow(), options.place
    trainings = options.trainings(flow)
    trainings = [one for one in trainings if isinstance(one.recipe, Recipe)]
    if options.dry_run or options.why:
        (show_plan if options.dry_run else show_reasons)(trainings, flow, last=partial(watched, flow, options.rows))
        return
    ray.init(**ray_options())
    outcome = run(trainings, flow, name=options.name, tracking_uri=place.tracking_uri, log_models=options.log_models)
    stages = {training: watched(flow, options.rows, own) for training, own in outcome.stages.items()}
    note(outcome.root, options.name, list(stages.values()))
    make(list(stages.values()), outcome.root)
    models = [
        read_heads(stage, outcome.root, row=training.row, task=short_name(training.task))
        for training, stage in stages.items()
    ]
    examples = {
        number: read_example(stage, outcome.root)
        for number, (training, stage) in enumerate(stages.items())
        if training.seed == 0
    }
    text = heads_markdown(models)
    print(text)
    files: dict[str, Callable[[], bytes]] = {  # the figure last, because it may be too large to draw
        "md": text.encode,
        "json": json_text({"models": heads_records(models)}).encode,
        "png": partial(heads_figure, models, examples),
    }
    for kind, made in files.items():
        uri = storage.join(place.out, f"{options.name}.{kind}")
        storage.write_bytes(uri, made())
        outcome.tracker.attach([uri])
        print(storage.shown(uri))


if __name__ == "__main__":
    with plain_errors():
        main()
