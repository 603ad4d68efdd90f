"""Symmetric eigenproblems (descending order, rank rule, sign rule), and the type of a map over tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy

from bigkpca.errors import Array

# Like `map`: applies a function to start rows, results in order. The caller may pass a parallel one.
Map = Callable[[Callable[[int], Array], Iterable[int]], Iterable[Array]]


def at_once(in_order: Map, *functions: Callable[[], Any]) -> list[Any]:
    """Results of independent functions, which `in_order` may run at the same time."""
    return list(in_order(lambda i: functions[i](), range(len(functions))))


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

    A is (m, m), symmetric, float64, and may be overwritten.
    """
    m = len(A)
    if count is not None and count < m:
        values, vectors = scipy.linalg.eigh(A, subset_by_index=[m - count, m - 1], check_finite=False)
    if count is None or count >= m or len(values) < count:  # LAPACK loses some when all are nearly equal
        values, vectors = scipy.linalg.eigh(A, driver="evd", overwrite_a=True, check_finite=False)
        values, vectors = values[m - min(count or m, m) :], vectors[:, m - min(count or m, m) :]
    return values[::-1], np.ascontiguousarray(vectors[:, ::-1])


def rounding_of_eigenvalues(n: int, error: float, entry: float, top: float) -> float:
    """The largest error of the eigenvalues of a matrix (n, n): by rounding of its entries and of the eigenproblem.

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
