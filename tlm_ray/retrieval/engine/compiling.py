"""`@compiled`: numba's `njit` with a disk cache keyed by the content of the engine's sources.

Numba's own cache checks only the function's file. But a kernel includes the code and constants of other files: after an
edit of words.py the lexicon kept the old code. Numba also keys the cache by path, so each copy that Ray makes of a
job's folder was compiled again, half a minute per node.
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

from tlm_ray import storage
from tlm_ray.storage import listing

NO_PLACE = "no locator available"  # of numba's RuntimeError


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call, to run without the GIL, and cache the code on disk.

    The cache is in NUMBA_CACHE_DIR if set, else in the user's cache folder, else in the source's `__pycache__`. If none
    is writable, a RuntimeWarning says so once, and every process compiles for itself, up to a minute.
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
    """Names the folder of compiled code by the content of the engine's sources, not by their path."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the cache folder of a source file, below the folder of all caches."""
        digest = hashlib.sha256(" ".join(source_digests()).encode()).hexdigest()
        return os.path.join(f"tlm_ray-{digest[:16]}", os.path.basename(os.path.dirname(py_file)))


class _GivenFolder(_BySources, UserProvidedCacheLocator):
    pass


class _UsersFolder(_BySources, UserWideCacheLocator):
    pass


class _Place(CompileResultCacheImpl):
    _locator_classes = (_GivenFolder, _UsersFolder, *CompileResultCacheImpl._locator_classes)  # type: ignore[assignment]


class EngineCache(FunctionCache):
    """Numba's cache of one function, with a digest of the engine's sources in its keys."""

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
        "numba finds no writable cache folder, so every process compiles the search engine again, up to a "
        "minute; set NUMBA_CACHE_DIR to a writable folder",
        RuntimeWarning,
        stacklevel=3,
    )
