"""Training side by side with the released loop: real tokens a second of both stages, on the same rows and masks.

    python experiments/bench_training.py                                     # embedded data
    python experiments/bench_training.py --corpus data/corpus --task-root data/tasks --tasks sciie --sizes 4x256 12x768

The released way is rewritten from its description: every row padded to 128 tokens, logits of the whole vocabulary at
every position, the vocabulary head kept in stage two and multiplied by zero, AdamW without options, fp32, the loss
fetched each step. Its batches are made ahead and not timed; ours are timed with everything that a training does. Each
side has a process of its own and they take turns of like seconds; a ratio is that of real tokens a second in the same
turn, padding not counted, and the table shows the median of the turns. The first turn warms and is longer: a product's
kernel is made when its shape is first seen. Memory is what training adds to a process' peak, waiting the share of our
seconds in which the next batch was not there yet.

Before that, both make the same steps in fp32 without dropout: the first line says how far their losses are apart. The
second is the memory that the MLM loss of one batch alone adds to a process' peak, forward and backward.

A profile at 12 x 768 in bf16, on a CPU whose matrix units do 1.0 to 2.0 TFLOPS, of the code before a bias was added
inside its product: 42 % of the time was products at about 1.4 TFLOPS, the rest moving memory: copies 18 % (weights and
gradients between 32 and 16 bits, that bias), GELU 8 %, dropout 8 %, gradients filled with zeros 4 %, AdamW 2 %.
"""

import json
import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import tyro
from bench_retrieval import Bench, load
from rich.console import Console
from rich.table import Table
from torch import nn

from tlm_ray import plain_errors, storage
from tlm_ray.corpus.docstrings import docstring_corpus_and_task, installed_packages, read_package
from tlm_ray.corpus.splitting import split_document
from tlm_ray.corpus.tasks import read_task
from tlm_ray.process import tune_torch
from tlm_ray.training.batches import Batch, Interleave
from tlm_ray.training.blocks import Blocks, write_general_blocks, write_task_blocks
from tlm_ray.training.cross_entropy import ProjectedCrossEntropy
from tlm_ray.training.loop import ADAM_BETAS, ADAM_EPSILON, Rank, Training, parameter_groups
from tlm_ray.training.masking import Masking
from tlm_ray.training.model import JointModel, bert_config
from tlm_ray.training.schedules import LOSSES, Geometry, Schedule
from tlm_ray.training.tokenizer import train_wordpiece

LENGTH, VOCABULARY, RHO1, RHO2 = 128, 30_522, 7, 20.0
PASSAGES = 20_000
RELEASED, HEADLESS = "released", "released, no vocabulary head"
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, kw_only=True)
class Options(Bench):
    """What to measure on."""

    sizes: list[str] = field(default_factory=lambda: ["4x256", "8x512", "12x768"])
    """layers x width"""
    stages: list[str] = field(default_factory=lambda: ["one", "two"])
    """stages to measure"""
    precisions: list[str] = field(default_factory=lambda: ["fp32", "bf16"])
    """of ours"""
    rows: int = 32
    """rows a step"""
    seconds: float = 12.0
    """of a turn"""
    warm: float = 30.0
    """seconds of the first turn, which does not count"""
    dropout: float = 0.1
    """of both"""
    compare: int = 50
    """steps whose losses are compared; 0 for none"""
    device: str = "cpu"
    """cpu or cuda"""
    threads: int = 2
    """of a CPU"""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What both ways train on."""

    name: str
    general: Blocks
    task: Blocks
    labels: tuple[str, ...]
    tokenizer: transformers.PreTrainedTokenizerBase

    def batches(self, stage: str, rows: int) -> Interleave:
        """Return the batches of a stage."""
        own: dict[str, Any] = {"general": None, "rho1": 0, "masking": None}
        if stage == "one":
            special = tuple(self.tokenizer.all_special_ids)
            masking = Masking(mask_id=self.tokenizer.mask_token_id, vocabulary=VOCABULARY, special_ids=special)
            own = {"general": self.general, "rho1": RHO1, "masking": masking}
        return Interleave(task=self.task, batch_rows=rows, seed=0, pad_id=self.tokenizer.pad_token_id, **own)


class Released:
    """The released loop's steps; head False leaves the vocabulary head out, which its stage two has no use for."""

    def __init__(self, model: JointModel, schedule: Schedule, batches: Interleave, device: str, *, head: bool):
        model.encoder.set_attn_implementation("sdpa")
        self.model, self.schedule, self.batches, self.device = model.to(device).train(), schedule, batches, device
        self.head = head
        self.optimizer = torch.optim.AdamW(parameter_groups(model, schedule), betas=ADAM_BETAS, eps=ADAM_EPSILON)
        self.losses: list[dict[str, float]] = []

    def step(self, step: int) -> float:
        """Take one optimizer step; return its seconds without those in which rows are padded."""
        batch = self.batches.batch(step)
        inputs = self.padded(batch)
        started = time.perf_counter()
        self.learn(step, batch.kind, *inputs)
        return time.perf_counter() - started

    def learn(self, step: int, kind: str, tokens: Any, attention: Any, targets: Any, labels: Any) -> None:
        """Compute losses and gradients, change the weights, fetch the losses."""
        hidden = self.model.encode({"input_ids": tokens, "attention_mask": attention})
        scores = self.model.task(hidden)
        mlm = task = torch.zeros((), device=self.device)
        if self.head:
            head: Any = self.model.mlm
            logits = nn.functional.linear(head(hidden), head.last.weight, head.last.bias)
            mlm = nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), reduction="sum")
            mlm = mlm / (targets >= 0).sum().clamp(min=1)
        task = nn.functional.cross_entropy(scores, labels) if labels is not None else 0.0 * scores.sum()
        rho2 = RHO2 if (targets >= 0).any() else 0.0
        loss = mlm + task if kind == "general" else (rho2 * mlm + task) / (rho2 + 1)
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append({f"{kind}_mlm": mlm.item()} | ({"task": task.item()} if kind == "task" else {}))

    def padded(self, batch: Batch) -> tuple[torch.Tensor | None, ...]:
        """Return a batch's rows padded to LENGTH, and what each place is to be predicted as, -100 for nothing."""
        rows, width = batch.tokens.shape
        tokens = np.full((rows, LENGTH), self.batches.pad_id)
        attention, targets = np.zeros((rows, LENGTH), np.int64), np.full((rows, LENGTH), -100)
        tokens[:, :width], attention[:, :width] = batch.tokens, batch.attention
        if batch.masked is not None:
            targets[np.divmod(batch.masked, width)] = batch.targets
        arrays = (tokens, attention, targets, batch.labels)
        return tuple(None if array is None else torch.from_numpy(array).to(self.device) for array in arrays)


class Ours:
    """This package's loop, as a rank of a training runs it."""

    def __init__(self, model: JointModel, schedule: Schedule, batches: Interleave, rank: Rank):
        self.training = Training(model, batches, schedule, rank, rho2=RHO2)

    def step(self, step: int) -> float:
        """Take one step; return its seconds."""
        started = time.perf_counter()
        self.training.step(step)
        return time.perf_counter() - started


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    with tempfile.TemporaryDirectory() as folder:
        data = read(options, folder)
    if options.compare:
        print(f"losses of {options.compare} steps at most {losses_apart(data, options):.1e} apart")
    if options.device == "cpu":
        full, ours = (apart(loss_memory, data, options, full) for full in (True, False))
        megabytes = f"{full / 1e6:,.0f} MB with all logits, {ours / 1e6:,.0f} MB ours"
        print(f"memory of the MLM loss: {megabytes}, {ours / full:.1%}")
    works = [(size, stage) for size in options.sizes for stage in options.stages]
    rows = [row for size, stage in works for row in measure(data, size, stage, options)]
    fill = float(data.general.lengths.mean()) / LENGTH
    show(rows, f"{data.name}: rows fill {fill:.0%} of {LENGTH} tokens; {options.rows} rows a step, {options.device}")
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


def make_released(data: Data, size: str, stage: str, options: Options, schedule: Schedule, *, head: bool) -> Released:
    """Return the released way with the weights that all start from."""
    batches = data.batches(stage, options.rows)
    return Released(make_model(data, size, options), schedule, batches, options.device, head=head)


def make_ours(data: Data, size: str, stage: str, options: Options, schedule: Schedule, *, precision: str) -> Ours:
    """Return our way with the same weights."""
    model = make_model(data, size, options)
    model.mlm = model.mlm if stage == "one" else None
    return Ours(model, schedule, data.batches(stage, options.rows), Rank(device=options.device, precision=precision))


def make_model(data: Data, size: str, options: Options) -> JointModel:
    """Return a model of layers x width, with heads of 64, and random weights."""
    layers, width = map(int, size.split("x"))
    heads = max(1, width // 64)
    geometry = Geometry(layers=layers, width=width, heads=heads, intermediate=4 * width, dropout=options.dropout)
    config = bert_config(geometry, vocabulary=VOCABULARY, pad_id=data.tokenizer.pad_token_id, labels=data.labels)
    return JointModel.from_scratch(config, seed=0)


def schedule_of(steps: int, rows: int) -> Schedule:
    """Return a schedule of one rate, which logs every step."""
    rate: dict[str, Any] = {"learning_rate": 1e-4, "warmup_steps": 0, "weight_decay": 0.01}
    return Schedule(steps=steps, batch_rows=rows, evaluate_every=steps, log_every=1, **rate)


def losses_apart(data: Data, options: Options) -> float:
    """Return how far the losses of both ways are apart at most, in fp32 without dropout, at the first size."""
    torch.set_num_threads(options.threads)
    same = (data, options.sizes[0], "one", replace(options, dropout=0.0), schedule_of(options.compare, options.rows))
    theirs, ours = make_released(*same, head=True), make_ours(*same, precision="fp32").training
    for step in range(options.compare):
        theirs.step(step)
    ours.run(lambda *_: None)
    found = [{name: entry[name] for name in LOSSES if name in entry} for entry in ours.progress.history]
    assert all(a.keys() == b.keys() for a, b in zip(theirs.losses, found, strict=True))
    return max(abs(a[name] - b[name]) for a, b in zip(theirs.losses, found, strict=True) for name in a)


def apart(function: Any, *arguments: Any) -> Any:
    """Return what a function returns in a process of its own."""
    with ProcessPoolExecutor(1, SPAWN) as pool:
        return pool.submit(function, *arguments).result()


def loss_memory(data: Data, options: Options, full: bool) -> int:
    """Return the bytes that the MLM loss of a batch adds to the peak, in fp32: of all logits or of ours."""
    width = int(options.sizes[0].split("x")[1])
    batch = data.batches("one", options.rows).batch(0)
    assert batch.targets is not None
    hidden = torch.zeros(options.rows * LENGTH, width, requires_grad=True)
    weight, bias = torch.zeros(VOCABULARY, width, requires_grad=True), torch.zeros(VOCABULARY, requires_grad=True)
    before = peak_bytes()
    if full:
        targets = torch.full((len(hidden),), -100)
        targets[: len(batch.targets)] = torch.from_numpy(batch.targets)
        nn.functional.cross_entropy(nn.functional.linear(hidden, weight, bias), targets, reduction="sum").backward()
    else:
        masked = hidden[: len(batch.targets)]
        ProjectedCrossEntropy.apply(masked, weight, bias, torch.from_numpy(batch.targets)).backward()
    return peak_bytes() - before


def measure(data: Data, size: str, stage: str, options: Options) -> list[dict[str, Any]]:
    """Train all sides in turns, each in a process of its own."""
    sides = [RELEASED, *([HEADLESS] if stage == "two" else []), *options.precisions]
    pipes = {}
    for side in sides:
        pipes[side], inner = SPAWN.Pipe()
        SPAWN.Process(target=serve, args=(inner, side, data, size, stage, options), daemon=True).start()
        inner.close()  # so that a process that dies ends the wait
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for seconds in [options.warm] + [options.seconds] * options.turns:
        for side, pipe in pipes.items():
            pipe.send(seconds)
            rates[side].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send(None)
    facts = {side: pipe.recv() for side, pipe in pipes.items()}
    released = rates[RELEASED][1:]
    return [
        {
            "work": f"{size}, stage {stage}",
            "side": side,
            "rate": statistics.median(own[1:]),
            "ratio": statistics.median(a / b for a, b in zip(own[1:], released, strict=True)),
        }
        | facts[side]
        for side, own in rates.items()
    ]


def serve(pipe: Any, side: str, data: Data, size: str, stage: str, options: Options) -> None:
    """Run one side: seconds come, real tokens a second go; at the end memory in GB and the share of waiting."""
    if side in options.precisions:
        tune_torch()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    same = (data, size, stage, options, schedule_of(10_000, options.rows))
    before, own, batches, step, spent = peak_bytes(), make_side(side, *same), data.batches(stage, options.rows), 0, 0.0
    for least in iter(pipe.recv, None):
        seconds, tokens = 0.0, 0
        while seconds < least:
            seconds += own.step(step)
            tokens += batches.batch(step).real_tokens
            step += 1
        seconds += synchronised(options.device)
        spent += seconds
        pipe.send(tokens / seconds)
    waiting = own.training.progress.waiting / spent if isinstance(own, Ours) else 0.0
    pipe.send({"memory": (peak_bytes() - before) / 1e9, "waiting": waiting})


def synchronised(device: str) -> float:
    """Wait for what a GPU was given; return the seconds that it takes."""
    started = time.perf_counter()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def make_side(side: str, *same: Any) -> Released | Ours:
    """Return a side by its name: one of the released ways, or a precision of ours."""
    released = side in (RELEASED, HEADLESS)
    return make_released(*same, head=side == RELEASED) if released else make_ours(*same, precision=side)


def peak_bytes() -> int:
    """Return this process's peak of resident memory (Linux)."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Print the rows as a table."""
    table = Table(title=title, box=None, header_style="dim")
    for heading in ("work", "side", "real tokens/s", "faster", "memory, GB", "waiting"):
        table.add_column(heading, justify="left" if heading in ("work", "side") else "right")
    for row in rows:
        numbers = (f"{row['rate']:,.0f}", f"{row['ratio']:.1f}x", f"{row['memory']:.2f}", f"{row['waiting']:.1%}")
        table.add_row(row["work"], row["side"], *numbers)
    Console().print(table)


if __name__ == "__main__":
    with plain_errors():
        main()
