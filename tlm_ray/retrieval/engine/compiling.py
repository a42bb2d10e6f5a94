"""`@compiled`: numba's `njit` with a cache on disk that belongs to the engine's sources, wherever they lie.

Numba looks at the file of the function alone. A kernel holds the machine code of what it calls and the constants that
it reads, whichever file they stand in, so with numba's own cache an edit of words.py left the old words in the lexicon.
And it keeps code by the path of the source: each copy that Ray makes of a submitted job's folder was compiled anew,
half a minute on each node.
"""

import hashlib
import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

from tlm_ray import listing, storage

NO_PLACE = "no locator available"  # of numba's RuntimeError


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, without the interpreter lock, and keep the code on disk.

    The code lies in NUMBA_CACHE_DIR if that is set, else in the user's cache folder, else in the `__pycache__` beside
    the source. Where none of them can be written, a RuntimeWarning says so once, and every process compiles for itself:
    the same results, up to a minute later.
    """
    dispatcher: Any = njit(nogil=True)(function)
    try:
        dispatcher._cache = EngineCache(function)
    except RuntimeError as error:
        if NO_PLACE not in str(error):
            raise
        _warn_of_no_place()
    return dispatcher


class _BySources:
    """Names the folder of compiled code by the engine's sources instead of by their path."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the folder for a source file, below the one for all caches."""
        digest = hashlib.sha256(" ".join(source_digests()).encode()).hexdigest()
        return os.path.join(f"tlm_ray-{digest[:16]}", os.path.basename(os.path.dirname(py_file)))


class _GivenFolder(_BySources, UserProvidedCacheLocator):
    pass


class _UsersFolder(_BySources, UserWideCacheLocator):
    pass


class _Place(CompileResultCacheImpl):
    _locator_classes = (_GivenFolder, _UsersFolder, *CompileResultCacheImpl._locator_classes)  # type: ignore[assignment]


class EngineCache(FunctionCache):
    """Numba's cache of one function, whose keys hold a digest of the engine's sources."""

    _impl_class = _Place

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return *super()._index_key(sig, codegen), source_digests()


@cache
def source_digests() -> tuple[str, ...]:
    """Return the sha256 of each source file of the engine."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return tuple(storage.digest(file.uri) for file in listing.list_files(folder, ".py"))


@cache
def _warn_of_no_place() -> None:
    warnings.warn(
        "numba finds no folder to keep compiled code in, so every process compiles the search engine anew, up to a "
        "minute; set NUMBA_CACHE_DIR to a folder that can be written",
        RuntimeWarning,
        stacklevel=3,
    )
