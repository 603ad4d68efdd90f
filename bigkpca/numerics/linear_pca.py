"""Linear PCA as the baseline of kernel PCA: with as many components, it may explain more of the columns, which a
certificate does not show. Source: `docs/numerics.md`, section 21."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import brief
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.linalg import eigh_descending

ROWS_PER_COMPONENT = 5  # of a fit to sampled rows: fewer are not enough
MOST_VALUES = 2_000_000  # of rows that a fit holds already: float64 copies of them take 16 MB each
_HELD_OUT = 4  # every fourth row is held out
_LEAST_HELD_OUT = 8
_LARGEST = 1e100  # squares of larger values could overflow


@dataclass(frozen=True)
class LinearPCA:
    """Principal component analysis: the mean (d,) and orthonormal axes (d, r), leading ones first."""

    mean: Array
    axes: Array

    __repr__ = brief

    @classmethod
    def of(cls, X: Array, r: int) -> LinearPCA:
        """PCA of rows X (m, d), from the smaller of both Gram matrices; of fewer than r components if X has no more."""
        mean = X.mean(axis=0, dtype=np.float64)
        centred = X - mean
        if len(X) >= X.shape[1]:
            return cls(mean, eigh_descending(centred.T @ centred, r)[1])
        values, U = eigh_descending(centred @ centred.T, r)
        kept = values > len(X) * np.finfo(np.float64).eps * values[0]
        return cls(mean, centred.T @ (U[:, kept] / np.sqrt(values[kept])))

    def reconstruct(self, X: Array) -> Array:
        """The projections (b, d) of rows X (b, d) onto mean + span of the axes, float64."""
        return self.mean + ((X - self.mean) @ self.axes) @ self.axes.T


@dataclass(frozen=True)
class Captured:
    """What scores explain of the columns of held-out rows, in the units of the model, and what linear PCA explains.

    The columns are regressed on the scores, by least squares with a constant, and PCA has as many components as there
    are scores. Both are fitted to other rows than those they are judged on, and so is kernel PCA unless `seen`.

    Attributes
    ----------
    rows, held_out : int
        Number of rows that regression and PCA were fitted to, and of rows that they were judged on.
    components : int
        Number of scores, and of components of PCA.
    variance : (d,) array
        Mean squared deviation of each column of the held-out rows from its mean over the other rows.
    by_scores, by_pca : (d,) array
        Mean squared error of the regression on the scores, and of the reconstruction by PCA.
    seen : bool or None
        Whether the held-out rows are among those that kernel PCA was fitted to; None if that is not known.
    """

    rows: int
    held_out: int
    components: int
    variance: Array
    by_scores: Array
    by_pca: Array
    seen: bool | None = True

    __repr__ = brief

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of the variance of all columns that the scores and PCA explain; not below 0."""
        return self._shares(slice(None))

    def of_columns(self, places: Mapping[str, slice]) -> dict[str, tuple[float, float]]:
        """The shares of the variance of each named part of the columns that varies, as `shares`, the largest first."""
        found = {name: self._shares(place) for name, place in places.items() if self.variance[place].sum() > 0}
        return dict(sorted(found.items(), key=lambda each: -each[1][0]))

    def _shares(self, place: slice) -> tuple[float, float]:
        total = float(self.variance[place].sum())
        by_scores, by_pca = (1 - float(left[place].sum()) / total for left in (self.by_scores, self.by_pca))
        return max(by_scores, 0.0), max(by_pca, 0.0)


def captured(features: FeatureMap, X: Array, Y: Array, *, seen: bool | None = True) -> Captured | None:
    """What scores Y (m, r) explain of every fourth of their rows X (m, d), in the units of the data. None if the
    columns are not quantities, if there are too few rows for r components, and if squares overflow."""
    if not features.kernel.on_vectors or features.precomputed or not len(X):
        return None
    r, held_out = Y.shape[1], np.arange(_HELD_OUT - 1, len(X), _HELD_OUT)
    train = len(X) - len(held_out)
    if train < ROWS_PER_COMPONENT * r or len(held_out) < _LEAST_HELD_OUT:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        Z = features.shifted(X)
        origin = Z[0].astype(np.float64)  # so that columns that do not vary are zero
        others, judged = np.delete(Z, held_out, axis=0) - origin, Z[held_out] - origin
        del Z
        if not all(np.abs(values).max() < _LARGEST for values in (others, judged, Y)):
            return None
    Y = np.column_stack([np.ones(len(Y)), Y / max(float(np.abs(Y).max()), np.finfo(float).tiny)])
    baseline, weights = LinearPCA.of(others, r), np.linalg.lstsq(np.delete(Y, held_out, axis=0), others)[0]
    expected = Y[held_out] @ weights
    variance, by_scores, by_pca = (
        np.mean((judged - found) ** 2, axis=0) for found in (baseline.mean, expected, baseline.reconstruct(judged))
    )
    if not variance.sum() > 0:
        return None
    return Captured(train, len(judged), r, variance, by_scores, by_pca, seen)


def judged_on(held_out: int, seen: bool | None) -> str:
    """On which rows kernel and linear PCA are compared, in words."""
    of = {False: "both", True: "PCA, but not of kernel PCA", None: "PCA; kernel PCA may have seen them"}[seen]
    return f"{held_out:,} rows that were left out of {of}"


def spread(m: int, most: int) -> Array:
    """The numbers of at most `most` of m rows, evenly spaced and ascending."""
    return np.linspace(0, m - 1, min(m, most)).astype(np.intp)
