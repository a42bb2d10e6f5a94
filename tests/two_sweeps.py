"""A sweep of two points whose optimizer notes each training that begins: `python two_sweeps.py DATA ROOT`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from small import small_flow, small_recipe

from tlm_ray import Space, Trials, ray_options, sweep
from tlm_ray.training.loop.optimizers import AdamW


@dataclass(frozen=True)
class Counted(AdamW):
    """Adam that notes when it is made."""

    notes: str = ""

    def make(self, *arguments: Any, **options: Any) -> Any:
        with Path(self.notes).open("a") as notes:
            notes.write("begun\n")
        return super().make(*arguments, **options)


def main(data: str, root: str) -> None:
    from two_sweeps import Counted as Own  # by its module's name, which trials can import

    ray.init(address="local", num_cpus=2, **ray_options())
    recipe = small_recipe(optimizer=Own(notes=f"{root}/notes"))
    flow = small_flow(Path(data), Path(root) / "tlm", side_by_side=2)
    trials = Trials(space=Space({"rho1": [1, 2]}), bases={"topics": recipe}, flow=flow)
    found = sweep(trials, name="s", out=f"{root}/out", tracking_uri=f"sqlite:///{root}/mlflow.db")
    print("found", [trial["dev"] for trial in found.trials])


if __name__ == "__main__":
    main(*sys.argv[1:])
