"""The judge of every method: E = K - K^ on rows that were drawn in the pass, with known probabilities.

From it come estimates of the eigenvalues of Kc and of the cosine of each component with the exact one, and what may be
missed: for a positive semidefinite E a bound with 95 % confidence, otherwise an estimate. Source: `docs/numerics.md`,
section 14.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.certificate import CONFIDENCE
from bigkpca.numerics.display import brief
from bigkpca.numerics.drawn_rows import DrawnRows
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.linalg import eigh_descending, in_parts, norm_of_symmetric
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.solvers import about_the_mean, next_block, rayleigh_ritz

SAME = 0.02  # of an eigenvalue: eigenvectors of values this close mix under the slightest change
_TILE_ROWS = 512
_COMPARED_ROWS = 64  # in both precisions
_SAFETY = 4  # times the measured rounding
_COARSE = 0.05  # of the norm of E: with more rounding in float32, E is computed in float64
_TOO_LARGE = 0.05  # of the measure of a row: landmarks leave more than that only if a kernel is not what it says

# For a dtype, a function of features V (b, D) -> Z (b, m) with K^ = Z diag(signs) Z'.
Coordinates = Callable[[np.dtype[Any]], Callable[[Array], Array]]


@dataclass(frozen=True)
class DrawnError:
    """E of m drawn rows."""

    E: Array  # of √w_i k(x_i, x_j) √w_j, (m, m)
    V: Array  # features (m, D)
    roots: Array  # of their weights, (m,)
    probabilities: Array  # (m,)
    rounding: float  # about the norm of that of F_ij = E_ij / (p_i p_j)^(1/2)

    __repr__ = brief

    @property
    def finite(self) -> bool:
        """Whether there are rows, and all kernels are finite: those of two far rows may overflow."""
        return len(self.E) > 0 and bool(np.isfinite(self.E).all())

    @property
    def diagonal(self) -> Array:
        return np.diagonal(self.E).astype(np.float64)

    def times(self, Q: Array) -> Array:
        """E Q (m, b), float64, from a product in the dtype of E."""
        Q = Q.astype(self.E.dtype, copy=False)
        return self._in_tiles(lambda own: self.E[own] @ Q).astype(np.float64, copy=False)

    def squares_times(self, Q: Array) -> Array:
        """The squares of the entries of E, times Q (m, b)."""
        Q = Q.astype(self.E.dtype)
        return self._in_tiles(lambda own: np.square(self.E[own]) @ Q)

    def scaled_times(self, Q: Array) -> Array:
        """F Q (m, b), float64."""
        weights = 1 / np.sqrt(self.probabilities)[:, None]
        return np.asarray(weights * self.times(weights * Q))

    def scores(self, mean: Array, components: Array) -> Array:
        """√w (v(x) - mean)'components of these rows, (m, r), float64."""
        return self._in_tiles(lambda own: self.roots[own, None] * ((self.V[own] - mean) @ components))

    def _in_tiles(self, function: Callable[[slice], Array]) -> Array:
        starts = range(0, max(len(self.E), 1), _TILE_ROWS)
        return np.concatenate(in_parts(lambda at: function(slice(at, at + _TILE_ROWS)), starts))


def error_of(
    features: FeatureMap, coordinates: Coordinates, signs: Array, rows: DrawnRows, added: float = 0.0
) -> DrawnError:
    """E of the drawn rows with K^ = Z diag(signs) Z' + added I, in float32 or, if rounding matters, in float64."""
    p, roots = rows.probabilities, np.sqrt(rows.weights)
    if not len(rows.X):  # k(x, x) is 0 for all rows
        return DrawnError(np.empty((0, 0)), np.empty((0, features.size)), roots, p, 0.0)
    with np.errstate(over="ignore"):
        single, double = (features.in_precision(np.dtype(each)) for each in (np.float32, np.float64))
    few = np.linspace(0, len(rows.X) - 1, min(_COMPARED_ROWS, len(rows.X))).astype(np.intp)
    given = coordinates, signs, rows.X[few], roots[few] / np.sqrt(p[few]), added
    exact, rounded = _error(double, *given)[0], _error(single, *given)[0]
    off = _SAFETY * len(rows.X) / len(few) * _norm(rounded - exact)
    if off <= _COARSE * _norm(exact) * len(rows.X) / len(few):
        return DrawnError(*_error(single, coordinates, signs, rows.X, roots, added), roots, p, off)
    E, V = _error(double, coordinates, signs, rows.X, roots, added)
    largest = float(np.abs(V).max(initial=0.0)) * len(rows.X) / max(float(p.min(initial=1.0)), 2.0**-52)
    return DrawnError(E, V, roots, p, _SAFETY * 2.0**-50 * largest)


def _norm(A: Array) -> float:
    return float(np.linalg.norm(A, 2)) if np.isfinite(A).all() else np.inf


def _error(
    features: FeatureMap, coordinates: Coordinates, signs: Array, X: Array, roots: Array, added: float
) -> tuple[Array, Array]:
    """E (m, m) and the features V (m, D) of rows X (m, d)."""
    rows, m = features.shifted(X), len(X)
    kernel, dtype = features.kernel, features.dtype
    V = np.empty((m, features.size), dtype)
    E = np.empty((m, m), dtype)
    scale, to_coordinates = roots.astype(dtype), coordinates(dtype)

    def of_features(at: int) -> Array:
        own = slice(at, at + _TILE_ROWS)
        with np.errstate(all="ignore"):
            ((V[own], _),) = features.tiles([X[own]], _TILE_ROWS)
            return to_coordinates(V[own])

    Z = np.concatenate(in_parts(of_features, range(0, m, _TILE_ROWS))).astype(dtype, copy=False)
    signed = Z * signs.astype(dtype)
    diagonal = kernel.diagonal(rows) - dtype.type(added)

    def of_tile(at: int) -> None:  # the rows of a tile to the left of the diagonal, and their transpose above it
        own = slice(at, min(at + _TILE_ROWS, m))
        evaluate = kernel.against(rows[own], _TILE_ROWS)
        K = np.empty((_TILE_ROWS, own.stop - at), dtype)
        with np.errstate(all="ignore"):
            for first in range(0, own.stop, _TILE_ROWS):
                others = slice(first, min(first + _TILE_ROWS, own.stop))
                piece = K[: others.stop - first]
                evaluate(rows[others], piece)
                if first == at:
                    np.fill_diagonal(piece, diagonal[own])
                piece -= signed[others] @ Z[own].T
                piece *= scale[others, None] * scale[own]
                E[others, own], E[own, others] = piece, piece.T

    in_parts(of_tile, range(0, m, _TILE_ROWS)[::-1])  # the longest first
    return E, V


_NEWTON_STEPS = 6
_WIDTH, _PRODUCTS = 8, 10  # of the block Krylov space
_MISSED = 1e-4  # probability that the Krylov space misses more of the largest eigenvalue than is added to it


@dataclass(frozen=True)
class Missed:
    """The largest eigenvalue of E."""

    most: float  # a bound with 95 % confidence if E is positive semidefinite, otherwise an estimate of one
    norm: float  # an estimate


def missed_of_positive(error: DrawnError, rows: DrawnRows, rng: np.random.Generator) -> Missed:
    """The bound for a positive semidefinite E:

        s = |F| / t,   |E| <= t p,   p the largest with  p - s + s ln(s / p) <= ln(1 / δ),   t = the threshold of rows.

    E = (<e_i, e_j>). Row i contributes T_i = B_i <v, e_i>² / (p_i t), with B_i = 1 if it was drawn and v the direction
    in which the sum of all <v, e_i>² is |E|. So Σ T_i has the mean |E| / t and is at most s, and each T_i is in [0, 1],
    or certain: E exp(-c T_i) <= exp(-(1 - exp(-c)) E T_i), from which Chernoff's bound for Poisson variables follows.
    Without a finite E, or if rounding made a measure smaller than what the landmarks leave, nothing is bounded.
    """
    if not error.finite or (error.diagonal > (1 + _TOO_LARGE) * rows.measures + error.rounding).any():
        return Missed(np.inf, np.inf)
    largest, about = _largest_eigenvalue(error.scaled_times, len(error.E), rng)
    largest = largest * (1 + len(error.E) * float(np.finfo(error.E.dtype).eps)) + error.rounding  # of products with E
    if not rows.threshold:
        return Missed(largest, about)
    s = largest / rows.threshold
    return Missed(rows.threshold * upper_mean(s, 1 - CONFIDENCE - _MISSED), about)


def missed_of_any(error: DrawnError, trace_error: float) -> Missed:
    """The estimate for E of either sign: the norm of F or, if that is larger, the part of |tr(E)| that the diagonal of
    the drawn rows does not account for."""
    if not error.finite:
        return Missed(np.inf, np.inf)
    roots = np.sqrt(error.probabilities)
    F = error.E.astype(np.float64) / roots / roots[:, None]
    norm = norm_of_symmetric(F)
    unlike = abs(trace_error) - float(np.sum(np.abs(error.diagonal) / error.probabilities))
    return Missed(max(norm, unlike), norm)


def upper_mean(s: float, allowed: float) -> float:
    """An upper bound of the mean of a sum s of independent numbers in [0, 1], with this probability of an error: the
    largest p with p - s + s ln(s / p) <= ln(1 / allowed)."""
    if not np.isfinite(s):
        return np.inf
    limit, s = -float(np.log(allowed)), max(float(s), 1e-300)
    # ln(1 + y) <= y - y² / (2 (1 + y)) for y > 0, so p - s is at most this:
    x = limit + float(np.sqrt(limit) * np.sqrt(limit + 2 * s))
    for _ in range(_NEWTON_STEPS):  # which come down to the root from above, since x - s ln(1 + x / s) is convex
        step = (x - s * np.log1p(x / s) - limit) / x * (s + x)
        x = min(max(x - step, limit), x)  # beyond s = 1e14 the step may be all rounding, and x hardly matters
    return (s + x) * (1 + 1e-6)


def _largest_eigenvalue(apply: Callable[[Array], Array], m: int, rng: np.random.Generator) -> tuple[float, float]:
    """An upper bound of the largest eigenvalue of a positive semidefinite E (m, m), and nearly the eigenvalue itself.

    The bound fails with a probability of at most 1e-4, and is about 10 % too large. The block Krylov space contains the
    Krylov space of each random vector, in which Lanczos misses more than a share ε of the eigenvalue with a probability
    of at most 1.648 √m exp(-√ε (2 k - 1)) after k steps (Kuczyński and Woźniakowski 1992, theorem 4.2).
    """
    basis = np.linalg.qr(rng.standard_normal((m, min(_WIDTH, m))))[0]
    images, products = apply(basis), 1
    while products < _PRODUCTS and basis.shape[1] < m:
        Q = next_block(basis, images[:, -_WIDTH:])
        if not Q.shape[1]:
            break
        basis, images, products = np.hstack([basis, Q]), np.hstack([images, apply(Q)]), products + 1
    found = max(float(rayleigh_ritz(basis, images, 1).values[0]), 0.0)
    missed = np.log(1.648 * np.sqrt(m) / _MISSED ** (1 / _WIDTH)) / (2 * products - 1)
    whole = basis.shape[1] == m or products < _PRODUCTS  # the space is invariant: nothing was missed
    return found / (1 if whole else 1 - missed**2), found


@dataclass(frozen=True)
class Estimates:
    """Estimates of eigenpairs of Kc from unit scores Q (n, c) of K^ = K - E, with the Ritz vectors q of T = Q'KcQ."""

    eigenvalues: Array  # those of T plus `added`, (c,), descending
    added: Array  # |(I - QQ')E q|² / eigenvalue, what directions outside of Q add to second order, (c,)
    standard_errors: Array  # of the drawing, (c,)
    rotation: Array  # the eigenvectors of T, (c, c)
    variances: Array  # of q'Tq, (c, c)
    outside: Array  # |(I - QQ')E q|, (c,)

    __repr__ = brief

    def cosines(self, missed: float) -> Array:
        """The cosine of the angle between each column of Q and the eigenvectors of Kc of its rank, and of eigenvalues
        within 2 % of that, (c,); 0 for eigenvalues below `missed`, the largest one of other directions.

        The squared sine is the part outside of these Ritz vectors, with what sampling may hide of it: two standard
        errors; that outside of Q, to first order (outside / (eigenvalue - missed))²; and what other Ritz vectors add by
        way of directions outside of Q, to second order.
        """
        values, outside = self.eigenvalues, self.outside
        if not np.isfinite(missed):
            return np.zeros(len(values))
        near = np.abs(values[:, None] - values) <= SAME * np.abs(values[:, None])
        apart_inside = np.where(near, np.inf, values[:, None] - values)
        mixed = 1 - np.einsum("ij,ij->i", self.rotation**2, near)
        mixed += np.sum(4 * self.variances / apart_inside**2, axis=1)
        apart = np.maximum(values - missed, np.finfo(float).tiny)
        with np.errstate(over="ignore", invalid="ignore"):
            through = np.outer(outside / apart, outside) / apart_inside
            sines = mixed + (outside / apart) ** 2 + np.sum(through**2, axis=1)
        return np.sqrt(np.clip(np.nan_to_num(1 - sines, nan=0.0), 0, 1))


def estimates(error: DrawnError, Q: Array, eigenvalues: Array, centred: float = np.inf) -> Estimates:
    """The estimates from unit scores Q (m, c) of the drawn rows and their `eigenvalues` (c,) in K^. `centred` is the
    sum of the weights of all rows if scores have the mean 0 and Kc = H K H; infinite if Kc = K.

    Q'EQ is the sum of E_ij q_i q_j' over all pairs of rows, estimated from pairs of drawn ones with weights 1 / (p_i
    p_j), and 1 / p_i for i = j (Horvitz and Thompson 1952). The variance of a sum is the sum over drawn rows of (1 -
    p_i) times the square of what it would lose without row i.
    """
    p, weights = error.probabilities[:, None], 1 / error.probabilities[:, None]
    own = error.diagonal[:, None]
    image = error.times(weights * Q)
    T = (weights * Q).T @ (image - (weights - 1) * own * Q)
    values, Z = eigh_descending(np.diag(eigenvalues) + (T + T.T) / 2)
    q, image = Q @ Z, image @ Z
    others = image - weights * own * q  # Σ over other rows j of E_ij q_j / p_j
    variances = _variances((1 - p) * weights**2, q, others, own)
    # (E q)_i² is too large by the variance of the sum over the others, which is estimated from its terms
    spread = (1 - p) * weights**2 * q**2
    noise = error.squares_times(spread) - own**2 * spread
    image = others + own * q  # E q, without bias
    inside = np.sum((T @ Z) ** 2, axis=0) + np.sum(error.roots[:, None] * weights * image, axis=0) ** 2 / centred
    outside = np.maximum(np.sum(weights * (image**2 - noise), axis=0) - inside, 0)
    added = outside / np.maximum(values, np.finfo(float).tiny)
    order = np.argsort(-(values + added), kind="stable")
    variances = variances[np.ix_(order, order)]
    values, added = (values + added)[order], added[order]
    # Noise between two directions moves both eigenvalues: apart, to second order, and by as much as itself if they tie.
    limit = np.maximum(variances, (values[:, None] - values) ** 2)
    moved = np.divide(variances**2, limit, out=np.zeros_like(limit), where=limit > 0)
    errors = np.sqrt(np.sum(moved, axis=1))
    return Estimates(values, added, errors, Z[:, order], variances, np.sqrt(outside[order]))


def _variances(weights: Array, q: Array, others: Array, own: Array) -> Array:
    """Σ w (q_j o_k + q_k o_j + E_ii q_j q_k)² over rows, (c, c): what the sums Q'EQ would lose without a row.

    With h = o + E_ii q / 2 that is Σ w (q_j h_k + q_k h_j)², of which three matrices are products.
    """
    half, roots = others + own * q / 2, np.sqrt(weights)
    with np.errstate(over="ignore", invalid="ignore"):
        apart, mixed = (weights * q**2).T @ half**2, roots * q * half
        found = np.maximum(apart + apart.T + 2 * mixed.T @ mixed, 0)
    return np.where(np.isnan(found), np.inf, found)  # of squares that overflow


def agreement_of(moments: Moments, judged: Solution, solution: Solution, center: bool) -> Array:
    """The cosine over all rows of each component with those of another solution of nearly its eigenvalue, (r,)."""
    second, _ = about_the_mean(moments, center)
    A, B = judged.components, solution.components
    squares = np.outer(np.einsum("ij,ij->j", A, second @ A), np.einsum("ij,ij->j", B, second @ B))
    products = np.abs(A.T @ second @ B)
    cosines = np.divide(products, np.sqrt(np.maximum(squares, 0)), out=np.zeros_like(products), where=squares > 0)
    values = judged.eigenvalues
    near = np.abs(values[:, None] - values) <= SAME * values[:, None]
    found, common = np.zeros(B.shape[1]), min(A.shape[1], B.shape[1])
    found[:common] = [min(float(np.linalg.norm(cosines[near[j], j])), 1.0) for j in range(common)]
    return found


def cosine_of_both(a: Array, b: Array) -> Array:
    """The cosine of the sum of two angles with these cosines, not below 0."""
    return np.asarray(np.maximum(a * b - np.sqrt(np.maximum((1 - a**2) * (1 - b**2), 0)), 0))
