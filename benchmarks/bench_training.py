"""Compare training with the released loop: non-padding tokens per second in both stages, on the same rows and masks.

    python benchmarks/bench_training.py                                     # embedded data
    python benchmarks/bench_training.py --corpus data/corpus --task-root data/tasks --tasks sciie --sizes 4x256 12x768

The released loop is rewritten from its description: rows padded to 128 tokens, logits of the whole vocabulary at every
position, the vocabulary head kept in stage two and multiplied by zero, plain AdamW, fp32, the loss fetched every step.
Its batches are made in advance and not timed; ours are timed with everything a training does. Each side has its own
process, and they take turns of equal duration. A ratio compares non-padding tokens per second in the same turn; the
table shows the median over turns. The first turn is a longer warm-up, because kernels are made when a shape is first
seen. Memory is what training adds to a process' peak. Waiting is the share of our time spent waiting for batches.

Before that, both make the same steps in fp32 without dropout, and the first line shows the largest difference of their
losses. The second line is the memory that the MLM loss of one batch adds to a process' peak, forward and backward. The
third is the batches that one thread makes per second. The last rows compare numbers of workers. Utilisation is the rate
of operations on non-padding tokens relative to a large matrix product.

A profile at 12 x 768 in bf16 on scientific passages, on a CPU with matrix units of 1.0 to 2.0 TFLOPS: matrix products
take 47 % of the time. The rest is memory-bound: copies 19 % (weights and gradients between 32 and 16 bits, half of them
of the token table), dropout 9 %, GELU 7 %, layer norms 4 %, AdamW 3 %.
"""

import json
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import tyro
from bench_data import Bench, load
from rich.console import Console
from rich.table import Table
from torch import nn
from training_sides import HEADLESS, LENGTH, RELEASED, VOCABULARY, Data, Ours, Released, Work
from training_turns import SPAWN, Side, ask, peak_bytes, start

from tlm_ray import plain_errors, storage
from tlm_ray.corpus.embedded.embedded_task import docstring_corpus_and_task
from tlm_ray.corpus.embedded.packages import installed_packages, read_package
from tlm_ray.corpus.general.splitting import split_document
from tlm_ray.corpus.labelled.tasks import read_task
from tlm_ray.training.kernels.projected_losses import ProjectedCrossEntropy
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.tokens.blocks import write_general_blocks, write_task_blocks
from tlm_ray.training.tokens.tokenizer import train_wordpiece

PASSAGES = 20_000


@dataclass(frozen=True, kw_only=True)
class Options(Bench):
    """What to measure on."""

    sizes: list[str] = field(default_factory=lambda: ["4x256", "8x512", "12x768"])
    """model sizes, as layers x width"""
    stages: list[str] = field(default_factory=lambda: ["one", "two"])
    """stages to measure"""
    precisions: list[str] = field(default_factory=lambda: ["fp32", "bf16"])
    """of ours"""
    workers: list[int] = field(default_factory=lambda: [1, 2])
    """numbers of workers (one CPU thread each) to compare, at the first size and the last precision"""
    rows: int = 32
    """rows per step"""
    seconds: float = 12.0
    """seconds per turn"""
    warm: float = 30.0
    """seconds of the warm-up turn"""
    packed: bool = False
    """also measure ours with packed rows"""
    dropout: float = 0.1
    """of both"""
    compare: int = 50
    """steps whose losses are compared (0: none)"""
    device: str = "cpu"
    """cpu or cuda"""
    threads: int = 2
    """CPU threads"""

    def __post_init__(self) -> None:
        if self.corpus and not self.tasks:
            raise ValueError("--tasks: give a task to train on, in addition to --corpus")

    def work(self, data: Data, size: str, stage: str) -> Work:
        """Return the work of one measurement."""
        return Work(data=data, size=size, stage=stage, rows=self.rows, dropout=self.dropout, device=self.device)


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    with tempfile.TemporaryDirectory() as folder:
        data = read(options, folder)
    works = [options.work(data, size, stage) for size in options.sizes for stage in options.stages]
    if options.compare:
        apart = losses_apart(replace(works[0], stage="one", steps=options.compare, dropout=0.0), options.threads)
        print(f"losses of {options.compare} steps differ by at most {apart:.1e}")
    if options.device == "cpu":
        full, ours = (in_another_process(loss_memory, works[0], full) for full in (True, False))
        megabytes = f"{full / 1e6:,.0f} MB with all logits, {ours / 1e6:,.0f} MB ours"
        print(f"memory of the MLM loss: {megabytes}, {ours / full:.1%}")
    print(f"batches made per second by one thread: {batches_made(works[0]):,.0f}")
    rows = [row for work in works for row in measure(work, sides(work, options), options)]
    if options.device == "cpu" and len(options.workers) > 1:
        rows += measure(works[0], crews(options), options)
    fill = float(data.general.lengths.mean()) / LENGTH
    show(rows, f"{data.name}: rows fill {fill:.0%} of {LENGTH} tokens; {options.rows} rows per step, {options.device}")
    if options.json:
        print(json.dumps({"fill": fill, "rows": rows}))


def read(options: Options, folder: str) -> Data:
    """Cut and tokenise some passages and a task."""
    if options.corpus:
        name = options.tasks[0]
        texts, task = load(options)[0], read_task(name, task_root=options.task_root)
        passages = texts.take(np.arange(0, len(texts), max(1, len(texts) // PASSAGES))).to_pylist()
    else:
        name = "docstrings"
        corpus, splits = docstring_corpus_and_task({name: read_package(name) for name in installed_packages()})
        for split, table in splits.items():
            storage.write_parquet(f"{folder}/task/{split}.parquet", table)
        task = read_task(f"{folder}/task", metric="accuracy")
        passages = [p for text in corpus["text"].to_pylist() for p in split_document(text, passage_tokens=LENGTH)]
        passages = passages[:: max(1, len(passages) // PASSAGES)]
    tokenizer = train_wordpiece(passages, vocabulary=VOCABULARY)
    general = write_general_blocks(f"{folder}/g.arrow", passages, [0] * len(passages), tokenizer, block_tokens=LENGTH)
    rows = write_task_blocks(f"{folder}/t.arrow", task.splits["train"], tokenizer, task_tokens=LENGTH)
    return Data(name=name, general=general, task=rows, labels=task.labels, tokenizer=tokenizer)


def sides(work: Work, options: Options) -> list[Side]:
    """Return the sides that take turns; the others are compared with the first."""
    released = [RELEASED, *([HEADLESS] if work.stage == "two" else [])]
    padded = [Side(name=how, how=how, threads=options.threads) for how in [*released, *options.precisions]]
    if not options.packed:
        return padded
    return padded + [replace(s, name=f"{s.how}, packed", packed=True) for s in padded if s.how in options.precisions]


def crews(options: Options) -> list[Side]:
    """Return sides with different numbers of workers, fewest first."""
    how = options.precisions[-1]
    numbers = sorted(set(options.workers))
    return [Side(name=f"{how}, workers: {n}", how=how, threads=1, world=n) for n in numbers]


def losses_apart(work: Work, threads: int) -> float:
    """Return the largest difference between the losses of both loops, in fp32 without dropout."""
    torch.set_num_threads(threads)
    theirs, ours = Released(work, head=True), Ours(work, Worker(device=work.device)).trainer
    for step in range(work.steps):
        theirs.step(step)
    ours.run(lambda *_: None)
    pairs = list(zip(theirs.losses, ours.progress.history, strict=True))
    return max(abs(losses[name] - entry[name]) for losses, entry in pairs for name in losses)


def in_another_process(function: Any, *arguments: Any) -> Any:
    """Run a function in a new process and return its result."""
    with ProcessPoolExecutor(1, SPAWN) as pool:
        return pool.submit(function, *arguments).result()


def loss_memory(work: Work, full: bool) -> int:
    """Return the bytes that a batch's MLM loss adds to the peak, in fp32, with all logits or with our loss."""
    width = int(work.size.split("x")[1])
    predicted = work.data.batches(work.settings).batch(0).targets["mlm"].flat
    hidden = torch.zeros(work.rows * LENGTH, width, requires_grad=True)
    weight, bias = torch.zeros(VOCABULARY, width, requires_grad=True), torch.zeros(VOCABULARY, requires_grad=True)
    before = peak_bytes("cpu")
    if full:
        targets = torch.full((len(hidden),), -100)
        targets[: len(predicted)] = torch.from_numpy(predicted)
        nn.functional.cross_entropy(nn.functional.linear(hidden, weight, bias), targets, reduction="sum").backward()
    else:
        masked = hidden[: len(predicted)]
        ProjectedCrossEntropy.apply(masked, weight, bias, torch.from_numpy(predicted)).backward()
    return peak_bytes("cpu") - before


def batches_made(work: Work, seconds: float = 2.0) -> float:
    """Return the number of stage-one batches, with masks, that one thread makes per second."""
    batches, step, started = work.data.batches(work.settings), 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        batches.batch(step)
        step += 1
    return step / (time.perf_counter() - started)


def measure(work: Work, taking_turns: list[Side], options: Options) -> list[dict[str, Any]]:
    """Run sides in turns, each worker in its own process; ratios are to the first side."""
    pipes = {side.name: [start(work, side, rank) for rank in range(side.world)] for side in taking_turns}
    rates: dict[str, list[float]] = {side.name: [] for side in taking_turns}
    for seconds in [options.warm] + [options.seconds] * options.turns:
        for name, own in pipes.items():
            rates[name].append(sum(ask(own, seconds)))
        turn = ", ".join(f"{name} {own[-1]:,.0f}" for name, own in rates.items())
        print(f"{work.size}, stage {work.stage}, turn {len(next(iter(rates.values()))) - 1}: {turn} real tokens/s")
    facts = {name: ask(own, None)[0] for name, own in pipes.items()}
    first = rates[taking_turns[0].name][1:]
    return [
        {
            "work": f"{work.size}, stage {work.stage}",
            "side": name,
            "rate": statistics.median(own[1:]),
            "ratio": statistics.median(a / b for a, b in zip(own[1:], first, strict=True)),
        }
        | facts[name]
        for name, own in rates.items()
    ]


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Print the rows as a table."""
    table = Table(title=title, box=None, header_style="dim")
    for heading in ("work", "side", "real tokens/s", "faster", "memory, GB", "waiting", "utilisation"):
        table.add_column(heading, justify="left" if heading in ("work", "side") else "right")
    for row in rows:
        shares = [f"{row[name]:.1%}" if name in row else "" for name in ("waiting", "utilisation")]
        numbers = (f"{row['rate']:,.0f}", f"{row['ratio']:.1f}x", f"{row['memory']:.2f}")
        table.add_row(row["work"], row["side"], *numbers, *shares)
    Console().print(table)


if __name__ == "__main__":
    with plain_errors():
        main()
