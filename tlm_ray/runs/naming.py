"""Name what distinguishes a table or sweep from others of its name, for files that no later one replaces."""

import re
from collections.abc import Iterable

from tlm_ray.corpus.labelled.hub import short_name
from tlm_ray.plain import PlainClassifier
from tlm_ray.runs.recipes.recipe import Recipe

MOST_TASKS = 3  # named one by one
DIGITS = 8  # of the fingerprint


def kept_key(tasks: Iterable[str], recipes: Iterable[Recipe | PlainClassifier], fingerprint: str) -> str:
    """Return such as "sciie_chemprot_mini_1a2b3c4d": the tasks, the scales of the recipes, the fingerprint."""
    names = list(dict.fromkeys(map(short_name, tasks)))
    told = names if len(names) <= MOST_TASKS else [f"{len(names)} tasks"]
    scales = dict.fromkeys(recipe.scale for recipe in recipes if isinstance(recipe, Recipe))
    words = [re.sub(r"[^\w .,+=-]", "-", word)[:40] for word in (*told, *scales)]
    return "_".join([*words, fingerprint[:DIGITS]])
