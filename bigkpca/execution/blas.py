"""BLAS on one thread, and the processor type for which it computes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import scipy.linalg  # noqa: F401  # which SciPy loads at its first use otherwise: after the limit was set, and without it
from threadpoolctl import ThreadpoolController

from bigkpca.errors import warn


class _Loaded(ThreadpoolController):  # type: ignore[misc]
    """The libraries that are loaded. On Linux from the files that the process has mapped: `dl_iterate_phdr` holds the
    lock of the loader while it waits for Python's, so it and the import of a module of another thread may wait for each
    other for ever."""

    def _find_libraries_with_dl_iterate_phdr(self) -> None:
        try:
            with open("/proc/self/maps", errors="surrogateescape") as file:
                mapped = [line.rstrip("\n").split(maxsplit=5)[5:] for line in file]
        except OSError:
            super()._find_libraries_with_dl_iterate_phdr()
            return
        for path in sorted({path for paths in mapped for path in paths if ".so" in path}):
            self._make_controller_from_path(path)


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> ThreadpoolController:
    """The libraries that are loaded while this many modules are imported. Searching for them takes some ms, a third of
    a small fit, and only the import of a module can add more."""
    return _Loaded()


@lru_cache(maxsize=1)
def _blas(modules: int) -> tuple[list[Any], list[Any]]:
    """The BLAS libraries whose limit applies to the whole process, and those in which each thread has its own."""
    found = _libraries(modules).select(user_api="blas").lib_controllers
    # With MKL and OpenMP a limit applies only to the thread that sets it, otherwise to the whole process.
    own = [each for each in found if each.internal_api == "mkl" or getattr(each, "threading_layer", None) == "openmp"]
    return [library for library in found if library not in own], own


def _release(library: Any) -> None:
    """Let any thread set the limit: from 3.8 on, threadpoolctl ignores other threads until the first one lifts it."""
    if (release := getattr(library, "clear_controlling_thread", None)) is not None:
        release(force=True)


def _set(library: Any, threads: int) -> None:
    """Set the number of threads of a library, even if another thread has set it before."""
    _release(library)
    library.set_num_threads(threads)


class _SingleThreadedBlas:
    """One limit of BLAS to one thread, set by the first to enter and lifted by the last: if each task restored its own
    limit, the first to end would give its neighbours two threads, which compute other bits than one. The caller's
    setting is restored. Warns if the limit has no effect, or if another thread of the caller changes it meanwhile."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._forked)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._entered = 0
        self._before: list[tuple[Any, int]] = []  # for libraries whose limit applies to the process
        self._own = threading.local()  # the same of this thread

    def _forked(self) -> None:
        """Lift the limit in a child process, where nothing else would."""
        before = self._before
        self._begin()
        _restore(before)

    def __enter__(self) -> None:
        depth = getattr(self._own, "depth", 0)
        if not depth:
            self._own.before = _limited(_blas(len(sys.modules))[1])
        self._own.depth = depth + 1
        with self._lock:
            if not self._entered:
                self._before = _limited(_blas(len(sys.modules))[0])
            else:
                _limited(library for library, _ in self._before)
            self._entered += 1

    def __exit__(self, *exc_info: object) -> None:
        if depth := getattr(self._own, "depth", 0):  # otherwise another thread entered, whose limit ends with it
            self._own.depth = depth - 1
            if depth == 1:
                _restore(self._own.before)
        with self._lock:
            self._entered -= 1
            if not self._entered:
                _check(library for library, _ in self._before)
                _restore(self._before)


def _limited(libraries: Iterable[Any]) -> list[tuple[Any, int]]:
    """Limit libraries to one thread. Returns them with the number that each had before."""
    before = [(each, each.num_threads) for each in libraries]
    for library, threads in before:
        if threads != 1:
            _set(library, 1)
    _check(library for library, _ in before)
    return before


def _check(libraries: Iterable[Any]) -> None:
    """Warn about libraries that do not have one thread."""
    for library in libraries:
        if (threads := library.num_threads) != 1:
            warn(
                f"{library.filepath} has {threads} threads, although it was limited to one, so results may differ in "
                "their last bits: do not change the limit while bigkpca computes, or set OPENBLAS_NUM_THREADS=1",
                RuntimeWarning,
            )


def _restore(before: list[tuple[Any, int]]) -> None:
    for library, threads in before:
        _set(library, threads)
        _release(library)


single_threaded_blas = _SingleThreadedBlas()


def blas_core_types() -> tuple[str, ...]:
    """The processor types for which the BLAS libraries of this process compute, e.g. ("Haswell",)."""
    libraries = _libraries(len(sys.modules)).select(user_api="blas").info()
    return tuple(sorted({library["architecture"] for library in libraries if library.get("architecture")}))
