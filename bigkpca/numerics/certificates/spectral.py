"""Bounds on what landmarks miss, from the residual matrix of sampled rows, and the stability of components.

Source: `docs/numerics.md`, section 14.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics import solvers
from bigkpca.numerics.certificates.sampling import ResidualSample
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.methods import Method
from bigkpca.numerics.moments import Moments, represented
from bigkpca.numerics.rounding import farthest
from bigkpca.numerics.solvers import Ritz, next_block, rayleigh_ritz
from bigkpca.numerics.span import PARTS, Basis, Span, part_size

_TILE_ROWS = 512
_PRODUCT_ROWS = 128  # so that their copy in float64 stays in cache


@dataclass(frozen=True)
class SampledError:
    """E = K - C P P'C' of sampled rows, (m, m), in the dtype of block work, and the probabilities (m,) of these rows.

    F_ij = E_ij / (p_i p_j)^(1/2). kernels (m,): the diagonal of K, float64. C (m, l): kernels with the landmarks.
    roots (m,): of the weights of the rows, √w. E, kernels and scores are those of √w_i k(x_i, x_j) √w_j. rounding: a
    bound of the norm of the error of F.
    """

    E: Array
    C: Array
    kernels: Array
    probabilities: Array
    roots: Array
    rounding: float = 0.0

    def times(self, Q: Array, in_order: Map = map) -> Array:
        """E Q (m, b), float64."""

        def tile(start: int) -> Array:
            return self.E[start : start + _PRODUCT_ROWS].astype(np.float64) @ Q

        with _quiet():
            return np.concatenate(list(in_order(tile, range(0, len(Q), _PRODUCT_ROWS))))

    def squares_times(self, Q: Array, in_order: Map = map) -> Array:
        """The squares of the entries of E, times Q (m, b), in the dtype of E."""
        Q = Q.astype(self.E.dtype)

        def tile(start: int) -> Array:
            with _quiet():
                return np.square(self.E[start : start + _TILE_ROWS]) @ Q

        return np.concatenate(list(in_order(tile, range(0, len(Q), _TILE_ROWS))))

    def scaled_times(self, Q: Array, in_order: Map = map) -> Array:
        """F Q (m, b), float64."""
        weights = 1 / np.sqrt(self.probabilities)[:, None]
        return weights * self.times(weights * Q, in_order)

    def scores(self, solution: Solution, in_order: Map = map) -> Array:
        """The scores (m, r) of these rows, float64."""

        def tile(start: int) -> Array:
            own = slice(start, start + _TILE_ROWS)
            with _quiet():
                return self.roots[own, None] * ((self.C[own] - solution.mean) @ solution.components)

        return np.concatenate(list(in_order(tile, range(0, len(self.C), _TILE_ROWS))))

    @property
    def diagonal(self) -> Array:
        """The diagonal of E (m,), float64, not below zero."""
        return np.maximum(np.diagonal(self.E).astype(np.float64), 0)

    def cluster(self, eigenvalue: float, vector: Array) -> float:
        """The eigenvalue of an eigenvector of F, if it belongs to several rows that are similar to each other but to no
        landmark; else 0."""
        several, weights = 1 / float(np.sum(vector**4)), vector**2  # rows that share it (participation ratio)
        alike = eigenvalue > _ALIKE * several * float(weights @ (self.kernels / self.probabilities))
        if several < _LEAST_ROWS or not alike:
            return 0.0
        unseen = float(weights @ (self.diagonal > _UNSEEN * self.kernels)) > _UNSEEN
        return eigenvalue if unseen else 0.0

    @property
    def in_common(self) -> bool:
        """Whether these rows have in common what the landmarks leave of them.

        The landmarks leave e_i of row i in feature space, <e_i, e_j> = E_ij. The square of the mean of all e is

            U = Σ over i ≠ j of E_ij / (m (m - 1)),   with the standard error √(2 Σ over i ≠ j of E_ij²) / (m (m - 1))

        without bias, however few rows there are; the standard error is that for a mean of zero. For rows like those
        that landmarks were chosen from, the mean is nearly zero. Source: Gretton et al. (2012), JMLR 13.
        """
        m = len(self.E)
        between = self.E - np.diag(np.diagonal(self.E))
        pairs = max(m * (m - 1), 1)
        error = np.sqrt(2 * np.sum(between**2)) / pairs
        return bool(between.sum() / pairs > max(_COMMON * self.kernels.mean(), _SURE * error))


def sampled_error(
    features: KernelRows,
    basis: Basis,
    X: Array,
    probabilities: Array,
    in_order: Map = map,
    weights: Array | None = None,
) -> SampledError:
    """E of rows X (m, d) in the units of the data, with these weights (m,), in the dtype of block work."""
    rows, kernel = features.shifted(X), features.kernel
    m, diagonal = len(X), kernel.diagonal(rows)
    roots = np.ones(m) if weights is None else np.sqrt(weights)
    in_blocks = roots.astype(features.dtype)
    C, B = np.empty((m, features.size), features.dtype), np.empty((m, len(basis.signs)), features.dtype)

    def coordinates(project: Callable[[Array], Array], start: int) -> Array:
        own = slice(start, start + _TILE_ROWS)
        with _quiet():
            C[own] = kernel(rows[own], features.landmarks)
            B[own] = project(C[own])
        return B[own]

    def tile(start: int) -> Array:  # the rows of a tile to the left of the diagonal, and their transpose above it
        own = slice(start, min(start + _TILE_ROWS, m))
        evaluate = kernel.against(rows[own], _TILE_ROWS)
        K = np.empty((_TILE_ROWS, own.stop - start), features.dtype)
        with _quiet():
            for first in range(0, own.stop, _TILE_ROWS):
                others = slice(first, min(first + _TILE_ROWS, own.stop))
                piece = K[: others.stop - first]
                evaluate(rows[others], piece)
                if first == start:
                    np.fill_diagonal(piece, diagonal[own])
                piece -= B[others] @ B[own].T
                if weights is not None:
                    piece *= in_blocks[others, None] * in_blocks[own]
                E[others, own], E[own, others] = piece, piece.T
        return E[own]

    starts = range(0, m, _TILE_ROWS)
    with _quiet():
        project = basis.projection(features.dtype)
    for _ in in_order(partial(coordinates, project), starts):
        pass
    del project  # before E is allocated, which is large
    E = np.empty((m, m), features.dtype)
    for _ in in_order(tile, starts[::-1]):  # the longest first
        pass
    return SampledError(E, C, roots**2 * diagonal, probabilities, roots)


def _quiet() -> np.errstate:
    """Suppress warnings about overflow, which is checked afterwards."""
    return np.errstate(over="ignore", invalid="ignore")  # set in every thread, as settings are per thread


CONFIDENCE = 0.95
_CALIBRATING_ROWS = 64
_SAFETY = 4  # times the measured rounding
_COARSE = 0.05  # of the norm: with more rounding in float32, work is in float64
_NEWTON_STEPS = 6
_WIDTH, _PRODUCTS = 8, 10  # of the block Krylov space
_MISSED = 1e-4  # probability that the Krylov space misses more of the largest eigenvalue than is added to it
# A cluster without a landmark: least number of rows, least unexplained share of k(x, x), least mean similarity.
_LEAST_ROWS, _UNSEEN, _ALIKE = 3.0, 0.9, 0.5
# What rows have in common: least share of k(x, x), least number of standard errors.
_COMMON, _SURE = 0.0075, 8


@dataclass(frozen=True)
class SpectralError:
    """What sampled rows say of the largest eigenvalue of E.

    bound: an upper bound with a probability of 95 %; if all rows were sampled, the eigenvalue, raised by at most a
    tenth. norm: the largest eigenvalue of F, which is about that of E. cluster: the same if it belongs to rows that are
    similar to each other but to no landmark; else 0.
    """

    bound: float
    norm: float
    cluster: float = 0.0


def spectral_error(
    error: SampledError, sample: ResidualSample, rng: np.random.Generator, in_order: Map = map
) -> SpectralError:
    """The bound from the error of sampled rows:

        s = |F| / t,   |E| <= t p,   p the largest with  p - s + s ln(s / p) <= ln(1 / δ),   t = `sample.threshold`.

    E = (<e_i, e_j>). Row i contributes T_i = B_i <v, e_i>² / (p_i t), with B_i = 1 if it was drawn and v the direction
    in which the sum of all <v, e_i>² is |E|. So Σ T_i has the mean |E| / t and is at most s, and each T_i is in [0, 1],
    or certain: E exp(-c T_i) <= exp(-(1 - exp(-c)) E T_i), from which Chernoff's bound for Poisson variables follows.
    """
    found = largest_eigenvalue(partial(error.scaled_times, in_order=in_order), len(error.E), rng)
    if found is None:  # kernels of two far rows may overflow
        return SpectralError(np.inf, np.inf)
    norm, leading = found[0] + error.rounding, found[1]
    eigenvalue = float(leading.values[0])
    cluster = error.cluster(eigenvalue, leading.vectors[:, 0])
    if not sample.threshold:
        return SpectralError(norm, eigenvalue, cluster)
    bound = sample.threshold * upper_mean(norm / sample.threshold, 1 - CONFIDENCE - _MISSED)
    return SpectralError(bound, eigenvalue, cluster)


def upper_mean(s: float, allowed: float) -> float:
    """The largest p with p - s + s ln(s / p) <= ln(1 / allowed): an upper bound of the mean of a sum of independent
    numbers in [0, 1], of which s was found, with this probability of an error."""
    if not np.isfinite(s):
        return np.inf
    limit, s = -float(np.log(allowed)), max(float(s), 1e-300)
    # ln(1 + y) <= y - y² / (2 (1 + y)) for y > 0, so p - s is at most this:
    x = limit + float(np.sqrt(limit) * np.sqrt(limit + 2 * s))
    for _ in range(_NEWTON_STEPS):  # which come down to the root from above, since x - s ln(1 + x / s) is convex
        step = (x - s * np.log1p(x / s) - limit) / x * (s + x)
        x = min(max(x - step, limit), x)  # beyond s = 1e14 the step may be all rounding, and x hardly matters
    return (s + x) * (1 + 1e-6)


def error_of(
    features: KernelRows,
    span: Span,
    sample: ResidualSample,
    calibrating: Array,
    value: float,
    in_order: Map = map,
) -> SampledError:
    """E of the sampled rows, with its rounding.

    `value` is the largest error of a kernel value in float64. m² kernels are held in the dtype of block work, or in
    float64 if rounding would matter: other rows, `calibrating` (q, d), decide, so that the sample stays random.
    """
    X, p, weights, off = sample.X, sample.probabilities, sample.weights, 0.0
    if features.dtype != np.float64:
        few, far = calibrating[first_and_farthest(features, calibrating)], first_and_farthest(features, X)
        of_far = p[far] if weights is None else p[far] / weights[far]
        (off, norm), (of_drawn, _) = _off(features, span, [(few, np.ones(len(few))), (X[far], of_far)], in_order)
        if off * sample.most <= _COARSE * norm:
            off = max(off * span.moments.weight, of_drawn * len(X))
        else:
            features, off = features.in_precision(np.dtype(np.float64)), 0.0
    found = sampled_error(features, span.basis, X, p, in_order, weights)
    # With B = CP, the error of B B' is 2 |B| |P| |error of C|, in Frobenius norms, where |B|² is at most Σ k(x, x).
    weight = float(np.sum(found.roots**2 / p))
    through_P = 2 * np.sqrt(float(np.sum(found.kernels / p)) * weight * features.size) * np.linalg.norm(span.basis.P)
    return replace(found, rounding=off + _SAFETY * value * (weight + float(through_P)))


def first_and_farthest(features: KernelRows, X: Array) -> Array:
    """Numbers of at most 64 rows: the farthest ones, whose kernels have the largest errors, and the first ones."""
    far = farthest(features.shifted(X), _CALIBRATING_ROWS // 2)
    others = np.setdiff1d(np.arange(min(len(X), _CALIBRATING_ROWS)), far)[: _CALIBRATING_ROWS // 2]
    return np.concatenate([far, others])


def _off(features: KernelRows, span: Span, sets: list[tuple[Array, Array]], in_order: Map) -> list[tuple[float, float]]:
    """For each of some sets of rows X (b, d) with their probabilities (b,): the norm of the error of F in the dtype of
    block work, per row, times a safety factor; and the norm of E."""
    X, p = (np.concatenate(each) for each in zip(*sets, strict=True))
    maps, roots = (features.in_precision(np.dtype(np.float64)), features), np.sqrt(p)
    exact, found = in_order(lambda i: sampled_error(maps[i], span.basis, X, p).E, range(2))
    with _quiet():
        difference = (found - exact) / roots / roots[:, None]
    off, ends = [], np.cumsum([len(rows) for rows, _ in sets])
    for numbers in np.split(np.arange(len(X)), ends[:-1]):
        D, E = (each[np.ix_(numbers, numbers)] for each in (difference, exact))
        wrong = _SAFETY * float(np.linalg.norm(D, 2)) / len(D) if np.isfinite(D).all() else np.inf
        off.append((wrong, float(np.linalg.norm(E, 2)) if np.isfinite(E).all() else 0.0))
    return off


def estimate(
    features: FeatureMap,
    span: Span | None,
    X: Array,
    moments: Moments,
    center: bool,
    weights: Array | None = None,
) -> float:
    """|H R (K - K^) R H|_2 of rows X (q, d), in the units of the data, drawn by their weights (q,) from all rows with
    these moments and the sum n of weights. R = diag(√ρ) with the weight ρ that each row stands for, n / q without
    weights.

    Times 1 + 2 / √q unless all rows are drawn: an estimate of what is missed if K - K^ has either sign. `span` is that
    of landmarks, None for random features. At least what |tr(K - K^)|, known from all rows, exceeds that of rows like
    the sampled.
    """
    rows = features.shifted(X)
    ((V, _),) = features.tiles([X], len(X))
    V = V.astype(np.float64)
    E = features.kernel.gram(rows)
    q, n = len(X), moments.weight
    every = q >= moments.count and (weights is not None or n == moments.count)
    safety = 1.0 if every else 1 + 2 / np.sqrt(q)
    shares = np.full(q, n / q) if weights is None else represented(weights, n)
    unlike = 0.0
    if span is None:
        E -= V @ V.T
        # What the solver of rff-pca adds to every eigenvalue; zero for other features.
        E.flat[:: q + 1] -= features.unexplained(float(np.sum(V**2)), q)
    else:
        Z = V @ span.basis.P
        E -= (Z * span.basis.signs) @ Z.T
        unlike = abs(span.trace_error) - safety * float(shares @ np.abs(E.diagonal()))
    roots = np.sqrt(shares)
    E *= roots
    E *= roots[:, None]
    if center:
        unit = roots / np.linalg.norm(roots)
        E -= np.outer(unit, unit @ E)
        E -= np.outer(E @ unit, unit)
    if not np.isfinite(E).all():  # kernels overflow: all of K may be missed
        return float(np.abs(features.kernel.diagonal(rows).astype(np.float64)).max()) * n
    values = np.linalg.eigvalsh((E + E.T) / 2)
    return max(safety * float(np.abs(values).max()), unlike)


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


SPARE = 10  # components of another model beyond r, so that the r-th is not separated from a neighbour
SAME = 0.02  # of an eigenvalue: eigenvectors of values this close mix under the slightest change


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
    return np.where(apart > SAME * values[:, None], apart, np.inf).min(axis=1) / values


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
        same = np.abs(squares - squares[j]) <= SAME * squares[j]
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
        few = solvers.nystroem(half, min(count, r + SPARE), center=center, tolerance=tolerance, in_order=in_order)
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
        half = method.solve(moments.part(numbers), fewer, min(len(numbers), r + SPARE), center, tolerance)
    except DataError:  # half of the features may not vary
        return None
    A = np.zeros((len(moments.mean), half.components.shape[1]))
    A[numbers] = half.components
    return _halved(moments, A, half.eigenvalues, solution, center)


def _halved(moments: Moments, A: Array, values: Array, solution: Solution, center: bool) -> Halved:
    """The model compared with components A with these eigenvalues."""
    cosines = np.minimum(_cosines(moments, A, solution.components, center).max(axis=0), 1)
    return Halved(cosines, values[len(cosines) :])
