"""The span of landmarks in feature space: an orthonormal basis, and moments in its coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics import linalg
from bigkpca.numerics.linalg import Map, eigh_descending
from bigkpca.numerics.moments import Moments

PARTS = (8, 4, 2)  # every 8th, 4th and 2nd landmark: models that are compared with that of all landmarks
_TILE_COLUMNS = 256  # of a triangular product
SMALLEST = 1e-9  # eigenvalue of W, relative to the largest, down to which Cholesky's factor is accurate


@dataclass(frozen=True)
class Basis:
    """An orthonormal basis of the span of landmarks, or a part of it: P'W P = diag(signs), W⁺ = P diag(signs) P'.

    W (l, l) is the Gram matrix of the landmarks, P (l, m), signs (m,) of +1 and -1. P'v(x) are the coordinates of x.
    inverse (l,) is the diagonal of W⁻¹, of the whole W even for a part of the basis.

    Either P = L'⁻¹ of Cholesky's factor, W = L L', in the `nested` order of landmarks, and places (m,) are the numbers
    of its columns, so that those below ⌈l / 8⌉, ⌈l / 4⌉ and ⌈l / 2⌉ are bases of every 8th, 4th and 2nd landmark; or
    P = Q |Λ|^(-1/2) of the eigenvalues Λ of W above the rank tolerance, descending, and places is None. In the second
    case, the first `leading` columns may be those of Cholesky's factor, and Λ that of what they leave of W.
    """

    W: Array
    P: Array
    signs: Array
    inverse: Array
    places: Array | None
    leading: int = 0

    @property
    def triangular(self) -> bool:
        """Whether the basis is that of Cholesky's factor."""
        return self.places is not None

    @property
    def indefinite(self) -> bool:
        """Whether W has negative eigenvalues, beyond rounding."""
        return bool((self.signs < 0).any())

    def solve(self, b: Array) -> Array:
        """W⁺ b, for b (l,) or (l, c)."""
        return self.P @ (self.signs * (self.P.T @ b).T).T

    def coordinates(self, A: Array) -> Array:
        """B (m, c) with P B = A, for coefficients A (l, c) of directions in the span of the basis."""
        return self.signs[:, None] * (self.P.T @ (self.W @ A))

    def projection(self, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
        """Prepare V P, (b, m), of V (b, l) in this dtype: half the work for Cholesky's factor, which is triangular."""
        if self.places is None:
            P = self.P.astype(dtype, copy=False)
            return lambda V: V @ P
        order, m = nested(len(self.P)), self.P.shape[1]
        parts = [slice(start, start + _TILE_COLUMNS) for start in range(0, m, _TILE_COLUMNS)]
        blocks = [self.P[order[: self.places[part][-1] + 1], part].astype(dtype) for part in parts]

        def projected(V: Array) -> Array:
            V, found = V.take(order, axis=1), np.empty((len(V), m), dtype)
            for part, block in zip(parts, blocks, strict=True):
                np.matmul(V[:, : len(block)], block, out=found[:, part])
            return found

        return projected

    def congruence(self, S: Array, in_order: Map = map) -> Array:
        """P'S P (m, m) for a symmetric S (l, l)."""
        if not self._whole:
            found = self.P.T @ S @ self.P
            return np.asarray((found + found.T) / 2)
        return linalg.congruence(*self._nested(S, in_order), in_order)

    def quadratic_forms(self, S: Array, in_order: Map = map) -> Array:
        """p_j'S p_j (m,) for a symmetric S (l, l)."""
        if not self._whole:
            return np.asarray(np.einsum("ij,ij->j", self.P, S @ self.P))
        return linalg.quadratic_forms(*self._nested(S, in_order), in_order)

    @property
    def _whole(self) -> bool:
        """Whether P is triangular and square."""
        return self.triangular and self.P.shape[0] == self.P.shape[1]

    def _nested(self, S: Array, in_order: Map) -> tuple[Array, Array]:
        """S and P in the nested order."""
        order = nested(len(S))
        return linalg.reordered(S, order, in_order), self.P[order]

    def keep(self, columns: Array | slice) -> Self:
        """The part of the basis with these columns, ascending numbers; with a slice, a view."""
        places = None if self.places is None else self.places[columns]
        P = self.P[:, columns] if isinstance(columns, slice) else self.P.take(columns, axis=1)
        return replace(self, P=P, signs=self.signs[columns], places=places)


def nested(l: int) -> Array:  # noqa: E741
    """The numbers of l landmarks: first those of every 8th, then of every 4th, of every 2nd, and the others."""
    numbers = np.arange(l)
    first = np.sum([numbers % step == 0 for step in PARTS], axis=0)
    return np.argsort(-first, kind="stable")


def part_size(l: int, step: int) -> int:  # noqa: E741
    """⌈l / step⌉, the number of every `step`-th of l landmarks."""
    return len(range(0, l, step))


def basis_of(W: Array, tolerance: float, in_order: Map = map, least: float | None = None) -> Basis:
    """An orthonormal basis of the span of landmarks with Gram matrix W (l, l), float64.

    From Cholesky's factor, much faster than eigenvectors, if no eigenvalue of W is below c = `least` (the rank
    tolerance, at least 1e-9, unless given) times the largest row sum, which bounds the largest eigenvalue. This is the
    case if 1 / |P|² >= 2 c by a bound of |P|, since W⁻¹ = P P'; else Cholesky of W - c I decides. Otherwise from the
    eigenvectors that the rank tolerance leaves. Raises DataError if W has no positive eigenvalue.
    """
    share = max(SMALLEST, tolerance) if least is None else least
    order, row_sum = nested(len(W)), float(np.abs(W).sum(axis=0).max(initial=0))
    L = linalg.cholesky(linalg.reordered(W, order, in_order), in_order, overwrite=True) if row_sum > 0 else None
    if L is not None:
        T = linalg.inverse_transposed(L, in_order)
        del L  # squares, which are large
        P = np.empty_like(T)
        P[order] = T
        del T
        least_eigenvalue = share * row_sum
        # The bound, and the factor by which P was computed, are wrong by far less than the factor of two.
        enough = 0.5 / max(least_eigenvalue, np.finfo(float).tiny)
        sure = linalg.squared_norm_at_most(P, enough) * 2 * least_eigenvalue <= 1
        if sure or linalg.is_positive(W, -least_eigenvalue, in_order):
            return Basis(W, P, np.ones(len(W)), np.einsum("ij,ij->i", P, P), np.arange(len(W)))
    return eigenvector_basis(W, tolerance)


def eigenvector_basis(W: Array, tolerance: float, first: Array | None = None) -> Basis:
    """The basis of eigenvectors of W whose eigenvalues are above the rank tolerance; see `basis_of`.

    With orthonormal directions `first` (l, q), which come first: of what they leave, W - W F F' W.
    """
    F = np.empty((len(W), 0)) if first is None else first
    B = W @ F
    L, Q = eigh_descending(W - B @ B.T)
    largest = max(np.abs(L).max(initial=0.0), np.linalg.eigvalsh(B.T @ B).max(initial=0.0))
    kept = np.abs(L) > tolerance * largest
    if not F.shape[1] and not (kept & (L > 0)).any():
        raise DataError("the kernel matrix of the landmarks has no positive eigenvalue: there is nothing to project on")
    Q -= F @ (B.T @ Q)
    inverse = Q**2 @ (1 / np.maximum(L, tolerance * largest)) + np.einsum("ij,ij->i", F, F)
    P = np.concatenate([F, Q[:, kept] / np.sqrt(np.abs(L[kept]))], axis=1)
    signs = np.concatenate([np.ones(F.shape[1]), np.sign(L[kept])])
    return Basis(W, P, signs, inverse, None, F.shape[1])


@dataclass(frozen=True)
class Span:
    """The span of landmarks, moments of the kernels v(x) of all rows with them, and those of the coordinates P'v(x).

    moments: mean (l,), scatter (l, l); coordinates: mean (m,), scatter (m, m); all float64.
    """

    basis: Basis
    moments: Moments
    coordinates: Moments

    @property
    def squares(self) -> Array:
        """Σ over all rows of the square of each coordinate, (m,)."""
        return np.diag(self.coordinates.scatter) + self.moments.weight * self.coordinates.mean**2

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

    def keep(self, columns: Array | slice) -> Span:
        """The span of these columns of the basis, ascending numbers; with a slice, a view."""
        return replace(self, basis=self.basis.keep(columns), coordinates=self.coordinates.part(columns))

    def every(self, step: int, tolerance: float) -> Span:
        """The span of every `step`-th landmark, one of PARTS, within this one if the basis is Cholesky's factor.

        Raises DataError if these landmarks span nothing.
        """
        l, places = len(self.basis.W), self.basis.places  # noqa: E741
        if places is not None:
            kept = int(np.count_nonzero(places < part_size(l, step)))
            if not kept:
                raise DataError(f"every {step}th landmark spans nothing beyond rounding")
            return self.keep(slice(kept))
        part = span_of(self.basis.W[::step, ::step], self.moments.part(slice(None, None, step)), tolerance)
        P = np.zeros((l, part.basis.P.shape[1]))
        P[::step] = part.basis.P
        basis = replace(part.basis, W=self.basis.W, P=P, inverse=self.basis.inverse)
        return replace(part, basis=basis, moments=self.moments)


def span_of(W: Array, moments: Moments, tolerance: float, in_order: Map = map) -> Span:
    """The span of landmarks with Gram matrix W (l, l), see `basis_of`."""
    return of_basis(basis_of(W, tolerance, in_order), moments, in_order)


def of_basis(basis: Basis, moments: Moments, in_order: Map = map) -> Span:
    """The span with this basis: P'm and P'M P of the mean m (l,) and scatter M (l, l) of the moments."""
    scatter = basis.congruence(moments.scatter, in_order)
    return Span(basis, moments, replace(moments, mean=basis.P.T @ moments.mean, scatter=scatter))
