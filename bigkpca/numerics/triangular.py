"""Cholesky factors, their inverses and products with those, by tiles that may run in parallel.

The same bits for any number of threads.
"""

from __future__ import annotations

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics.linalg import Map

_TILE_ROWS = 512


def cholesky(A: Array, in_order: Map = map, *, shift: float = 0.0, overwrite: bool = False) -> Array | None:
    """L (m, m) with L L' = A + shift I, in its lower triangle; the upper one holds anything.

    None where A, symmetric and float64, has an eigenvalue below -shift. m³ / 3 operations.
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


def inverse_transposed(L: Array, in_order: Map = map) -> Array:
    """T = L'⁻¹ (m, m), upper triangular, from the lower triangle of L: T'(L L')T = I. m³ / 3 operations."""
    T = np.zeros_like(L)

    def columns(start: int) -> Array:
        own = slice(start, min(start + _TILE_ROWS, len(L)))
        unit = np.eye(own.stop - start)
        T[own, own] = scipy.linalg.solve_triangular(L[own, own], unit, lower=True, trans="T", check_finite=False)
        for first in range(start - _TILE_ROWS, -1, -_TILE_ROWS):
            rows, below = slice(first, first + _TILE_ROWS), slice(first + _TILE_ROWS, own.stop)
            right = L[below, rows].T @ T[below, own]
            solved = scipy.linalg.solve_triangular(L[rows, rows], right, lower=True, trans="T", check_finite=False)
            np.negative(solved, out=T[rows, own])
        return T[:, own]

    for _ in in_order(columns, _longest_first(len(L))):
        pass
    return T


def congruence(S: Array, T: Array, in_order: Map = map) -> Array:
    """T'S T (m, m), exactly symmetric, of a symmetric S and an upper triangular T: m³ operations instead of 4 m³."""
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
    """t_j'S t_j (m,) of the columns of an upper triangular T (m, m): 2/3 m³ operations."""

    def columns(start: int) -> Array:
        own = slice(start, start + _TILE_ROWS)
        upper = T[: own.stop, own]
        return np.asarray(np.einsum("ij,ij->j", upper, S[: own.stop, : own.stop] @ upper))

    return np.concatenate(list(in_order(columns, _longest_first(len(S))))[::-1])


def _longest_first(m: int) -> range:
    """Starts of tiles, those with the longest columns of an upper triangle first, so that threads end together."""
    return range(0, m, _TILE_ROWS)[::-1]
