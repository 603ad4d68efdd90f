"""BLAS on one thread, and the processor type that it computes for."""

from __future__ import annotations

import sys
import threading
from functools import lru_cache
from typing import Any

import scipy.linalg  # noqa: F401  # which SciPy loads at its first use otherwise: after the limit was set, and without it
from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> ThreadpoolController:
    """The libraries that are loaded while so many modules are imported: to look for them takes 4 ms, a third of a small
    fit, and more only come with a module that is imported."""
    return ThreadpoolController()


class _SingleThreadedBlas:
    """One process-wide limit of BLAS to one thread, set by the first to enter and lifted by the last.

    Limits of threadpoolctl hold for the whole process: were each task to set and restore its own, the first
    task to end would give its neighbours two threads, and two threads give other bits than one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._entered:
                self._limit = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._entered += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered:
                self._limit.__exit__(None, None, None)


single_threaded_blas = _SingleThreadedBlas()


def blas_core_types() -> tuple[str, ...]:
    """The processor types for which the BLAS libraries of this process compute, e.g. ("Haswell",)."""
    libraries = _libraries(len(sys.modules)).select(user_api="blas").info()
    return tuple(sorted({library["architecture"] for library in libraries if library.get("architecture")}))
