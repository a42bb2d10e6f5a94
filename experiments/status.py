"""Show the stages under a root: complete, running and unfinished ones, the experiments that need them, and the cost.

    python experiments/status.py                         # the default root, .tlm
    python experiments/status.py --root s3://bucket/tlm --price 3.5

It changes nothing, so it can run at any time.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from tlm_ray import Folders, parse, plain_errors
from tlm_ray.compute import Compute
from tlm_ray.console import console
from tlm_ray.runs.cli.options import settle_results
from tlm_ray.runs.planning.estimates import took
from tlm_ray.runs.planning.plan import worker_hours
from tlm_ray.runs.stages.locks import claimed
from tlm_ray.runs.stages.records import Record, Records
from tlm_ray.runs.stages.registry import Held, Noted, held, noted

GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Status:
    """Options of the status."""

    root: str = Folders.root
    """folder of the results: local, or s3://..., gs://..."""
    price: float | None = None
    """price per GPU hour of training (per CPU hour without GPUs); other stages are not priced"""

    def __post_init__(self) -> None:
        settle_results(self, root=".tlm")


def main() -> None:
    options = parse(Status, __doc__)
    there, experiments = held(options.root), noted(options.root)
    if not there:
        raise FileNotFoundError(f"root {options.root!r}: no stages there; give the --root of your experiments")
    complete = [each.folder for each in there if each.complete]
    console.print(_stages(there, Records(options.root).many(complete), options.price))
    _running(options.root)
    console.print(_experiments(experiments, set(complete)))


def _stages(there: Sequence[Held], records: Mapping[str, Record], price: float | None) -> Table:
    hours, kind = _worker_hours(records)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("stage")
    columns = ["complete", "unfinished", "GB", "hours", f"{kind} hours of training"]
    for name in [*columns, *(["cost"] if price is not None else [])]:
        table.add_column(name, justify="right")
    for stage in [*dict.fromkeys(each.stage for each in there), "all"]:
        own = [each for each in there if stage in (each.stage, "all")]
        done = sum(each.complete for each in own)
        size = sum(each.size for each in own)
        clock = sum(took(records[each.folder]) for each in own if each.folder in records) / 3600
        trained = sum(hours.get(each.folder, 0.0) for each in own)
        numbers = [f"{done:,}", f"{len(own) - done or ''}", f"{size / GB:.2f}", f"{clock:.2f}", f"{trained:.2f}"]
        table.add_row(stage, *numbers, *([f"{trained * price:.2f}"] if price is not None else []))
    return table


def _worker_hours(records: Mapping[str, Record]) -> tuple[dict[str, float], str]:
    """Return the GPU hours of each training over all its attempts, and "GPU"; CPU hours if none was on GPUs."""
    facts = {folder: record["facts"] for folder, record in records.items() if "compute" in record["facts"]}
    used = {folder: _compute(own["compute"]) for folder, own in facts.items()}
    on_gpus = any(compute.gpu for compute in used.values())
    hours = {
        folder: worker_hours(facts[folder]["seconds"], compute)
        for folder, compute in used.items()
        if compute.gpu == on_gpus
    }
    return hours, "GPU" if on_gpus else "CPU"


def _compute(parts: Mapping[str, float]) -> Compute:
    return Compute(workers=int(parts["workers"]), resources={n: v for n, v in parts.items() if n != "workers"})


def _running(root: str) -> None:
    for folder, (file, claim) in claimed(root).items():
        age = time.time() - file.modified_ns / 1e9
        state = "its process has ended" if claim.is_dead else f"last heartbeat {max(0.0, age):.0f} s ago"
        console.print(f"[yellow]running[/] {escape(folder)}: host {escape(claim.host)}, process {claim.pid}, {state}")


def _experiments(experiments: Sequence[Noted], complete: set[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("experiment", "stages", "command"):
        table.add_column(name)
    for one in experiments:
        table.add_row(escape(one.name), f"{len(one.stages & complete):,} of {len(one.stages):,}", escape(one.command))
    return table


if __name__ == "__main__":
    with plain_errors():
        main()
