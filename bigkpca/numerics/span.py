"""The span of landmarks in feature space: an orthonormal basis, and moments of rows in its coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy

from bigkpca.errors import Array, DataError
from bigkpca.numerics.display import brief
from bigkpca.numerics.linalg import congruence, eigh_descending
from bigkpca.numerics.moments import Moments

_SMALLEST = 1e-12  # of the largest k(s, s): the least residual of a landmark given those before it
_NO_SPAN = "the kernel matrix of the landmarks has no positive eigenvalue: there is nothing to project on"


@dataclass(frozen=True)
class Basis:
    """An orthonormal basis of the span of landmarks, or a part of it: P'W P = diag(signs), W⁺ = P diag(signs) P'.

    W (l, l) is the Gram matrix of the landmarks, P (l, m), signs (m,) of +1 and -1; P'v(x) are the coordinates of x.

    For a positive semidefinite kernel P = U⁻¹ of Cholesky's factor with pivoting, W = U'U: direction j is a combination
    of the landmarks `order[:j + 1]`, each of which those before it explain least of. For an indefinite kernel P = Q
    |Λ|^(-1/2) of the eigenvalues Λ of W above the rank tolerance, descending, and `order` has all landmarks.
    """

    W: Array
    P: Array
    signs: Array
    order: Array
    triangular: bool

    __repr__ = brief

    @property
    def indefinite(self) -> bool:
        return bool((self.signs < 0).any())

    def solve(self, b: Array) -> Array:
        """W⁺ b, for b (l,) or (l, c)."""
        return self.P @ (self.signs * (self.P.T @ b).T).T

    def coordinates(self, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
        """The function V -> V P of features V (b, l) in this dtype."""
        P = self.P.astype(dtype, copy=False)
        return lambda V: V @ P


def basis_of(W: Array, tolerance: float, *, positive: bool) -> Basis:
    """An orthonormal basis of the span of landmarks with Gram matrix W (l, l), float64. Raises DataError if W has no
    positive eigenvalue."""
    if not positive:
        return _eigenvectors(W, tolerance)
    U, pivots, rank, _ = scipy.linalg.lapack.dpstrf(W, tol=_SMALLEST * float(np.diag(W).max(initial=0.0)))
    order, m = pivots[:rank] - 1, rank
    if not m:
        raise DataError(_NO_SPAN)
    P = np.zeros((len(W), m))
    P[order] = np.triu(scipy.linalg.lapack.dtrtri(U[:m, :m])[0])
    return Basis(W, P, np.ones(m), order, triangular=True)


def _eigenvectors(W: Array, tolerance: float) -> Basis:
    L, Q = eigh_descending(W.copy())
    kept = np.abs(L) > tolerance * np.abs(L).max(initial=0.0)
    if not (kept & (L > 0)).any():
        raise DataError(_NO_SPAN)
    return Basis(W, Q[:, kept] / np.sqrt(np.abs(L[kept])), np.sign(L[kept]), np.arange(len(W)), triangular=False)


@dataclass(frozen=True)
class Span:
    """The span of landmarks, moments of the kernels v(x) of all rows with them, and those of the coordinates P'v(x).

    moments: mean (l,), scatter (l, l); coordinates: mean (m,), scatter (m, m); all float64.
    """

    basis: Basis
    moments: Moments
    coordinates: Moments

    @classmethod
    def of(cls, basis: Basis, moments: Moments) -> Self:
        """The span with this basis: P'm and P'M P of the mean m (l,) and scatter M (l, l) of the moments."""
        order = basis.order
        if basis.triangular:
            scatter = congruence(moments.scatter[np.ix_(order, order)], basis.P[order])
        else:
            scatter = basis.P.T @ moments.scatter @ basis.P
            scatter = (scatter + scatter.T) / 2
        return cls(basis, moments, replace(moments, mean=basis.P.T @ moments.mean, scatter=scatter))

    @property
    def squares(self) -> Array:
        """Σ over all rows of the square of each coordinate, (m,)."""
        return np.asarray(np.diag(self.coordinates.scatter) + self.moments.weight * self.coordinates.mean**2)

    def variance(self, center: bool) -> float:
        """Σ k(x_i, x_i), less n m'W⁺m when centred: at least tr(Kc) for a positive semidefinite kernel."""
        if not center:
            return self.moments.trace
        return self.moments.trace - self.moments.weight * float(self.basis.signs @ self.coordinates.mean**2)

    @property
    def trace_error(self) -> float:
        """tr(K - C W⁺ C') = Σ k(x_i, x_i) - tr(W⁺C'C), from the moments only: exact up to rounding."""
        return self.moments.trace - float(self.basis.signs @ self.squares)

    @property
    def unexplained(self) -> float | None:
        """tr(K - C W⁺ C') / tr(K); None if W is indefinite or tr(K) is not positive."""
        if self.basis.indefinite or not self.moments.trace > 0:
            return None
        return self.trace_error / self.moments.trace

    def keep(self, directions: Array) -> Self:
        """The span of these directions of the basis, ascending numbers."""
        basis, known = self.basis, self.coordinates
        basis = replace(basis, P=basis.P[:, directions], signs=basis.signs[directions])
        scatter = known.scatter[np.ix_(directions, directions)]
        return replace(self, basis=basis, coordinates=replace(known, mean=known.mean[directions], scatter=scatter))
