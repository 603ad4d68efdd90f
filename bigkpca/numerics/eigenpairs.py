"""Components and eigenvalues, for every solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics.array_api import astype, dtype_of, functions_of
from bigkpca.numerics.display import brief
from bigkpca.numerics.linalg import numerical_rank, signs

Components = int | float | None  # their number, the share of the variance that they explain, or all
_ROUNDING = 1e-14  # share of Σ k(x_i, x_i): centring equal rows leaves eigenvalues of this size


@dataclass(frozen=True)
class Projection:
    """Map from features (b, D) to scores (b, r): (v - mean) @ components."""

    mean: Array  # (D,)
    components: Array  # (D, r)

    def __call__(self, V: Array, *, overwrite: bool = False) -> Array:
        """Scores of V, in the wider precision of V and the projection; V is overwritten with V - mean if `overwrite`
        allows it and no precision is lost."""
        lossless = np.can_cast(dtype_of(self.mean), dtype_of(V))
        return functions_of(V).subtract(V, self.mean, out=V if overwrite and lossless else None) @ self.components


@dataclass(frozen=True)
class Solution:
    """Mean, components and eigenvalues: scores = (v(x) - mean) @ components. All float64.

    Attributes
    ----------
    mean : (D,) array
        Mean of the features v(x); zeros when not centred.
    components : (D, r) array
        Maps features to scores.
    eigenvalues : (r,) array
        Those of the (centred) Gram matrix, sums over n, descending.
    total_variance : float
        An upper bound of its trace for landmarks of a positive semidefinite kernel, exact from the whole Gram matrix,
        unbiased for random features, and at least the sum of the positive eigenvalues.
    negative : float
        The most negative eigenvalue that was dropped, relative to the largest.
    unexplained : float or None
        tr(K - C W⁺ C') / tr(K), the share outside the span of the landmarks; None without landmarks, and if W has
        negative eigenvalues.
    """

    mean: Array
    components: Array
    eigenvalues: Array
    total_variance: float
    negative: float = 0.0
    unexplained: float | None = None

    __repr__ = brief

    def projection(self, dtype: Any = np.float64) -> Projection:
        """The projection from features to scores, in the given precision."""
        return Projection(astype(self.mean, dtype), astype(self.components, dtype))

    def placed(self, place: Callable[[Array], Any]) -> Solution:
        """The same solution with mean and components on a device."""
        return replace(self, mean=place(self.mean), components=place(self.components))

    def first(self, count: int) -> Solution:
        """The solution with the leading `count` components, or all if there are fewer."""
        return replace(self, components=self.components[:, :count].copy(), eigenvalues=self.eigenvalues[:count].copy())

    @property
    def explained_variance_ratio(self) -> Array:
        """eigenvalues / total_variance, (r,): for Nyström with a positive semidefinite kernel never too large, up to
        rounding; otherwise an estimate."""
        return self.eigenvalues / self.total_variance


def spectrum(
    values: Array, V: Array, mean: Array, sums: Any, components: Components, added: float, tolerance: float
) -> Solution:
    """The solution from leading eigenpairs (values, V) of the scatter of random features, whose `sums`, the moments or
    an action, have the count, weight and trace of the rows."""
    rank = min(numerical_rank(values, tolerance), sums.count - bool(mean.any()))  # beyond it: rounding errors
    variance = at_least_its_parts(sums.trace - sums.weight * float(mean @ mean), values[values > 0] + added)
    kept = values[:rank] + added
    r = kept_components(kept, components, variance, sums.trace, 0.0)
    return Solution(mean, V[:, :r] * signs(V[:, :r]), kept[:r].copy(), variance)


def aligned(solution: Solution, previous: Solution, W: Array | None) -> Solution:
    """The solution with the signs that agree with the previous one: of the scores at the landmarks or, without
    landmarks (W is None), of the components, which are then orthonormal."""
    r = min(solution.components.shape[1], previous.components.shape[1])
    now, before = solution.components[:, :r], previous.components[:, :r]
    if W is not None:
        now, before = Projection(solution.mean, now)(W), Projection(previous.mean, before)(W)
    flips = np.ones(solution.components.shape[1])
    flips[:r] = np.where(np.einsum("ij,ij->j", now, before) < 0, -1.0, 1.0)
    return replace(solution, components=solution.components * flips)


def check_some_positive(largest: float, lowest: float, noise: float) -> None:
    """Raise DataError if there are negative eigenvalues, but no positive one beyond `noise`."""
    if lowest < -noise and largest <= noise:
        raise DataError(
            f"the Gram matrix has no positive eigenvalue, and {lowest:.6g} among the negative ones, so no component is "
            "left: kernel values must be large for similar rows; convert distances D with exp(-D² / (2 sigma²)), or "
            "with -D² / 2 and centring"
        )


def orthogonal_to_ones(U: Array, center: bool) -> Array:
    """Eigenvectors U (n, r) of Kc, exactly orthogonal to 1: scores of small eigenvalues would amplify rounding."""
    return U - U.mean(axis=0) if center else U


def of_eigenvectors(
    values: Array, U: Array, row_means: Array, trace: float, *, center: bool, tolerance: float
) -> Solution:
    """Exact kernel PCA from leading eigenpairs of Kc, U (n, r), with K 1 / n (n,) and tr(K); see `solvers.gram`."""
    mean = row_means if center else np.zeros(len(U))
    variance = at_least_its_parts(trace - float(row_means.sum()) if center else trace, values)
    r = kept_components(values, len(values), variance, trace, tolerance)
    U, values = U[:, :r], values[:r]
    A = orthogonal_to_ones(U, center) / np.sqrt(values) * signs(U)
    return Solution(mean, A, values, variance)


def negative_share(values: Array) -> float:
    """The most negative of descending eigenvalues relative to the largest; 0 if none is negative, or none positive."""
    return float(min(values[-1] / values[0], 0.0)) if values[0] > 0 else 0.0


def at_least_its_parts(variance: float, values: Array) -> float:
    """The variance, or the sum of the positive eigenvalues if that is larger: by rounding, or by the dropped negative
    part of an indefinite kernel."""
    return max(variance, float(np.sum(values[values > 0])))


def kept_components(values: Array, components: Components, variance: float, trace: float, tolerance: float) -> int:
    """Number of components to keep: the given number, the number for the given share of the variance, or the numerical
    rank. Raises DataError if no direction varies."""
    r = numerical_rank(values, tolerance)
    if not r or values[0] <= _ROUNDING * trace:
        raise DataError(
            "no direction varies in feature space: to this kernel all rows look equal, or far from all landmarks: "
            "check the landmarks, gamma, and the length, for which `bigkpca sigma` prints values that suit the data"
        )
    if isinstance(components, float):
        explained = np.cumsum(values[:r]) / variance
        return min(r, int(np.searchsorted(explained, components)) + 1)
    return r if components is None else min(r, components)
