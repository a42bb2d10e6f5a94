"""Check the arguments of a classifier before anything is started, as a notebook gets them wrong."""

import math
import numbers
import os
from typing import Any

import numpy as np

from tlm_ray import storage
from tlm_ray.corpus.general.manifest import Corpus, open_corpus, united
from tlm_ray.evaluation.scores import metric_named
from tlm_ray.runs.notebook.rows import FOLDER
from tlm_ray.runs.recipes.paper import recipe_for
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.making import Execution

IN_MEMORY = "texts in memory go in as a Ray Dataset: ray.data.from_items([{'text': ...}, ...])"


def check_arguments(given: Any) -> None:
    """Raise ValueError for arguments that a classifier cannot have; given: the classifier."""
    if metric_named(given.metric).is_regression:
        raise ValueError(f"metric {given.metric!r}: is for numbers; give one of classes, such as macro_f1")
    for name, kind in (("recipe", Recipe), ("execution", Execution)):
        if not isinstance(value := getattr(given, name), kind | None):
            more = "; the name of a recipe is scale=..." if name == "recipe" else ""
            raise ValueError(f"{name}: is a {type(value).__name__}; give a {kind.__name__}{more}")
    if given.recipe is not None and (given.recipe.one_stage or given.recipe.tasks):
        raise ValueError("recipe: has one_stage or tasks; a classifier is the stage two of one task")
    recipe_for(FOLDER, given.scale)
    if not isinstance(given.root, str) or not given.root:
        raise ValueError(f"root {given.root!r}: must be a folder or URI, such as .tlm")
    if isinstance(given.seed, bool) or not isinstance(given.seed, numbers.Integral) or given.seed < 0:
        raise ValueError(f"seed {given.seed!r}: must be a whole number of 0 or more")
    if not isinstance(given.marks, bool | np.bool):
        raise ValueError(f"marks {given.marks!r}: must be True or False")
    if not isinstance(given.start, str | os.PathLike):
        raise ValueError(f"start {given.start!r}: must be the folder or hub name of an encoder")
    if given.layers is not None:
        if isinstance(given.layers, bool) or not isinstance(given.layers, numbers.Integral) or given.layers < 1:
            raise ValueError(f"layers {given.layers!r}: must be a whole number of 1 or more")
        if not given.start:
            raise ValueError(f"layers {given.layers}: are those of a pretrained encoder; give start, too")
    if given.text == given.label:
        raise ValueError(f"text and label: are both {given.text!r}; name two columns")
    _check_budget(given)


def _check_budget(given: Any) -> None:
    for name, most, allowed in (("minutes", math.inf, "above 0"), ("part", 1, "above 0 and below 1")):
        value = getattr(given, name)
        if value is not None and not (isinstance(value, numbers.Real) and 0 < float(value) < most):
            raise ValueError(f"{name} {value!r}: must be a number {allowed}")
    if given.minutes is not None and given.part is not None:
        raise ValueError(f"minutes {given.minutes:g}, part {given.part:g}: each sets the budget; give one of them")


def corpus_of(given: Any, root: str) -> Any:
    """Return the corpus of a classifier: None, a Ray Dataset, or the files at its locations.

    root: folder of the results, which keeps digests. ValueError for what is no corpus.
    """
    corpus = given.corpus
    if corpus is None or isinstance(corpus, Corpus) or hasattr(corpus, "to_arrow_refs"):
        return corpus
    places = [corpus] if isinstance(corpus, str | os.PathLike) else corpus
    if not isinstance(places, list | tuple) or not all(isinstance(one, str | os.PathLike) for one in places):
        raise ValueError(f"corpus: is a {type(corpus).__name__}; give a folder, file or URI; {IN_MEMORY}")
    how = {"column": given.column, "digests": storage.join(root, "corpora.json")}
    try:
        return united([open_corpus(storage.absolute(str(each)), **how) for each in places])
    except FileNotFoundError as error:
        raise ValueError(f"corpus, {error}; {IN_MEMORY}") from error
