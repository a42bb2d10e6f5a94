"""Retrieval methods, one file each, and their names on the command line."""

from tlm_ray.retrieval.methods.bm25 import Bm25
from tlm_ray.retrieval.methods.bm25s import Bm25s
from tlm_ray.retrieval.methods.dense import Dense
from tlm_ray.retrieval.methods.dsir import Dsir
from tlm_ray.retrieval.methods.given import Given
from tlm_ray.retrieval.methods.method import Method, Search, Sources
from tlm_ray.retrieval.methods.rake import Rake
from tlm_ray.retrieval.methods.random import Random

__all__ = [
    "METHODS",
    "Bm25",
    "Bm25s",
    "Dense",
    "Dsir",
    "Given",
    "Method",
    "Rake",
    "Random",
    "Search",
    "Sources",
    "method_named",
]

# "given" is missing here because it needs a location, which names it on the command line.
METHODS: dict[str, type[Method]] = {method.name: method for method in (Bm25, Bm25s, Rake, Dense, Dsir, Random)}


def method_named(name: str | Method) -> Method:
    """Return the method of a name with its default settings; a method is returned unchanged.

    ValueError lists the names.
    """
    if isinstance(name, Method):
        return name
    if name not in METHODS:
        raise ValueError(f"method {name!r}: allowed are {', '.join(METHODS)}")
    return METHODS[name]()
