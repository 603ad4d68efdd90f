"""Bounds on what landmarks miss, from the residual matrix of sampled rows, and the stability of components.

Source: `docs/numerics.md`, section 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from bigkpca.errors import Array, DataError
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.numerics.linalg import Map, product
from bigkpca.numerics.methods import Method
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.rounding import farthest
from bigkpca.numerics.solvers import Ritz, next_block, rayleigh_ritz
from bigkpca.numerics.span import PARTS, Span, part_size

_TILE_ROWS = 512


@dataclass(frozen=True)
class ResidualMatrix:
    """E = K - C P P'C' (m, m), as products: forming the second term would take longer than forming K.

    tiles: the upper half of K; tile i contains 512 columns down to the diagonal. C (m, l): kernels with the landmarks.
    kernels (m,): the diagonal of K, float64.
    """

    tiles: list[Array]
    C: Array
    P: Array
    kernels: Array

    def times(self, Q: Array, in_order: Map = map) -> Array:
        """E Q (m, b), float64: products of tiles in the dtype of block work, added up in float64."""
        m, C, right = len(Q), self.C, Q.astype(self.C.dtype)

        def with_tile(i: int) -> Array:
            out, own = np.zeros((m + C.shape[1], Q.shape[1])), slice(i * _TILE_ROWS, len(self.tiles[i]))
            with _quiet():
                for first in range(0, own.start, _TILE_ROWS):  # a piece is in the cache for its transpose
                    others = slice(first, first + _TILE_ROWS)
                    out[others] = self.tiles[i][others] @ right[own]
                    out[own] += self.tiles[i][others].T @ right[others]
                out[own] += self.tiles[i][own] @ right[own]
                out[m:] = C[own].T @ right[own]
            return out

        longest_first = range(len(self.tiles) - 1, -1, -1)
        found = np.asarray(sum(in_order(with_tile, longest_first)))
        inner = product(self.P.T, found[m:].astype(C.dtype), _TILE_ROWS, in_order)
        inner = product(self.P, inner, _TILE_ROWS, in_order)
        found[:m] -= product(C, inner, _TILE_ROWS, in_order)
        return np.asarray(found[:m])

    def diagonal(self) -> Array:
        """The diagonal of E (m,), float64, not below zero."""
        B = self.C @ self.P
        return np.maximum(self.kernels - np.einsum("ij,ij->i", B, B), 0)

    def is_cluster(self, eigenvalue: float, vector: Array) -> bool:
        """Whether an eigenvector belongs to several rows that are similar to each other but to no landmark."""
        several = 1 / float(np.sum(vector**4))  # rows that share it (participation ratio)
        alike = eigenvalue > _ALIKE * several * float(vector**2 @ self.kernels)
        if several < _LEAST_ROWS or not alike:
            return False
        return float(vector**2 @ (self.diagonal() > _UNSEEN * self.kernels)) > _UNSEEN


def residual_matrix(features: KernelRows, span: Span, X: Array, in_order: Map = map) -> ResidualMatrix:
    """E of rows X (m, d) in the units of the data, in the dtype of block work."""
    rows, kernel = features.shifted(X), features.kernel
    diagonal, C = kernel.diagonal(rows), np.empty((len(X), features.size), features.dtype)

    def columns(start: int) -> Array:
        own = slice(start, start + _TILE_ROWS)
        with _quiet():
            C[own] = kernel(rows[own], features.landmarks)
        return C[own]

    def tile(start: int) -> Array:
        stop = min(start + _TILE_ROWS, len(X))
        evaluate, K = kernel.against(rows[start:stop], _TILE_ROWS), np.empty((stop, stop - start), features.dtype)
        with _quiet():
            for first in range(0, stop, _TILE_ROWS):
                piece = slice(first, min(first + _TILE_ROWS, stop))
                evaluate(rows[piece], K[piece])
            own = np.arange(stop - start)
            K[start + own, own] = diagonal[start:stop]
        return K

    for _ in in_order(columns, range(0, len(X), _TILE_ROWS)):
        pass
    longest_first = range(0, len(X), _TILE_ROWS)[::-1]
    with _quiet():
        P = span.basis.P.astype(C.dtype, copy=False)
    return ResidualMatrix(list(in_order(tile, longest_first))[::-1], C, P, diagonal.astype(np.float64))


def _quiet() -> np.errstate:
    """Suppress warnings about overflow, which is checked afterwards."""
    return np.errstate(over="ignore", invalid="ignore")  # set in every thread, as settings are per thread


HELD_OUT_ROWS = 4096  # the bound is at least 3 n R / m, and the work grows with m²
CONFIDENCE = 0.95
_DOUBLE_ROWS = 2896  # in float64: the same number of bytes
_CALIBRATING_ROWS = 64
_SAFETY = 4  # times the measured rounding
_COARSE = 0.05  # of the norm: with more rounding in float32, work is in float64
_WIDTH, _PRODUCTS = 8, 10  # of the block Krylov space
_MISSED = 1e-4  # probability that the Krylov space misses more of the largest eigenvalue than is added to it
# A cluster without a landmark: least number of rows, least unexplained share of k(x, x), least mean similarity.
_LEAST_ROWS, _UNSEEN, _ALIKE = 3.0, 0.9, 0.5


@dataclass(frozen=True)
class Stratum:
    """`sampled` rows, drawn uniformly from `count` rows without replacement and independently of the landmarks.

    norm is an upper bound of the largest eigenvalue of the sampled square of E, with an error probability of 1e-4, for
    this many leading `directions` of the basis, which is that of Cholesky's factor if `triangular` is 1, otherwise that
    of eigenvectors. cluster is that eigenvalue, scaled to all rows, if it belongs to rows that are similar to each
    other but to no landmark; else 0.
    """

    count: int
    sampled: int
    norm: float
    directions: int
    cluster: float = 0.0
    triangular: float = 0.0

    def upper_mean(self, largest: float, allowed: float) -> float:
        """R p of `spectral_error` for R = `largest`, with the probability `allowed` of an error."""
        from scipy.optimize import brentq

        q, limit = self.norm / (self.sampled * largest), -np.log(allowed) / self.sampled

        def excess(p: float) -> float:
            return float(scipy.special.rel_entr(q, p) + scipy.special.rel_entr(1 - q, 1 - p)) - limit

        least, most = max(q, 1e-300), 1 - 1e-15
        if not least < most or excess(most) <= 0:
            return largest
        return largest * float(brentq(excess, least, most, xtol=1e-12, rtol=1e-9)) * (1 + 1e-6)


def spectral_error(
    strata: Sequence[Stratum], largest: float, directions: int = 0, dropped: Array | tuple[()] = ()
) -> float:
    """An upper bound of the largest eigenvalue of E with a probability of 95 %; `largest` is max k(x, x).

        Σ over strata of n R p,   p the largest with  m kl(q, p) <= ln(1 / δ),   q = norm / (m R),

    kl(q, p) = q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)), R = largest, δ an equal share of 5 %. E is a sum of squares
    e_i e_i' over all rows, each at most R in any direction. The Chernoff bound, which holds for sampling without
    replacement (Hoeffding 1963), bounds the mean over all rows by the mean over m, in the leading direction. A stratum
    that contains all its rows needs no bound. `directions` of W are in use now; those `dropped` after a stratum was
    drawn increase E by at most the squares of all rows in them.
    """
    parts = sum(s.sampled < s.count for s in strata)
    allowed = (1 - CONFIDENCE - _MISSED * len(strata)) / max(parts, 1)
    if allowed <= 0:  # with this many strata, no bound is valid at this confidence
        return largest * sum(s.count for s in strata)
    found = sum(s.norm if s.sampled == s.count else s.count * s.upper_mean(largest, allowed) for s in strata)
    return found + float(np.sum(dropped[: max(0, max(s.directions for s in strata) - directions)]))


def stratum(
    features: KernelRows,
    span: Span,
    X: Array,
    count: int,
    calibrating: Array,
    value: float,
    rng: np.random.Generator,
    in_order: Map = map,
) -> Stratum:
    """The stratum of rows X (m, d), in the units of the data, drawn from `count`.

    `value` is the largest error of a kernel value in float64. m² kernels are held in the dtype of block work; in
    float64, of fewer rows, if rounding would matter. Other rows, `calibrating`, decide between these, so that X stays a
    uniform sample.
    """
    off = np.zeros(2)
    if features.dtype != np.float64:
        off, norm = _off(features, span, (calibrating, X), rng, in_order)
        if not off[0] * len(X) <= _COARSE * norm:
            # The first part of rows in random order is a uniform sample, too.
            features, X = features.in_precision(np.dtype(np.float64)), X if len(X) == count else X[:_DOUBLE_ROWS]
            off = np.zeros(2)
    unknown = Stratum(count, len(X), 0.0, len(span.basis.signs), 0.0, float(span.basis.triangular))
    E = residual_matrix(features, span, X, in_order)
    # With B = CP, the error of B B' is 2 |B| |P| |error of C|, in Frobenius norms, where |B|² is at most Σ k(x, x).
    seen_through_P = 2 * np.sqrt(float(E.kernels.sum()) * E.C.size) * float(np.linalg.norm(span.basis.P))
    rounding = len(X) * float(off.max()) + _SAFETY * value * (len(X) + seen_through_P)
    found = largest_eigenvalue(partial(E.times, in_order=in_order), len(X), rng)
    if found is None:
        return replace(unknown, norm=np.inf)  # kernels of two far rows may overflow
    norm, leading = found
    eigenvalue, vector = float(leading.values[0]), leading.vectors[:, 0]
    cluster = eigenvalue * count / len(X) if E.is_cluster(eigenvalue, vector) else 0.0
    return replace(unknown, norm=norm + rounding, cluster=cluster)


def _off(
    features: KernelRows, span: Span, samples: Sequence[Array], rng: np.random.Generator, in_order: Map
) -> tuple[Array, float]:
    """Errors of products with E in the dtype of block work, in norm per row, of a part of each sample.

    The second value is the norm of E for the first part.
    """
    parts, directions = [], []
    for X in samples:  # of each the farthest rows, whose kernels have the largest errors, and the first ones
        far = farthest(features.shifted(X), _CALIBRATING_ROWS // 2)
        others = np.setdiff1d(np.arange(min(len(X), _CALIBRATING_ROWS)), far)[: _CALIBRATING_ROWS // 2]
        parts.append(X[np.concatenate([far, others])])
    for part in parts:
        columns = rng.standard_normal((len(part), len(part)))
        columns[:, 0] = 1  # where all kernels add up and errors are largest
        directions.append(np.linalg.qr(columns)[0])
    Q = scipy.linalg.block_diag(*directions)
    maps, rows = (features.in_precision(np.dtype(np.float64)), features), np.concatenate(parts)
    exact, found = in_order(lambda i: residual_matrix(maps[i], span, rows).times(Q), range(2))
    off, start = np.full(len(parts), np.inf), 0
    for i, part in enumerate(parts):
        own = np.s_[start : start + len(part)]
        difference = found[own, own] - exact[own, own]
        if np.isfinite(difference).all():
            off[i] = _SAFETY * float(np.linalg.norm(difference, 2)) / len(part)
        start += len(part)
    of_first = exact[: len(parts[0]), : len(parts[0])]
    return off, float(np.linalg.norm(of_first, 2)) if np.isfinite(of_first).all() else 0.0


def estimate(features: FeatureMap, span: Span | None, X: Array, count: int, center: bool) -> float:
    """(n / q) |H (K - K^) H|_2 of rows X (q, d), in the units of the data, drawn from n = `count`.

    Times 1 + 2 / √q if q < n: an estimate of what is missed if K - K^ has either sign. `span` is that of landmarks,
    None for random features. At least what |tr(K - K^)|, known from all rows, exceeds that of rows like the sampled.
    """
    rows = features.shifted(X)
    ((V, _),) = features.tiles([X], len(X))
    V = V.astype(np.float64)
    E = features.kernel.gram(rows)
    per_row = count / len(X) * (1 + 2 / np.sqrt(len(X)) if len(X) < count else 1)
    unlike = 0.0
    if span is None:
        E -= V @ V.T
        # What the solver of rff-pca adds to every eigenvalue; zero for other features.
        E.flat[:: len(E) + 1] -= features.unexplained(float(np.sum(V**2)), len(V))
    else:
        Z = V @ span.basis.P
        E -= (Z * span.basis.signs) @ Z.T
        unlike = abs(span.trace_error) - per_row * float(np.abs(E.diagonal()).sum())
    if center:
        E -= E.mean(axis=0)
        E -= E.mean(axis=1)[:, None]
    if not np.isfinite(E).all():  # kernels overflow: all of K may be missed
        return float(np.abs(features.kernel.diagonal(rows).astype(np.float64)).max()) * count
    values = np.linalg.eigvalsh((E + E.T) / 2)
    return max(per_row * float(np.abs(values).max()), unlike)


def largest_eigenvalue(apply: Callable[[Array], Array], m: int, rng: np.random.Generator) -> tuple[float, Ritz] | None:
    """An upper bound of the largest eigenvalue of a positive semidefinite E (m, m), and the leading Ritz pair.

    None if a product is not finite, as when an entry is not: the first block has no zeros. The bound fails with a
    probability of at most 1e-4, and is about 10 % too large. `apply` multiplies E by a block (m, b). Block Krylov from
    `_WIDTH` random vectors, `_PRODUCTS` products. Its space contains the Krylov space of each vector, in which Lanczos
    misses more than a share ε of the eigenvalue with a probability of at most 1.648 √m exp(-√ε (2 k - 1)) after k steps
    (Kuczyński and Woźniakowski 1992, theorem 4.2).
    """
    basis = np.linalg.qr(rng.standard_normal((m, min(_WIDTH, m))))[0]
    images, products = apply(basis), 1
    if not np.isfinite(images).all():
        return None
    while products < _PRODUCTS and basis.shape[1] < m:
        Q = next_block(basis, images[:, -_WIDTH:])
        if not Q.shape[1]:
            break
        basis, images, products = np.hstack([basis, Q]), np.hstack([images, apply(Q)]), products + 1
    found = rayleigh_ritz(basis, images, 1)
    missed = np.log(1.648 * np.sqrt(m) / _MISSED ** (1 / _WIDTH)) / (2 * products - 1)
    whole = basis.shape[1] == m or products < _PRODUCTS  # the space is invariant: nothing was missed
    return max(float(found.values[0]), 0.0) / (1 if whole else 1 - missed**2), found


def as_array(strata: Iterable[Stratum]) -> Array:
    """Strata as rows (count, sampled, norm, directions, cluster, triangular), (k, 6), float64."""
    return np.array([astuple(each) for each in strata], np.float64)


def from_array(values: Array) -> tuple[Stratum, ...]:
    """The strata that `as_array` wrote."""
    return tuple(Stratum(int(n), int(m), norm, int(directions), *others) for n, m, norm, directions, *others in values)


_SPARE = 10  # components of the half model beyond r, so that the r-th is not separated from a neighbour
_SAME = 0.02  # of an eigenvalue: eigenvectors of values this close mix under the slightest change


class Halved(NamedTuple):
    """A model compared with one of half its landmarks or features.

    cosines (r,): |cosine| of each component with the nearest one of the half. behind (k,): eigenvalues of the half
    after its r-th.
    """

    cosines: Array
    behind: Array


def gaps(values: Array, halved: Halved | None) -> Array:
    """Distance of each of the eigenvalues (r,) to the nearest other that is not within 2 % of it, as a share of it.

    Those after the r-th are from the model of half the landmarks or features. Infinite if there is no other.
    """
    every = values if halved is None else np.append(values, halved.behind)
    apart = np.abs(every - values[:, None])
    return np.where(apart > _SAME * values[:, None], apart, np.inf).min(axis=1) / values


def residuals_of(span: Span, solution: Solution, center: bool) -> Array:
    """|K^ u_j - lambda_j u_j| / lambda_j (r,) of unit score vectors u_j, with Nyström's K^ = C W⁺ C'.

    The largest among components whose eigenvalues may be equal. For u = C a and c = W⁺ C'u = W⁺ M a, M the scatter,
    |C c - lambda u|² = c'M c - 2 lambda c'M a + lambda² a'M a.
    """
    second, _ = solvers.about_the_mean(span.moments, center)
    A, values = solution.components, solution.eigenvalues
    MA = second @ A
    c = span.basis.solve(MA)
    lengths = np.einsum("ij,ij->j", A, MA)
    left = np.einsum("ij,ij->j", c, second @ c) - 2 * values * np.einsum("ij,ij->j", c, MA) + values**2 * lengths
    found = np.sqrt(np.maximum(left, 0) / np.maximum(lengths, 1e-300)) / values
    found = np.nan_to_num(found, nan=1e300, posinf=1e300)  # squares of huge kernels may overflow
    # The order of components whose eigenvalues may be equal is not known.
    off = np.minimum(found, 1) * values
    near = np.abs(values[:, None] - values) <= off[:, None] + off
    return np.where(near, found, 0).max(axis=1)


def agreement_of(moments: Moments, nystroem: Solution, solution: Solution, center: bool) -> Array:
    """Cosine of each component with Nyström's components of its rank, and of eigenvalues within 2 % of that, (r,)."""
    squares, found = nystroem.eigenvalues, np.zeros(len(solution.eigenvalues))
    cosines = _cosines(moments, nystroem.components, solution.components, center)
    for j in range(min(len(squares), len(found))):
        same = np.abs(squares - squares[j]) <= _SAME * squares[j]
        found[j] = min(float(np.linalg.norm(cosines[same, j])), 1.0)
    return found


def _cosines(moments: Moments, A: Array, B: Array, center: bool) -> Array:
    """Cosines of the scores V A with V B of all fitted rows, (columns of A, columns of B); 0 for scores of length 0.

    Components at the level of rounding may have length 0.
    """
    second, _ = solvers.about_the_mean(moments, center)
    squares = np.outer(np.einsum("ij,ij->j", A, second @ A), np.einsum("ij,ij->j", B, second @ B))
    products = np.abs(A.T @ second @ B)
    return np.divide(products, np.sqrt(np.maximum(squares, 0)), out=np.zeros_like(products), where=squares > 0)


def learning_curve(span: Span, center: bool, tolerance: float, own: float) -> Array:
    """(number, relative trace error) of models of every 8th, 4th and 2nd landmark, and of all landmarks, whose error is
    `own`.

    (4, 2), or fewer rows if a part of the landmarks spans nothing.
    """
    points, l = [], len(span.basis.W)  # noqa: E741
    for step in PARTS:
        try:
            part = span.every(step, tolerance)
        except DataError:
            continue
        variance = part.variance(center)
        if variance > 0:
            points.append((part_size(l, step), min(max(part.trace_error / variance, 0.0), 1.0)))
    return np.array([*points, (l, own)])


def stability_of_landmarks(
    span: Span, solution: Solution, center: bool, tolerance: float, in_order: Map = map
) -> Halved | None:
    """The model compared with Nyström with every other landmark; None without one.

    Cosines are over the fitted rows: for u = V A with coefficients A of the features, U_a'U_b = A_a' scatter A_b.
    """
    count, r = part_size(len(span.basis.W), 2), solution.components.shape[1]
    if count < 2:
        return None
    try:
        half = span.every(2, tolerance)
        few = solvers.nystroem(half, min(count, r + _SPARE), center=center, tolerance=tolerance, in_order=in_order)
    except DataError:  # half of the landmarks may span nothing that varies
        return None
    return _halved(span.moments, few.components, few.eigenvalues, solution, center)


def stability_of_features(
    method: Method, moments: Moments, features: FeatureMap, solution: Solution, center: bool, tolerance: float
) -> Halved | None:
    """The model compared with that of the same method with every other random feature; None without one."""
    parted = features.half()
    if parted is None or len(parted[1]) < 2:
        return None
    fewer, numbers = parted
    r = solution.components.shape[1]
    try:
        half = method.solve(moments.part(numbers), fewer, min(len(numbers), r + _SPARE), center, tolerance)
    except DataError:  # half of the features may not vary
        return None
    A = np.zeros((len(moments.mean), half.components.shape[1]))
    A[numbers] = half.components
    return _halved(moments, A, half.eigenvalues, solution, center)


def _halved(moments: Moments, A: Array, values: Array, solution: Solution, center: bool) -> Halved:
    """The model compared with components A with these eigenvalues."""
    cosines = np.minimum(_cosines(moments, A, solution.components, center).max(axis=0), 1)
    return Halved(cosines, values[len(cosines) :])
