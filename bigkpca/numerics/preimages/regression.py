"""Least squares from one streamed pass: sums that add up over blocks, and the ridge solution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy

from bigkpca.errors import Array


@dataclass(frozen=True)
class Regression:
    """Sums of n pairs of a feature row f_i in R^q and a row x_i in R^d, all in float64.

    mean (q,) and mean_rows (d,) are averages; scatter (q, q) = Σ (f_i - mean)(f_i - mean)',
    cross (q, d) = Σ (f_i - mean)(x_i - mean_rows)'.
    """

    count: int
    mean: Array
    mean_rows: Array
    scatter: Array
    cross: Array

    def __add__(self, other: Regression) -> Regression:
        """Sums of both sets of pairs together (Chan, Golub and LeVeque 1983)."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta, delta_rows = other.mean - self.mean, other.mean_rows - self.mean_rows
        weighted = delta * (self.count * other.count / count)
        share = other.count / count
        return Regression(
            count,
            self.mean + delta * share,
            self.mean_rows + delta_rows * share,
            self.scatter + other.scatter + np.outer(weighted, delta),
            self.cross + other.cross + np.outer(weighted, delta_rows),
        )

    def weights(self, penalty: Array, tolerance: float) -> Array:
        """w (q, d) that minimises Σ |x_i - mean_rows - w'(f_i - mean)|² + tr(w'penalty w), penalty (q, q).

        Features are scaled to unit length first; then `tolerance` bounds the rounding of equal features.
        """
        regularised = self.scatter + penalty
        diagonal = np.diag(regularised)
        lengths = np.sqrt(np.where(diagonal > 0, diagonal, 1))
        regularised /= np.outer(lengths, lengths)
        regularised[np.diag_indices_from(regularised)] += tolerance
        cross = self.cross / lengths[:, None]
        # `solve` would warn of a large condition, which `tolerance` bounds.
        factor = scipy.linalg.cho_factor(regularised, check_finite=False)
        solved = scipy.linalg.cho_solve(factor, cross, check_finite=False)
        return np.asarray(solved / lengths[:, None])


def training_bytes(size: int, rows: int, columns: int) -> tuple[int, int]:
    """Bytes of the sums of `size` features with `columns` columns, and of a tile of `rows` pairs."""
    return 8 * size * (size + columns), 8 * rows * (size + columns)


def block_regression(pairs: Iterable[tuple[Array, Array]], shift: Array, row_shift: Array) -> Regression:
    """The sums of one block, one tile (features (b, q), rows (b, d)) at a time. Tiles are overwritten.

    The shifts (q,) and (d,) are fixed vectors near the means, which keep float32 products from cancellation, as for
    moments. Products have the dtype of the tiles; they are added up in float64.
    """
    q, d = len(shift), len(row_shift)
    count, total, total_rows = 0, np.zeros(q), np.zeros(d)
    products, cross = np.zeros((q, q)), np.zeros((q, d))
    near = near_rows = np.empty(0)
    for F, X in pairs:
        near, near_rows = shift.astype(F.dtype), row_shift.astype(X.dtype)
        F -= near
        X -= near_rows
        ones = np.ones(len(F), F.dtype)
        products += F.T @ F
        cross += F.T @ X
        total += ones @ F
        total_rows += ones @ X
        count += len(F)
    if not count:
        return Regression(0, total, total_rows, products, cross)
    mean, mean_rows = total / count, total_rows / count
    products -= np.outer(total, mean)
    cross -= np.outer(total, mean_rows)
    # The rounded vectors were subtracted.
    return Regression(count, near + mean, near_rows + mean_rows, products, cross)
