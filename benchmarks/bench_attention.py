"""Time steps of an encoder on a CPU by its attention: torch's, all rows at once, and in groups that caches hold.

    python benchmarks/bench_attention.py
    python benchmarks/bench_attention.py --shapes 32x256 --turns 9

The encoder is a BERT of MiniLM's size with random weights. A step is a forward and a backward pass over rows that are
padded by up to a fifth, on one thread, in bf16 where the processor has its products. All ways take turns in one
process. Prints a line of a Markdown table per shape, medians in seconds.
"""

import time
from dataclasses import dataclass, field
from statistics import median

import torch
import tyro
from transformers import BertConfig, BertModel

from tlm_ray.process import tune_torch
from tlm_ray.report.formats import markdown_rows
from tlm_ray.training.kernels import cpu

VOCABULARY = 30_522
AT_ONCE = 2**62  # scores, more than any batch has
WAYS = {"torch's": ("sdpa", AT_ONCE), "at once": (cpu.ATTENTION, AT_ONCE), "in groups": (cpu.ATTENTION, cpu.SCORES)}


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Options of the benchmark."""

    shapes: list[str] = field(default_factory=lambda: ["32x40", "32x128", "32x256", "16x512"])
    """rows x tokens per step"""
    turns: int = 5
    """steps that are timed, of each way"""


def step(model: BertModel, inputs: dict[str, torch.Tensor], way: str) -> float:
    """Return the seconds of a step."""
    implementation, cpu.SCORES = WAYS[way]
    model.set_attn_implementation(implementation)
    model.zero_grad()
    began = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        states = model(**inputs).last_hidden_state
    states.float().square().mean().backward()
    return time.perf_counter() - began


def line(model: BertModel, shape: str, turns: int) -> list[str]:
    """Return a line of the table; one step of each way comes before those that are timed."""
    rows, tokens = map(int, shape.split("x"))
    lengths = torch.randint(int(0.8 * tokens), tokens + 1, (rows, 1))
    ids, mask = torch.randint(VOCABULARY, (rows, tokens)), (torch.arange(tokens) < lengths).long()
    seconds = [
        {way: step(model, {"input_ids": ids, "attention_mask": mask}, way) for way in WAYS} for _ in range(1 + turns)
    ]
    medians = [median(turn[way] for turn in seconds[1:]) for way in WAYS]
    *_, whole, grouped = medians
    return [shape, *(f"{each:.3f}" for each in medians), f"{whole / grouped:.2f}x"]


def main() -> None:
    options = tyro.cli(Attention, description=__doc__)
    tune_torch()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cpu.register()
    size = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1_536}
    model = BertModel(BertConfig.from_dict(size | {"vocab_size": VOCABULARY})).train()
    cpu.prepare(model)
    head, rule = markdown_rows(["rows x tokens", *WAYS, "groups against at once"], [], right=range(1, 5))
    print(head, rule, sep="\n")
    for shape in options.shapes:
        print(f"| {' | '.join(line(model, shape, options.turns))} |", flush=True)


if __name__ == "__main__":
    main()
