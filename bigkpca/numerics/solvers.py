"""From moments to mean, components and eigenvalues: the small eigenproblem at the end of every pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics.linalg import eigh_descending, numerical_rank, signs
from bigkpca.numerics.moments import Moments

_ROUNDING = 1e-14  # an eigenvalue below this share of Σ k(x_i, x_i) is what centring leaves of equal rows


@dataclass(frozen=True)
class Solution:
    """scores = (v(x) - mean) @ components, for every method; all float64.

    eigenvalues are those of the (centred) Gram matrix, sums over n. total_variance is an upper bound on its
    trace, exact where the whole Gram matrix was seen. negative is the most negative eigenvalue that was
    dropped, as a share of the largest: 0 for positive semidefinite kernels up to rounding.
    """

    mean: Array  # (D,)
    components: Array  # (D, r)
    eigenvalues: Array  # (r,)
    total_variance: float
    negative: float = 0.0

    @property
    def explained_variance_ratio(self) -> Array:
        """eigenvalues / total_variance, (r,): never too large, since the total is an upper bound."""
        return self.eigenvalues / self.total_variance


def nystroem(moments: Moments, W: Array, components: int | float | None, *, center: bool, tolerance: float) -> Solution:
    """Orthogonalised Nyström: exact PCA in the feature space that the landmarks span.

        W = Q L Q',  keep L > tolerance · L_max,  P = Q L^(-1/2),
        P' scatter P = V Λ V',  components = P V,  eigenvalues = Λ.

    Equal to the eigenpairs of H C W⁺ C' H with C = k(X, S), without an n-vector anywhere; Λ_j <= λ_j.
    The total variance is Σ k(x_i, x_i) - n m' W⁺ m >= tr(Kc), m = mean of v.

    W (l, l), float64. `components` is a number, a share of the total variance in (0, 1), or None for the
    numerical rank. Raises DataError when no direction varies. Source: `docs/numerics.md`, section 1.
    """
    L, Q = eigh_descending(W.copy())
    kept = numerical_rank(L, tolerance)
    if not kept:
        raise DataError("the kernel matrix of the landmarks has no positive eigenvalue: nothing to project on")
    P = Q[:, :kept] / np.sqrt(L[:kept])
    second = moments.scatter
    mean, variance = moments.mean, moments.trace
    if center:
        variance -= moments.count * float(np.sum((P.T @ moments.mean) ** 2))
    else:
        second = second + moments.count * np.outer(moments.mean, moments.mean)
        mean = np.zeros_like(moments.mean)
    M = P.T @ second @ P
    most = components if isinstance(components, int) else None
    values, V = eigh_descending((M + M.T) / 2, most)
    variance = _at_least_its_parts(variance, values)
    r = _kept_components(values, components, variance, moments.trace, tolerance)
    A = P @ V[:, :r]
    A *= signs((W - mean) @ A)
    return Solution(mean, A, values[:r].copy(), variance, _negative_share(L))


def aligned(solution: Solution, previous: Solution, W: Array) -> Solution:
    """The solution with the signs under which its scores at the landmarks go along with those of `previous`."""
    r = min(solution.components.shape[1], previous.components.shape[1])
    now = (W - solution.mean) @ solution.components[:, :r]
    before = (W - previous.mean) @ previous.components[:, :r]
    flips = np.ones(solution.components.shape[1])
    flips[:r] = np.where(np.einsum("ij,ij->j", now, before) < 0, -1.0, 1.0)
    return replace(solution, components=solution.components * flips)


def gram(K: Array, components: int | float | None, *, center: bool, tolerance: float, positive: bool) -> Solution:
    """Exact kernel PCA from the full Gram matrix K (n, n), float64, which is overwritten.

        Kc = H K H = U Λ U',  components = U Λ^(-1/2),  eigenvalues = Λ,  mean = K 1 / n;

    a new row scores (k(x, X) - mean) @ components. `positive` says that the kernel is known to be positive
    semidefinite, so that only the leading part of the spectrum is computed when `components` is a number.
    Raises DataError when no direction varies.
    """
    mean = K.mean(axis=0) if center else np.zeros(len(K))
    trace = float(np.trace(K))
    if center:
        K -= mean
        K -= (mean - mean.mean())[:, None]
    variance = float(np.trace(K))
    most = components if isinstance(components, int) and positive else None
    values, U = eigh_descending(K, most)
    variance = _at_least_its_parts(variance, values)
    r = _kept_components(values, components, variance, trace, tolerance)
    A = U[:, :r] / np.sqrt(values[:r])
    A *= signs(U[:, :r])
    return Solution(mean, A, values[:r].copy(), variance, _negative_share(values))


def _negative_share(values: Array) -> float:
    """The most negative of descending eigenvalues as a share of the largest, 0 if there is none."""
    return float(min(values[-1] / values[0], 0.0))


def _at_least_its_parts(variance: float, values: Array) -> float:
    """The variance, or the sum of the positive eigenvalues where that is larger: by a rounding error when every
    row is a landmark, by the dropped negative part when the kernel is indefinite."""
    return max(variance, float(np.sum(values[values > 0])))


def _kept_components(
    values: Array, components: int | float | None, variance: float, trace: float, tolerance: float
) -> int:
    r = numerical_rank(values, tolerance)
    if not r or values[0] <= _ROUNDING * trace:
        raise DataError(
            "no direction varies in feature space: the rows are constant data to this kernel, which have no principal "
            "components"
        )
    if isinstance(components, float):
        explained = np.cumsum(values[:r]) / variance
        return min(r, int(np.searchsorted(explained, components)) + 1)
    return r if components is None else min(r, components)
