"""Find results of the same kind over other corpora, to update them when a corpus has grown."""

from tlm_ray import storage
from tlm_ray.corpus.general.passages import RANGES
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import DIGITS, RECORD, Stage, fingerprint_of

OF_CORPUS = {"passages", "statistics"}  # inputs that depend on the corpus


def of_other_corpora(stage: Stage, root: str) -> list[dict[str, str]]:
    """Return the results under the root that differ from a stage only in their corpus.

    Each has its `folder`, and the folders of its inputs by the names of the stage's inputs.
    """
    found = []
    for record in Records(root).named(stage.name):
        recipe = record["recipe"]
        same = all(recipe[name] == stage.recipe[name] for name in ("version", "parameters"))
        if not same or _apart(recipe["inputs"]) != _apart(stage.recipe["inputs"]):
            continue
        inputs = {
            name: storage.join(root, stage.inputs[name].name, made[:DIGITS]) for name, made in recipe["inputs"].items()
        }
        needed = [storage.join(made, RECORD) for made in inputs.values()]
        if all(map(storage.exists, [*needed, storage.join(inputs["passages"], RANGES)])):  # not deleted since
            found.append({"folder": storage.join(root, stage.name, fingerprint_of(recipe)[:DIGITS]), **inputs})
    return found


def _apart(inputs: dict[str, str]) -> dict[str, str]:
    return {name: fingerprint for name, fingerprint in inputs.items() if name not in OF_CORPUS}
