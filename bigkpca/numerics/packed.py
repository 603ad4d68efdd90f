"""Symmetric sums of products V'V, of which strips of columns down to the diagonal are held.

About half the memory of the square for large ones, in memory, in checkpoints and between processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigkpca.errors import Array

_WIDTH = 512  # of a strip, at least: narrower ones make products slower
_MULTIPLE = 16  # columns that begin at the boundary of a cache line of float32


def _strips(D: int) -> Iterator[tuple[slice, int, int]]:
    """Columns of each strip, the start of its part above the diagonal block, and that of the diagonal block."""
    count = max(1, D // _WIDTH)
    width = -(-D // (count * _MULTIPLE)) * _MULTIPLE
    at = 0
    for start in range(0, D, width):
        columns = slice(start, min(start + width, D))
        corner = at + start * (columns.stop - start)
        yield columns, at, corner
        at = corner + (columns.stop - start) ** 2


def entries(D: int) -> int:
    """Numbers that are held of a sum of products of rows in R^D."""
    return sum(columns.stop * (columns.stop - columns.start) for columns, _, _ in _strips(D))


def empty_sums(D: int) -> Array:
    """Sums of no products of rows in R^D: zeros (entries,), float64."""
    return np.zeros(entries(D))


def most_of_strip(D: int) -> int:
    """Numbers of the largest strip of a sum of products of rows in R^D."""
    return max(columns.stop * (columns.stop - columns.start) for columns, _, _ in _strips(D))


def work_space(D: int, dtype: np.dtype) -> Array:
    """What `add_products` needs for rows in R^D of this dtype."""
    return np.empty(most_of_strip(D), dtype)


def add_products(sums: Array, V: Array, work: Array) -> None:
    """Add V'V of rows V (b, D) to `sums`; products in the dtype of V and of the `work_space`."""
    for columns, above, corner in _strips(V.shape[1]):
        own, start = V[:, columns], columns.start
        width = own.shape[1]
        if start:
            part = work[: start * width]
            np.matmul(V[:, :start].T, own, out=part.reshape(start, width))
            sums[above:corner] += part
        part = work[: width * width]
        np.matmul(own.T, own, out=part.reshape(width, width))  # BLAS computes one triangle of it
        sums[corner : corner + width * width] += part


def of_square(square: Array) -> Array:
    """The sums that `square_of` makes a symmetric square (D, D) of."""
    sums = empty_sums(len(square))
    for columns, above, corner in _strips(len(square)):
        sums[above:corner] = square[: columns.start, columns].ravel()
        sums[corner : corner + (columns.stop - columns.start) ** 2] = square[columns, columns].ravel()
    return sums


def square_of(sums: Array, D: int) -> Array:
    """The sums as a square, (D, D)."""
    found = np.empty((D, D))
    for columns, above, corner in _strips(D):
        start, width = columns.start, columns.stop - columns.start
        strip = sums[above:corner].reshape(start, width)
        found[:start, columns], found[columns, :start] = strip, strip.T
        found[columns, columns] = sums[corner : corner + width * width].reshape(width, width)
    return found
