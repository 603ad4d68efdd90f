"""BLAS on one thread, and the processor type for which it computes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import scipy.linalg  # noqa: F401  # SciPy loads its own BLAS at its first use otherwise, and the limit would not hold
from threadpoolctl import ThreadpoolController

# Found once, when no thread of this package runs yet: a search takes a third of the time of a small fit.
_LIBRARIES: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
# With MKL and OpenMP a limit applies only to the thread that sets it, otherwise to the whole process.
_OF_THREADS = [
    each for each in _LIBRARIES if each.internal_api == "mkl" or getattr(each, "threading_layer", None) == "openmp"
]
_OF_PROCESS = [each for each in _LIBRARIES if each not in _OF_THREADS]


class _SingleThreadedBlas:
    """One limit of BLAS to one thread, set by the first to enter and lifted by the last: if each task restored its own
    limit, the first to end would give its neighbours two threads, which compute other bits than one. The caller's
    setting is restored."""

    def __init__(self) -> None:
        self._lock, self._entered = threading.Lock(), 0
        self._before: list[int] = []  # of the process
        self._own = threading.local()  # the same of this thread

    def __enter__(self) -> None:
        depth = getattr(self._own, "depth", 0)
        if not depth:
            self._own.before = _set(_OF_THREADS)
        self._own.depth = depth + 1
        with self._lock:
            before = _set(_OF_PROCESS)  # again, in case others changed it
            if not self._entered:
                self._before = before
            self._entered += 1

    def __exit__(self, *exc_info: object) -> None:
        self._own.depth -= 1
        if not self._own.depth:
            _set(_OF_THREADS, self._own.before)
        with self._lock:
            self._entered -= 1
            if not self._entered:
                _set(_OF_PROCESS, self._before)


def _set(libraries: Sequence[Any], numbers: Sequence[int] | None = None) -> list[int]:
    """Set the number of threads of libraries, by default one. Returns the numbers that they had."""
    before = [each.num_threads for each in libraries]
    for library, had, number in zip(libraries, before, numbers or [1] * len(libraries), strict=True):
        if had != number:
            # From 3.8 on, threadpoolctl lets no other thread set a limit until the first one lifts it.
            release = getattr(library, "clear_controlling_thread", lambda **_: None)
            release(force=True)
            library.set_num_threads(number)
            release(force=True)
    return before


single_threaded_blas = _SingleThreadedBlas()


def blas_core_types() -> tuple[str, ...]:
    """The processor types for which the BLAS libraries of this process compute, e.g. ("Haswell",)."""
    return tuple(sorted({each.architecture for each in _LIBRARIES if getattr(each, "architecture", None)}))
