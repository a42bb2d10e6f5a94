"""How many attention heads look at a neighbour, how many at the marks of a text (Yao et al. 2022, figure 3).

    python experiments/attention_heads.py                                # embedded data, an encoder pretrained here
    python experiments/attention_heads.py --start FacebookAI/roberta-base --scale medium --tasks rct-20k sciie chemprot
    python experiments/attention_heads.py --dry-run

A table of counts over seeds, and a figure of every head's weights over one text. Expected before running, as the paper
has it: TLM has more positional heads and fewer vertical ones than a pretrained encoder that was fine-tuned.
"""

from dataclasses import dataclass, field

import ray
from pretrained import Kind, PretrainedTable

from tlm_ray import Stages, parse, plain_errors, ray_options, run, short_name, show_plan, show_reasons, storage
from tlm_ray.report.attention import heads_figure, heads_markdown, heads_records
from tlm_ray.report.formats import json_text
from tlm_ray.runs.attention import attention_stage, read_example, read_heads
from tlm_ray.runs.execution import make


@dataclass(frozen=True, kw_only=True)
class AttentionHeads(PretrainedTable):
    """Options of the counts of heads."""

    name = "attention_heads"

    kinds: list[Kind] = field(default_factory=lambda: ["plain"])
    """what comes before the fine-tuning of the pretrained encoder, a row each"""
    rows: int = 200
    """texts of the dev set that the heads are watched on"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows < 1:
            raise ValueError(f"--rows {self.rows}: must be 1 or more, texts of the dev set")


def main() -> None:
    options = parse(AttentionHeads, __doc__)
    flow, place = options.flow(), options.place
    trainings = options.trainings(flow)
    if options.dry_run or options.why:
        (show_plan if options.dry_run else show_reasons)(trainings, flow)
        return
    ray.init(**ray_options())
    outcome = run(trainings, flow, name=options.name, tracking_uri=place.tracking_uri)
    watched = {
        training: attention_stage(flow, stages, rows=options.rows)
        for training, stages in outcome.stages.items()
        if isinstance(stages, Stages)
    }
    make(list(watched.values()), outcome.root)
    models = [
        read_heads(stage, outcome.root, row=training.row, task=short_name(training.task))
        for training, stage in watched.items()
    ]
    examples = {
        number: read_example(stage, outcome.root)
        for number, (training, stage) in enumerate(watched.items())
        if training.seed == 0
    }
    text = heads_markdown(models)
    files = {
        "md": text.encode(),
        "json": json_text({"models": heads_records(models)}).encode(),
        "png": heads_figure(models, examples),
    }
    print(text)
    uris = {storage.join(place.out, f"{options.name}.{kind}"): data for kind, data in files.items()}
    for uri, data in uris.items():
        storage.write_bytes(uri, data)
        print(uri)
    outcome.tracker.attach(uris)


if __name__ == "__main__":
    with plain_errors():
        main()
