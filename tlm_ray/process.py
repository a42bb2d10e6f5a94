"""Settings of a process that works on large arrays or parses many files."""

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h


def keep_memory() -> None:
    """Let this process reuse the memory that it frees, with glibc; elsewhere do nothing.

    By default glibc returns a large array to the system, and the next one needs new, cleared pages. That is a quarter
    of the time of indexing on a virtual machine.
    """
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def give_back_memory() -> None:
    """Return the memory that this process has freed to the system, with glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def without_cycle_search() -> Iterator[None]:
    """Keep Python from searching for reference cycles, which costs a quarter of the time of parsing Python files."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def tune_torch() -> None:
    """Let oneDNN cache the kernels of all shapes, and torch none; call this before creating the first tensor.

    Batches of similar row lengths have many shapes: widths times products per step. oneDNN's default cache of 1,024
    kernels is too small, which costs a fifth of a step. This uses neither `keep_memory` nor torch's huge pages, which
    must be aligned: glibc before 2.38 cannot reuse freed blocks for them. With huge pages a training at 12 x 768 grew
    from 6.5 to 10.5 GB in 40 steps; without them it grew from 5.9 to 7.5 GB and was 13 % faster.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16384")
    # torch also caches 1,024 primitives per operation, which oneDNN caches already. 400 steps at 2 x 128 took 36 s
    # either way, with 2.2 GB against 1.5 GB.
    os.environ.setdefault("LRU_CACHE_CAPACITY", "1")


def quiet_transformers() -> None:
    """Let transformers print errors alone, and no progress bars."""
    from transformers.utils import logging  # imported here, because it takes 1 s

    logging.set_verbosity_error()
    logging.disable_progress_bar()
