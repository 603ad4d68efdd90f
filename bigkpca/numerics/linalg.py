"""Dense linear algebra: aligned arrays, symmetric eigenproblems, Cholesky factors and products by tiles.

An array from a message of another process, or from a caller's buffer, may begin at an odd address, or be stored column
by column. NumPy and BLAS then use other code paths for A'A, A'x and sums, whose last bits differ. Which operations are
affected depends on the processor.

Factors and products have the same bits for any number of threads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
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
    """The value with every array in it aligned: in tuples, lists, dictionaries and dataclasses, at any depth.

    Returns the value itself if all its arrays are aligned. Frozen dataclasses are copied together with their cached
    properties; other objects, e.g. a custom kernel, are not changed.
    """
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


# Like `map`: applies a function to start rows, with results in order. The caller may pass a parallel one.
Map = Callable[[Callable[[int], Array], Iterable[int]], Iterable[Array]]


def at_once(in_order: Map, *functions: Callable[[], Any]) -> list[Any]:
    """Results of independent functions, which `in_order` may run at the same time."""
    return list(in_order(lambda i: functions[i](), range(len(functions))))


def product(A: Array, B: Array, rows: int, in_order: Map) -> Array:
    """A B in tiles of `rows` rows of A, without overflow warnings."""

    def tile(start: int) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # settings are per thread
            return np.asarray(A[start : start + rows] @ B)

    return np.concatenate(list(in_order(tile, range(0, len(A), rows))))


ALGEBRA = 2.0**-42  # of the largest eigenvalue or the trace: the rounding of eigenproblems in float64


def rank_tolerance(dtype: np.dtype[np.generic]) -> float:
    """Rank tolerance for rows of the given dtype: smaller eigenvalues, relative to the largest, are noise.

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


def rounding_of_eigenvalues(n: int, error: float, entry: float, top: float) -> float:
    """The largest error of the eigenvalues of a matrix (n, n), from rounding of its entries and of the eigenproblem.

    `error` is that of every entry, `entry` the largest entry, `top` the largest eigenvalue; the eigenproblem is in
    float64.
    """
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


_TILE_ROWS = 256
_PIECE_ROWS = 16


def row_pieces(stop: int, start: int = 0) -> Iterator[slice]:
    """Slices of few rows, which stay in cache from one step to the next."""
    return (slice(first, min(first + _PIECE_ROWS, stop)) for first in range(start, stop, _PIECE_ROWS))


def cholesky(A: Array, in_order: Map = map, *, shift: float = 0.0, overwrite: bool = False) -> Array | None:
    """L (m, m) with L L' = A + shift I, in its lower triangle; the upper one is arbitrary.

    None if A, symmetric and float64, has an eigenvalue below -shift. m³ / 3 operations.
    """
    L = A if overwrite else A.copy()
    L.flat[:: len(L) + 1] += shift
    for start in range(0, len(L), _TILE_ROWS):
        own, later = slice(start, start + _TILE_ROWS), range(start + _TILE_ROWS, len(L), _TILE_ROWS)
        try:
            corner = scipy.linalg.cholesky(L[own, own], lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        L[own, own] = corner

        def below(first: int, own: slice = own, corner: Array = corner) -> Array:
            rows = slice(first, first + _TILE_ROWS)
            solved = scipy.linalg.solve_triangular(corner, L[rows, own].T, lower=True, check_finite=False)
            L[rows, own] = solved.T
            return L[rows, own]

        def what_is_left(first: int, own: slice = own, start: int = start) -> Array:
            rows, columns = slice(first, first + _TILE_ROWS), slice(start + _TILE_ROWS, first + _TILE_ROWS)
            L[rows, columns] -= L[rows, own] @ L[columns, own].T
            return L[rows, columns]

        for step in (below, what_is_left):
            for _ in in_order(step, later):
                pass
    return L


def is_positive(A: Array, shift: float, in_order: Map = map, *, overwrite: bool = False) -> bool:
    """Whether no eigenvalue of the symmetric A (m, m), float64, lies below -shift, i.e. whether Cholesky succeeds."""
    return cholesky(A, in_order, shift=shift, overwrite=overwrite) is not None


_STEPS = 5


def squared_norm_at_most(A: Array, enough: float = 0.0) -> float:
    """An upper bound of |A|_2² for A (l, m), at most the square of the Frobenius norm, up to rounding. Stops at the
    first bound that is at most `enough`.

    |A|_2² <= ||A||A|'|_2 = min over x > 0 of max_i (|A||A|'x)_i / x_i (Collatz 1942; Wielandt 1950), and every x gives
    a bound: those of power iteration come close to the least one in a few steps.
    """
    bound = float(np.einsum("ij,ij->", A, A))
    if bound <= enough:
        return bound
    absolute, x = np.abs(A), np.ones(len(A))
    with np.errstate(all="ignore"):
        for _ in range(_STEPS):
            y = absolute @ (absolute.T @ x)
            bound = float(np.fmin(bound, (y / x).max()))
            if bound <= enough:
                break
            x = y / y.max()
    return bound


def inverse_transposed(L: Array, in_order: Map = map) -> Array:
    """T = L'⁻¹ (m, m), upper triangular, from the lower triangle of L: T'(L L')T = I. m³ / 3 operations."""
    T = np.zeros_like(L)

    def corner(start: int) -> Array:
        own = slice(start, min(start + _TILE_ROWS, len(L)))
        unit = np.eye(own.stop - start)
        T[own, own] = scipy.linalg.solve_triangular(L[own, own], unit, lower=True, trans="T", check_finite=False)
        return T[own, own]

    def columns(start: int) -> Array:
        own = slice(start, min(start + _TILE_ROWS, len(L)))
        for first in range(start - _TILE_ROWS, -1, -_TILE_ROWS):
            rows, below = slice(first, first + _TILE_ROWS), slice(first + _TILE_ROWS, own.stop)
            # Products, which unlike `solve_triangular` do not keep other threads waiting.
            np.negative(T[rows, rows] @ (L[below, rows].T @ T[below, own]), out=T[rows, own])
        return T[:, own]

    for step in (corner, columns):
        for _ in in_order(step, _longest_first(len(L))):
            pass
    return T


def reordered(S: Array, order: Array, in_order: Map = map) -> Array:
    """S (m, m) with its rows and columns in this order."""
    found = np.empty_like(S)

    def rows(start: int) -> Array:
        for piece in row_pieces(min(start + _TILE_ROWS, len(S)), start):
            np.take(S[order[piece]], order, axis=1, out=found[piece], mode="clip")  # with other modes it makes a copy
        return found

    for _ in in_order(rows, range(0, len(S), _TILE_ROWS)):
        pass
    return found


def congruence(S: Array, T: Array, in_order: Map = map) -> Array:
    """T'S T (m, m), exactly symmetric, for a symmetric S and an upper triangular T: m³ operations instead of 4 m³."""
    found = np.empty_like(S)

    def columns(start: int) -> Array:
        own = slice(start, min(start + _TILE_ROWS, len(S)))
        right = S[: own.stop, : own.stop] @ T[: own.stop, own]
        for first in range(0, start + 1, _TILE_ROWS):
            rows = slice(first, min(first + _TILE_ROWS, own.stop))
            part = T[: rows.stop, rows].T @ right[: rows.stop]
            found[rows, own] = part if first < start else (part + part.T) / 2
            found[own, rows] = found[rows, own].T
        return found[:, own]

    for _ in in_order(columns, _longest_first(len(S))):
        pass
    return found


def quadratic_forms(S: Array, T: Array, in_order: Map = map) -> Array:
    """t_j'S t_j (m,) for the columns of an upper triangular T (m, m): 2/3 m³ operations."""

    def columns(start: int) -> Array:
        own = slice(start, start + _TILE_ROWS)
        upper = T[: own.stop, own]
        return np.asarray(np.einsum("ij,ij->j", upper, S[: own.stop, : own.stop] @ upper))

    return np.concatenate(list(in_order(columns, _longest_first(len(S))))[::-1])


def _longest_first(m: int) -> range:
    """Starts of tiles, those with the longest columns of an upper triangle first, so that threads end together."""
    return range(0, m, _TILE_ROWS)[::-1]
