"""Check correctness and speed of training on one GPU, and profile it, with one command (`make gpu`).

    make gpu                                       # results/gpu.json; under 9 minutes
    PYTHONPATH=. python benchmarks/gpu.py --out gpu.json

It needs only torch, transformers, pyarrow and numpy. Rows are synthetic: tokens by Zipf's law, lengths that fill three
quarters of 128, the paper's batches of 256 rows. Without a GPU it prints a notice and runs on the CPU at a small size.
The file is updated after each part, so an interrupted run keeps its results.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gpu_checks import CHECKS
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from training_sides import LENGTH, RELEASED, VOCABULARY, Data, Ours, Work
from training_turns import Side, make, peak_bytes, synchronised, used
from transformers import PreTrainedTokenizerFast

from tlm_ray.training.loop.pace import Pace
from tlm_ray.training.model.flops import matmul_rate
from tlm_ray.training.tokens.blocks import Blocks

SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
PROFILED = 5  # steps
SHOWN = 15  # operations of a profile


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The measurements for a device."""

    device: str
    models: dict[str, str]
    """sizes (layers x width) by family"""
    rows: int
    """a step"""
    seconds: float
    """seconds measured per side"""
    warm: int
    """steps before"""
    compiled: bool
    """whether to measure torch.compile too"""


GPU = Plan(
    device="cuda",
    models={"bert": "12x768", "modernbert": "22x768"},
    rows=256,
    seconds=8.0,
    warm=20,
    compiled=True,
)
CPU = Plan(device="cpu", models={"bert": "2x128", "modernbert": "2x128"}, rows=16, seconds=2.0, warm=3, compiled=False)


def main() -> None:
    options = parsed()
    plan = GPU if torch.cuda.is_available() else CPU
    if plan is CPU:
        print("no GPU found: running on the CPU at a small size; the numbers below say nothing about GPUs")
    report = Report(options.out, deadline=time.monotonic() + options.minutes * 60)
    report.add("machine", partial(machine, plan))
    data = made_up()
    for name, check in CHECKS.items():
        report.add(f"check: {name}", partial(check, plan.device))
    for family, size in plan.models.items():
        work = Work(data=data, family=family, size=size, stage="one", rows=plan.rows, dropout=0.1, device=plan.device)
        for side in sides():
            report.add(f"{family} {size}, {side.name}", partial(measured, work, side, plan))
        report.add(f"{family} {size}, profile", partial(profiled, work, plan))
        for side in sides()[1:] if plan.compiled else []:
            report.add(f"{family} {size}, {side.name}, compiled", partial(measured, work, side, plan, is_compiled=True))
    report.end()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results/gpu.json", help="JSON file to write")
    parser.add_argument("--minutes", type=float, default=8.5, help="no part starts after so many minutes")
    return parser.parse_args()


class Report:
    """The parts of the JSON file, which is written after each."""

    def __init__(self, out: str, *, deadline: float):
        self.file, self.deadline = Path(out), deadline
        self.parts: dict[str, dict[str, Any]] = {}
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, part: Callable[[], dict[str, Any]]) -> None:
        """Run a part and write its result; an error is recorded, and the other parts continue."""
        started = time.monotonic()
        if started > self.deadline:
            found: dict[str, Any] = {"left out": "time limit reached"}
        else:
            try:
                found = part()
            except Exception as error:  # any error of a device, compiler or library version
                found = {"failed": f"{type(error).__name__}: {str(error)[:2000]}"}
        self.parts[name] = found | {"took_s": round(time.monotonic() - started, 1)}
        self.file.write_text(json.dumps(self.parts, indent=1) + "\n")
        shown = {key: value for key, value in self.parts[name].items() if key not in ("operations", "host")}
        print(name, shown, flush=True)

    def end(self) -> None:
        """Print the location and the skipped parts; SystemExit if a part failed."""
        left_out = [name for name, part in self.parts.items() if "left out" in part]
        print(self.file, f"skipped: {', '.join(left_out)}" if left_out else "")
        failed = [name for name, part in self.parts.items() if "failed" in part]
        if failed:
            raise SystemExit(f"failed: {', '.join(failed)}")


def machine(plan: Plan) -> dict[str, Any]:
    """Return the plan, device, versions, and rates of large matrix products."""
    device = plan.device
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    rates = {f"tflops_{precision}": matmul_rate(device, precision) / 1e12 for precision in ("fp32", "bf16")}
    return {"plan": asdict(plan), "device": name, "is_gpu": device == "cuda"} | versions | rates


def made_up() -> Data:
    """Return synthetic rows and a tokenizer with their tokens."""
    draw = np.random.default_rng(0)
    words = {word: number for number, word in enumerate([*SPECIAL.values(), *(f"w{n}" for n in range(VOCABULARY - 5))])}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="[UNK]")), **SPECIAL)

    def rows(count: int, *, labels: bool) -> Blocks:
        lengths = np.clip(LENGTH - draw.exponential(45, count), 8, LENGTH).astype(int)
        tokens = 5 + np.minimum(draw.zipf(1.2, lengths.sum()), VOCABULARY - 6).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens[offsets[:-1]], tokens[offsets[1:] - 1] = tokenizer.cls_token_id, tokenizer.sep_token_id
        return Blocks(tokens, offsets, labels=draw.integers(0, 3, count) if labels else None)

    return Data(
        name="made up",
        general=rows(20_000, labels=False),
        task=rows(3_000, labels=True),
        labels=("a", "b", "c"),
        tokenizer=tokenizer,
    )


def sides() -> list[Side]:
    """List the released loop and ours, padded and packed."""
    padded = Side(name="bf16, padded", how="bf16", threads=torch.get_num_threads())
    return [replace(padded, name=RELEASED, how=RELEASED), padded, replace(padded, name="bf16, packed", packed=True)]


def measured(work: Work, side: Side, plan: Plan, *, is_compiled: bool = False) -> dict[str, Any]:
    """Return non-padding tokens per second, utilisation of the device's matrix rate, and memory."""
    if plan.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before, own = peak_bytes(plan.device), make(work, side, 0)
    if is_compiled:
        assert isinstance(own, Ours), "only ours is compiled"
        own.trainer.parallel = torch.compile(own.trainer.model, dynamic=True)
    for step in range(plan.warm):
        own.step(step)
    synchronised(plan.device)
    if isinstance(own, Ours):
        own.trainer.pace = Pace()
    seconds, tokens, step = 0.0, 0, plan.warm
    while seconds < plan.seconds:
        own_seconds, own_tokens = own.step(step)
        seconds, tokens, step = seconds + own_seconds, tokens + own_tokens, step + 1
    seconds += synchronised(plan.device)
    found = {"tokens_per_s": tokens / seconds, "steps": step - plan.warm}
    if plan.device == "cuda":  # on a CPU, the peak includes all earlier sides
        found["memory_gb"] = (peak_bytes(plan.device) - before) / 1e9
    return found | used(own, seconds)


def profiled(work: Work, plan: Plan) -> dict[str, Any]:
    """Return a profile of our padded steps: the device's kernels and what its host does, longest first."""
    own = make(work, sides()[1], 0)
    for step in range(plan.warm):
        own.step(step)
    on_gpu = plan.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as found:
        for step in range(plan.warm, plan.warm + PROFILED):
            own.step(step)
        synchronised(plan.device)
    averages = found.key_averages()
    host = {event.key: event.self_cpu_time_total for event in averages}
    if not on_gpu:
        return shares(host)
    # only kernels: an operation's device time repeats that of its kernels, which are separate events
    kernels = [each for each in averages if each.device_type == DeviceType.CUDA and not each.is_user_annotation]
    return shares({event.key: event.self_device_time_total for event in kernels}) | {"host": shares(host)}


def shares(spent: dict[str, float]) -> dict[str, Any]:
    """Return the seconds of all operations, from microseconds by name, and the shares of the longest."""
    total = sum(spent.values())
    longest = sorted(spent, key=lambda name: -spent[name])[:SHOWN]
    return {"seconds": total / 1e6, "operations": {name: round(spent[name] / total, 4) for name in longest}}


if __name__ == "__main__":
    main()
