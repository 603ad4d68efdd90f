"""Moments of feature rows and of columns: count, mean, scatter and trace, which one pass adds up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import brief

_PIECE_ROWS = 16


@dataclass(frozen=True)
class Moments:
    """Moments of n feature rows v_i in R^D, all in float64.

    mean (D,) is Σ v_i / n; scatter (D, D) is Σ (v_i - mean)(v_i - mean)'; trace is Σ k(x_i, x_i), largest the
    largest k(x_i, x_i), infinite where it is not known.
    """

    count: int
    mean: Array  # (D,)
    scatter: Array  # (D, D)
    trace: float
    largest: float = np.inf

    __repr__ = brief

    def __add__(self, other: Moments) -> Moments:
        """Moments of both sets of rows together (Chan, Golub and LeVeque 1983)."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta = other.mean - self.mean
        weighted = delta * (self.count * other.count / count)
        scatter = np.empty_like(self.scatter)
        for start in range(0, len(delta), _PIECE_ROWS):  # which stays in cache from one sum to the next
            piece = slice(start, start + _PIECE_ROWS)
            np.add(self.scatter[piece], other.scatter[piece], out=scatter[piece])
            scatter[piece] += np.outer(weighted[piece], delta)
        mean = self.mean + delta * (other.count / count)
        return Moments(count, mean, scatter, self.trace + other.trace, max(self.largest, other.largest))

    def part(self, numbers: Array | slice) -> Moments:
        """Moments of the features with these numbers alone."""
        return replace(self, mean=self.mean[numbers], scatter=self.scatter[numbers][:, numbers])

    @property
    def about_zero(self) -> Array:
        """Σ v_i v_i', (D, D)."""
        return self.scatter + self.count * np.outer(self.mean, self.mean)

    @property
    def squares(self) -> float:
        """Σ |v_i|²."""
        return float(np.trace(self.scatter) + self.count * self.mean @ self.mean)


@dataclass(frozen=True)
class ColumnMoments:
    """Moments of n rows, column by column, in float64: mean (d,), and squares (d,) = Σ (x_i - mean)²."""

    count: int
    mean: Array
    squares: Array

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        """Moments of both sets of rows together (Chan, Golub and LeVeque 1983)."""
        count = self.count + other.count
        delta = other.mean - self.mean
        squares = self.squares + other.squares + delta**2 * (self.count * other.count / count)
        return ColumnMoments(count, self.mean + delta * (other.count / count), squares)

    @property
    def scale(self) -> Array:
        """Standard deviations (dividing by n), and 1 for constant columns, (d,)."""
        deviations = np.sqrt(self.squares / self.count)
        # The rounding errors of a constant column must not be scaled up to unit variance.
        return np.where(deviations > 1e-14 * np.abs(self.mean), deviations, 1.0)


def column_moments(X: Array) -> ColumnMoments:
    """Moments of the columns of one tile X (b, d), b >= 1."""
    rows = X.astype(np.float64)
    mean = rows.mean(axis=0)
    rows -= mean
    return ColumnMoments(len(rows), mean, np.einsum("ij,ij->j", rows, rows))


def block_moments(tiles: Iterable[tuple[Array, Array]], shift: Array) -> Moments:
    """Moments of the rows of one block, one tile (V (b, D), k(x_i, x_i) (b,)) at a time. Tiles are overwritten.

    `shift` (D,) is a fixed vector near the mean of all rows. For wide kernels every entry of V is close to 1, and V'V
    in float32 loses the whole spectrum, while (V - shift)'(V - shift), added up in float64, keeps it to 1e-6.
    """
    D = len(shift)
    count, trace, largest = 0, 0.0, -np.inf
    total, products = np.zeros(D), np.zeros((D, D))
    work = shifted = ones = np.empty(0)
    for V, diagonal in tiles:
        if shifted.dtype != V.dtype or not work.size:
            work, shifted = np.empty((D, D), V.dtype), shift.astype(V.dtype)
        if len(ones) != len(V):
            ones = np.ones(len(V), V.dtype)
        V -= shifted
        np.matmul(V.T, V, out=work)
        products += work
        total += ones @ V  # a product is several times faster here than a column sum
        count += len(V)
        trace += float(diagonal.sum())
        largest = max(largest, float(diagonal.max(initial=-np.inf)))
    if not count:
        return Moments(0, np.zeros(D), products, 0.0, largest)
    deviation = total / count
    products -= np.outer(total, deviation)
    # `shifted` and not `shift`, since the rounded vector was subtracted.
    return Moments(count, shifted.astype(np.float64) + deviation, products, trace, largest)
