"""Delete what no experiment under a root needs: nothing is deleted without --delete, only listed.

    python experiments/clean.py                          # what could go, and how much that is
    python experiments/clean.py --forget sweep --delete  # with what that experiment alone needed

An experiment is noted under the root when it begins. What one of them needs stays, be it complete or to be continued,
and so does what some job makes now. Delete while no experiment starts: one that begins between the listing and the
deletion makes anew what it had found.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tlm_ray import Folders, parse, plain_errors, storage
from tlm_ray.console import console
from tlm_ray.runs.locks import StageLocked, claimed
from tlm_ray.runs.registry import Held, Noted, delete, held, noted

GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Clean:
    """Options of the clean-up."""

    root: str = Folders.root
    """where results lie: a folder, or s3://..., gs://..."""
    forget: list[str] = field(default_factory=list)
    """experiments, by name, that are of no use any more"""
    delete: bool = False
    """delete what is listed"""


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
        console.print(f"{_amount(useless)}: nothing was deleted; add --delete to do it")
        return
    deleted = [each for each in useless if _deleted(options.root, each)]
    for one in experiments:
        if one.name in options.forget:
            storage.delete(one.uri)
    console.print(f"deleted {_amount(deleted)}")


def _kept(experiments: Sequence[Noted], forget: Collection[str], root: str) -> set[str]:
    """Return what the experiments that are not to be forgotten need."""
    names = sorted({one.name for one in experiments})
    for name in forget:
        if name not in names:
            raise ValueError(f"--forget {name}: no such experiment; there are {', '.join(names) or 'none'}")
    if not experiments:
        raise ValueError(
            f"root {root!r}: no experiment is noted there, so nothing tells what is of use; run those that you want to "
            "keep once more, which finds what they have"
        )
    return {stage for one in experiments if one.name not in forget for stage in one.stages}


def _deleted(root: str, each: Held) -> bool:
    """Delete a stage; False, and say why, if some job makes it now."""
    try:
        delete(root, each.folder)
    except StageLocked as error:
        console.print(f"left {each.folder}: {error}", markup=False)
        return False
    return True


def _amount(stages: Sequence[Held]) -> str:
    return f"{len(stages):,} stages, {sum(each.size for each in stages) / GB:.2f} GB"


if __name__ == "__main__":
    with plain_errors():
        main()
