"""Settings of a process that works on large arrays."""

import contextlib
import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h


def keep_memory() -> None:
    """Let this process use the memory that it frees again, where the C library is glibc; elsewhere do nothing.

    By default a large array goes back to the system when it is freed, and the next one is made of new pages that must
    be cleared: a quarter of the time that indexing takes on a virtual machine.
    """
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def give_back_memory() -> None:
    """Give the memory that this process has freed back to the system, where the C library is glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def tune_torch() -> None:
    """Let oneDNN keep the kernels of all shapes, and torch none beside it; call it before the first tensor is made.

    Rows of like length together have as many shapes as there are widths, times the products of a step, and it forgets
    those beyond 1,024, which costs a fifth of a step. (Neither `keep_memory` nor torch's huge pages, which must be
    aligned: glibc before 2.38 finds no room for an aligned block where one of its size was. With huge pages a training
    at 12 x 768 grew from 6.5 to 10.5 GB in 40 steps, without them from 5.9 to 7.5, and was 13 % faster.)
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16384")
    # torch keeps 1,024 primitives per operation of its own, each with what oneDNN keeps already: 400 steps at 2 x 128
    # took 36 s and 2.2 GB with them, 36 s and 1.5 GB without
    os.environ.setdefault("LRU_CACHE_CAPACITY", "1")
