"""Running functions over blocks of rows, on threads, processes or a cluster, and what it will cost.

Here, where it costs no further import: how the C library gives freed memory back to the system.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_M_TRIM_THRESHOLD = -1  # of malloc.h
_BYTES = 65_536  # as Dask sets it for its workers
_VARIABLE = "MALLOC_TRIM_THRESHOLD_"  # by which glibc is set from outside, as Dask does for its workers
_set = [_VARIABLE in os.environ]


def return_freed_memory() -> None:
    """Give freed memory back to the system at once, where the C library is glibc. By itself it learns from the first
    large blocks that are freed to keep all that follow, for each thread: a fit then peaks a quarter above what it uses.
    It takes a tenth of the time."""
    with suppress(AttributeError, OSError):  # another C library has no mallopt
        _set[0] = bool(ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, _BYTES)) or _set[0]


def returns_freed_memory() -> bool:
    """Whether freed memory goes back to the system at once, in this process."""
    return _set[0]
