"""Check before any work starts that nodes share the results, trainings fit on the cluster, and encoders can train."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tlm_ray import parallel, storage
from tlm_ray.compute import places
from tlm_ray.plain import PlainClassifier
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution
from tlm_ray.training.encoders.starts import Architecture, Pretrained
from tlm_ray.training.model.architecture_check import try_architecture
from tlm_ray.training.objectives import Objective


def fitted(execution: Execution) -> Execution:
    """Replace 0 by what the cluster has: workers of data stages, and trainings in parallel."""
    nodes = _alive()
    room = places(execution.compute.resources, nodes) // execution.compute.workers
    cpus = sum(int(node["Resources"].get("CPU", 0)) for node in nodes)
    return replace(
        execution, workers=execution.workers or max(1, cpus), side_by_side=execution.side_by_side or max(1, room)
    )


def check_cluster(execution: Execution, corpora: Sequence[str] = ()) -> None:
    """Raise ValueError if several nodes do not share the root or a corpus, or if a training does not fit.

    With `execution.shared_root`, each node must see a file under the root. With `execution.autoscaling`, the cluster
    counts as several nodes, and resources are not checked. corpora: locations of general corpora.
    """
    nodes = _alive()
    several = len(nodes) > 1 or execution.autoscaling
    for name, uri in (("root", execution.root), *(("corpus", uri) for uri in corpora)):
        if several and storage.is_local(uri) and not execution.shared_root:
            raise ValueError(
                f"{name} {uri!r} is local, but the cluster has {len(nodes)} nodes"
                f"{' and adds more' if execution.autoscaling else ''}, which do not share it; give a shared location "
                f"(--{name} s3://..., gs://...), or add --shared-root if local paths are the same on every node (NFS)"
            )
    if several and storage.is_local(execution.root):
        _check_shared(execution.root, nodes)
    if not execution.autoscaling:
        _check_request(execution, nodes)


def check_starts(recipes: Iterable[Recipe | PlainClassifier], execution: Execution) -> None:
    """Raise ValueError, of one line, if a recipe's encoder cannot be trained; each is tried once on a worker."""
    longest_rows: dict[tuple[Architecture | Pretrained, tuple[Objective, ...]], int] = {}
    for start, heads, longest in (used for recipe in recipes for used in encoders_of(recipe)):
        longest_rows[start, heads] = max(longest, longest_rows.get((start, heads), 0))
    for (start, heads), longest in longest_rows.items():
        parallel.on_worker(try_architecture, start, heads, packed=execution.compute.packed, longest=longest)


def encoders_of(
    recipe: Recipe | PlainClassifier | None,
) -> list[tuple[Architecture | Pretrained, tuple[Objective, ...], int]]:
    """Return the external encoders that a recipe uses, each with the objectives that it learns and its longest row."""
    if not isinstance(recipe, Recipe):
        return []
    earlier, start = encoders_of(recipe.after), recipe.start
    if not isinstance(start, Architecture | Pretrained):
        return earlier
    settings = recipe.settings_one(0) if recipe.stage_one else recipe.settings_two(0, start)
    longest = max(recipe.block_tokens if recipe.uses_general else 0, recipe.task_tokens)
    return [*earlier, (start, settings.heads, longest)]


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _check_shared(root: str, nodes: list[dict]) -> None:
    """Write a file and check that each node with CPUs or GPUs sees it."""
    uri = storage.join(root, f"probe-{uuid.uuid4().hex}.json")
    storage.write_json(uri, {})
    try:
        for node in nodes:
            if any(node["Resources"].get(name, 0) > 0 for name in ("CPU", "GPU")):
                place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked = ray.remote(num_cpus=0)(storage.exists).options(scheduling_strategy=place)
                if not ray.get(asked.remote(uri)):
                    raise ValueError(
                        f"root {root!r}: node {node['NodeManagerAddress']} does not see it; "
                        "mount the same folder on every node"
                    )
    finally:
        storage.delete(uri)


def _check_request(execution: Execution, nodes: list[dict]) -> None:
    """Raise ValueError unless each worker fits on a node and all workers of one training on the cluster."""
    compute = execution.compute
    room = places(compute.resources, nodes)
    if room < compute.needed:
        asked = ", ".join(f"{amount:g} {name}" for name, amount in compute.resources.items())
        has = {name: sum(node["Resources"].get(name, 0.0) for node in nodes) for name in compute.resources}
        raise ValueError(
            f"train_workers {compute.needed} with {asked} each: the cluster has "
            f"{', '.join(f'{amount:g} {name}' for name, amount in has.items())}, room for {room}; lower "
            "--train-workers or --train-resources, or add --autoscaling if the cluster adds nodes on demand"
        )
