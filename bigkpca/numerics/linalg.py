"""Dense linear algebra: aligned arrays, symmetric eigenproblems, and products by tiles.

An array from a message of another process, or from a caller's buffer, may begin at an odd address, or be stored column
by column. NumPy and BLAS then use other code paths, whose last bits differ. Products here have the same bits for any
number of threads.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from inspect import signature
from typing import Any

import numpy as np
import scipy

from bigkpca.errors import Array

# The alignment of every allocator. Measured: offsets of 16, 32 and 48 bytes change no bit on any processor type of
# OpenBLAS; an offset of 8 changes dot products in its kernels for Prescott.
_BYTES = 16


def aligned(X: Array) -> Array:
    """X in C order at an address that is a multiple of 16: X itself, or a copy."""
    if X.flags.c_contiguous and X.ctypes.data % _BYTES == 0:
        return X
    return np.array(X, order="C", copy=True, subok=False)


def all_aligned(value: Any) -> Any:
    """The value with every array in it aligned, in containers and dataclasses at any depth; itself if all are.
    Dataclasses are copied together with their cached properties; other objects are not changed."""
    if isinstance(value, np.ndarray):
        return aligned(value)
    if isinstance(value, list | tuple):
        found = [all_aligned(item) for item in value]
        if all(new is old for new, old in zip(found, value, strict=True)):
            return value
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    if isinstance(value, dict) and (changed := _changed(value)):
        return value | changed
    if (
        is_dataclass(value)
        and hasattr(value, "__dict__")
        and not isinstance(value, type)
        and (changed := _changed(vars(value)))
    ):
        value = copy.copy(value)
        vars(value).update(changed)
    return value


def _changed(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The entries that had to be copied, aligned."""
    items = list(values.items())  # atomically: another thread may add a cached property meanwhile
    return {key: new for key, old in items if (new := all_aligned(old)) is not old}


def arrays_of(value: Any) -> dict[str, Array]:
    """The fields of a dataclass that are arrays, by name."""
    values = {part.name: getattr(value, part.name) for part in fields(value)}
    return {name: each for name, each in values.items() if isinstance(each, np.ndarray)}


ALGEBRA = 2.0**-42  # of the largest eigenvalue or the trace: the rounding of eigenproblems in float64


def rank_tolerance(dtype: np.dtype[np.generic]) -> float:
    """Smaller eigenvalues, relative to the largest, are noise for rows of this dtype.

    An eigenvalue L of W is computed from kernel values of relative precision eps, amplified by 1/√L: 1e-12 (float64)
    and 1e-7 (float32) keep the 20 leading components of MNIST to 4e-4 at ten times the median distance, where 1e-5
    would leave an error of 1e-2.
    """
    return 1e-7 if np.dtype(dtype).itemsize <= 4 else 1e-12


def eigh_descending(A: Array, count: int | None = None) -> tuple[Array, Array]:
    """The `count` largest eigenvalues (all by default), descending, and their eigenvectors in columns.

    A is (m, m), symmetric, float64, and may be overwritten if all are computed.
    """
    m = len(A)
    values = vectors = np.empty(0)
    if count is not None and count < m:
        with suppress(np.linalg.LinAlgError):  # LAPACK fails, or loses some, when many are nearly equal
            values, vectors = scipy.linalg.eigh(A, subset_by_index=[m - count, m - 1], check_finite=False)
    if count is None or len(values) < min(count, m):
        values, vectors = scipy.linalg.eigh(A, driver="evd", overwrite_a=count is None, check_finite=False)
        values, vectors = values[m - min(count or m, m) :], vectors[:, m - min(count or m, m) :]
    return values[::-1], np.ascontiguousarray(vectors[:, ::-1])


_LEAST_ROWS = 512  # for fewer, LAPACK is as fast
_FEW = 24  # rows for each eigenpair that ARPACK finds faster than LAPACK
_MOST = 0.25  # of the number of rows: with this many products, ARPACK takes about as long as LAPACK
_HUGE = 1e100  # squares of sums may overflow for entries above, and underflow for entries below 1 / _HUGE


def leading_pairs(A: Array, count: int | None) -> tuple[Array, Array]:
    """As `eigh_descending`, for few eigenpairs by ARPACK from a fixed start.

    A Krylov space of one vector may lack another eigenvector of a multiple eigenvalue. So what the found ones leave
    is searched again, from another start, and LAPACK is asked if it has a larger eigenvalue.
    """
    if count is not None and _FEW * count <= len(A):
        first, second = np.random.default_rng(0).standard_normal((2, len(A)))
        found = _by_arpack(A, count, "LA", first)
        if found is not None and found[0][-1] > 0 and _are_leading(A, *found, second):
            return found
    return eigh_descending(A, count)


def _are_leading(A: Array, values: Array, V: Array, start: Array) -> bool:
    """Whether V are eigenvectors, and what they leave has no eigenvalue above the least of `values`, up to rounding."""
    slack = rounding_of_eigenvalues(len(A), 0.0, _entry(A), float(values[0]))
    if not np.linalg.norm(A @ V - V * values) <= slack / 2:
        return False
    left = _by_arpack(A, 1, "LA", start, 1e-6, (values, V))
    return left is not None and bool(left[0][0] <= values[-1] + slack / 2)


def _entry(A: Array) -> float:
    return float(max(A.max(), -A.min()))


def _by_arpack(
    A: Array, count: int, which: str, start: Array, tol: float = 0.0, without: tuple[Array, Array] | None = None
) -> tuple[Array, Array] | None:
    """Eigenpairs of a symmetric A (m, m), in descending order, or of what is left `without` some; None for few rows,
    for entries whose squares overflow or underflow, and if it takes longer than LAPACK."""
    from scipy.sparse.linalg import (  # here, because the import takes a tenth of a second
        ArpackError,
        LinearOperator,
        eigsh,
    )

    m, entry = len(A), _entry(A)
    if m < _LEAST_ROWS or not 1 / _HUGE < entry < _HUGE:
        return None
    values, V = without or (np.zeros(0), np.zeros((m, 0)))
    # Of A / entry, since ARPACK has absolute tolerances.
    unit = LinearOperator((m, m), lambda x: (A @ x - V @ (values * (V.T @ x))) / entry, dtype=np.float64)
    steps = max(10, int(_MOST * m) // (count + 1))
    seed: dict[str, Any] = {"rng": 0} if "rng" in signature(eigsh).parameters else {}  # from SciPy 1.17 on
    try:
        found, U = eigsh(unit, count, which=which, v0=start, tol=tol, maxiter=steps, **seed)
    except ArpackError:
        return None
    return entry * found[::-1], np.ascontiguousarray(U[:, ::-1])


def values_if_negative(A: Array, noise: float) -> Array | None:
    """All eigenvalues of a symmetric A (m, m), float64, descending, if one is below -noise; None otherwise."""
    shifted = A + noise * np.eye(len(A))
    if scipy.linalg.lapack.dpotrf(shifted, overwrite_a=True)[1] == 0:
        return None
    return np.asarray(scipy.linalg.eigh(A, eigvals_only=True, check_finite=False)[::-1])


def norm_of_symmetric(A: Array) -> float:
    """|A|_2 of a symmetric A (m, m), float64, nearly."""
    found = _by_arpack(A, 1, "LM", np.random.default_rng(0).standard_normal(len(A)), 1e-3)
    return float(np.linalg.norm(A, 2)) if found is None else float(abs(found[0][0]))


def rounding_of_eigenvalues(n: int, error: float, entry: float, top: float) -> float:
    """The largest rounding error of the eigenvalues of a matrix (n, n), from the `error` of every entry, the largest
    `entry`, and the largest eigenvalue, `top`, of an eigenproblem in float64."""
    return n * (error + ALGEBRA * entry / np.sqrt(n)) + ALGEBRA * float(top)


def numerical_rank(values: Array, tolerance: float) -> int:
    """How many of the descending `values` are above `tolerance` times the largest; 0 if none is positive."""
    if not len(values) or values[0] <= 0:
        return 0
    return int(np.count_nonzero(values > tolerance * values[0]))


def signs(scores: Array) -> Array:
    """±1 for each column: the sign of its entry of largest absolute value, the first of equal ones."""
    if not len(scores):
        return np.ones(scores.shape[1])
    leading = scores[np.abs(scores).argmax(axis=0), np.arange(scores.shape[1])]
    return np.where(leading < 0, -1.0, 1.0)


_PIECE_ROWS = 16


def row_pieces(stop: int) -> Iterator[slice]:
    """Slices of few rows, which stay in cache from one step to the next."""
    return (slice(first, min(first + _PIECE_ROWS, stop)) for first in range(0, stop, _PIECE_ROWS))


_TILE_COLUMNS = 256
_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_computes_parts = ContextVar("computes parts", default=False)  # of a thread


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads that compute the parts of this process; those of its parent are not in a forked one."""
    return ThreadPoolExecutor(_PROCESSORS, "parts", partial(_computes_parts.set, True))


def in_parts(function: Callable[[int], Any], starts: Iterable[int]) -> list[Any]:
    """Results of a function of the starts of parts, computed at the same time. BLAS has one thread, so that they have
    the same bits for any number of processors."""
    starts, settings = list(starts), np.geterr()  # which each thread has separately
    if len(starts) < 2 or _PROCESSORS < 2 or _computes_parts.get():  # a part must not wait for parts
        return list(map(function, starts))

    def with_settings(start: int) -> Any:
        with np.errstate(**settings):
            return function(start)

    return list(_threads(os.getpid()).map(with_settings, starts))


def product(A: Array, B: Array, rows: int) -> Array:
    """A B in tiles of `rows` rows of A, without overflow warnings."""

    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate(in_parts(lambda start: A[start : start + rows] @ B, range(0, len(A), rows)))


def congruence(S: Array, T: Array) -> Array:
    """T'S T (m, m), exactly symmetric, for a symmetric S and an upper triangular T: m³ operations instead of 4 m³."""
    found = np.empty_like(S)

    def columns(start: int) -> None:
        own = slice(start, start + _TILE_COLUMNS)
        stop = min(own.stop, len(S))
        right = S[:stop, :stop] @ T[:stop, own]
        for first in range(0, stop, _TILE_COLUMNS):
            rows = slice(first, min(first + _TILE_COLUMNS, stop))
            part = T[: rows.stop, rows].T @ right[: rows.stop]
            found[rows, own] = part if first < start else (part + part.T) / 2
            found[own, rows] = found[rows, own].T

    in_parts(columns, range(0, len(S), _TILE_COLUMNS)[::-1])  # the longest first
    return found
