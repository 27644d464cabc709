"""Memory of Spark's Python workers: what decoding and encoding frees is used again, and not given back each time."""

from __future__ import annotations

import ctypes
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
