"""Running functions over blocks of rows, on threads, processes or a cluster, and predicting the cost.

Also here, since it needs no further import: how the C library returns freed memory to the system.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_M_TRIM_THRESHOLD = -1  # from malloc.h
_BYTES = 65_536  # as Dask sets it for its workers
_VARIABLE = "MALLOC_TRIM_THRESHOLD_"  # which configures glibc from outside, as Dask does for its workers
_LARGE_SIZE = 512  # features: with fewer, a fit frees too little
_set = [_VARIABLE in os.environ]


def return_freed_memory() -> None:
    """Return freed memory to the system immediately, if the C library is glibc. By default, after the first large
    blocks are freed, glibc keeps all later ones, for each thread: a fit then peaks a quarter above what it uses. This
    costs a tenth of the time."""
    with suppress(AttributeError, OSError):  # other C libraries have no mallopt
        _set[0] = bool(ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, _BYTES)) or _set[0]


def release_freed_memory(size: int) -> None:
    """Return to the system, once, what work with this many features has freed, if the C library is glibc: 3 ms for 100
    MB. For few features, that is not worth it."""
    if size >= _LARGE_SIZE:
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


def returns_freed_memory() -> bool:
    """Whether freed memory is returned to the system immediately in this process."""
    return _set[0]
