"""List the stages that no experiment under a root needs, and delete them with --delete.

    python experiments/clean.py                                # list what can be deleted, with sizes
    python experiments/clean.py --forget main_table --delete   # delete it, and what only that experiment needs

Each experiment is registered under the root when it starts. Stages that a registered experiment needs are kept,
complete or not, and so are stages in progress. Do not start experiments during a deletion: one that starts between
listing and deletion recomputes the deleted stages.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tlm_ray import Folders, parse, plain_errors, storage
from tlm_ray.console import console
from tlm_ray.runs.cli.options import settle_results
from tlm_ray.runs.stages.locks import StageLocked, claimed
from tlm_ray.runs.stages.registry import Held, Noted, delete, held, noted

GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Clean:
    """Options of the clean-up."""

    root: str = Folders.root
    """folder of the results: local, or s3://..., gs://..."""
    forget: list[str] = field(default_factory=list)
    """names of experiments that are no longer needed"""
    delete: bool = False
    """delete the listed stages"""

    def __post_init__(self) -> None:
        settle_results(self, root=".tlm")


def main() -> None:
    options = parse(Clean, __doc__)
    experiments = noted(options.root)
    kept = _kept(experiments, options.forget, options.root)
    in_work = {folder for folder, (_, claim) in claimed(options.root).items() if not claim.is_dead}
    useless = [each for each in held(options.root) if each.folder not in kept | in_work]
    for each in useless:
        state = "complete" if each.complete else "unfinished"
        console.print(f"{each.folder}  {state}, {each.size / 1e6:,.1f} MB", markup=False)
    if not options.delete:
        console.print(f"{_amount(useless)} can be deleted; add --delete to delete them")
        return
    deleted = [each for each in useless if _deleted(options.root, each)]
    for one in experiments:
        if one.name in options.forget:
            storage.delete(one.uri)
    console.print(f"deleted {_amount(deleted)}")


def _kept(experiments: Sequence[Noted], forget: Collection[str], root: str) -> set[str]:
    """Return the stages that the experiments to keep need."""
    names = sorted({one.name for one in experiments})
    for name in forget:
        if name not in names:
            raise ValueError(f"--forget {name}: no such experiment; registered are {', '.join(names) or 'none'}")
    if not experiments:
        raise ValueError(
            f"root {root!r}: no experiment is registered there, so all may be needed; run those that you want to "
            "keep once more, which reuses their results"
        )
    return {stage for one in experiments if one.name not in forget for stage in one.stages}


def _deleted(root: str, each: Held) -> bool:
    """Delete a stage; if a job is making it, print why not and return False."""
    try:
        delete(root, each.folder)
    except StageLocked as error:
        console.print(storage.shown(f"kept {each.folder}: {error}"), markup=False)
        return False
    return True


def _amount(stages: Sequence[Held]) -> str:
    return f"{len(stages):,} stages, {sum(each.size for each in stages) / GB:.2f} GB"


if __name__ == "__main__":
    with plain_errors():
        main()
