"""Memory of Spark's Python processes: what is freed is used again, and what is loaded is not searched for garbage."""

from __future__ import annotations

import ctypes
import gc
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt`` (https://man7.org/linux/man-pages/man3/mallopt.3.html)."""

KEPT_BYTES = 1 << 28
LARGEST_REUSED_BYTES = 1 << 25
"""The largest threshold that glibc accepts."""


@cache
def keep_freed_memory() -> bool:
    """Let malloc keep up to 256 MB of freed memory in this process, for arrays of up to 32 MB; the first call does it.

    Decoding a batch allocates and frees arrays of some 100 KB. By default, glibc may give each of them back to the
    operating system, which then clears its pages for the next one: a third of the time of decoding JSON.

    Returns:
        Whether the C library is glibc and accepts it; other libraries are left alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, LARGEST_REUSED_BYTES))


def exclude_loaded_objects() -> None:
    """Exclude all objects that exist in this process from garbage collection: call it when all modules are loaded.

    PySpark collects garbage after each request to a process: a task, and also each planning of a write and each commit.
    To search all modules takes 35 to 50 ms of processor time, and a streaming query does this four times in a batch.
    """
    gc.freeze()
