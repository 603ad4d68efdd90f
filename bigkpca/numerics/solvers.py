"""Eigenproblems of landmarks and of random features: from moments to components and eigenvalues, dense or by Krylov
iteration.

One action is one pass over the data: A Q = Σ (v_i - m)(v_i - m)'Q is a sum over rows, (D, b), for any block Q (D, b).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np
import scipy

from bigkpca.errors import Array, check_overflow
from bigkpca.numerics.array_api import astype, dtype_of, empty, in_numpy, inner_products, moved, on_host
from bigkpca.numerics.eigenpairs import (
    Components,
    Solution,
    at_least_its_parts,
    check_some_positive,
    kept_components,
    negative_share,
    orthogonal_to_ones,
    spectrum,
)
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import (
    eigh_descending,
    leading_pairs,
    numerical_rank,
    rounding_of_eigenvalues,
    signs,
    values_if_negative,
)
from bigkpca.numerics.moments import Moments, added_pieces, weighted_tiles
from bigkpca.numerics.span import Span, basis_of

OVERSAMPLING = 10
PASSES = 4
_ROUNDING = 1e-13
_SUMMED = 128  # products that are added up in their dtype


@dataclass(frozen=True)
class Action:
    """Sums of feature rows v_i with weights w_i and a block Q (D, b) about a fixed `shift`, all in float64, which the
    blocks of a pass add up; count, weight and trace as in `Moments`."""

    count: int
    weight: float
    total: Array  # Σ w_i (v_i - shift), (D,)
    products: Array  # Σ w_i (v_i - shift)(v_i - shift)'Q, (D, b)
    trace: float
    squares: float  # Σ w_i |v_i - shift|²

    def __add__(self, other: Action) -> Action:
        """Sums of both sets of rows together."""
        return Action(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def mean(self, shift: Array) -> Array:
        """Mean of v, (D,)."""
        return shift + self.total / self.weight

    def applied(self, Q: Array, shift: Array, center: bool) -> Array:
        """Scatter about the mean (or about zero) times Q, (D, b)."""
        deviation = self.total / self.weight
        image = self.products - np.outer(self.total, deviation @ Q)
        if not center:
            m = self.mean(shift)
            image += np.outer(self.weight * m, m @ Q)
        return image

    def squares_about_zero(self, shift: Array) -> float:
        """Σ w_i |v_i|²."""
        return self.squares + 2 * float(self.total @ shift) + self.weight * float(shift @ shift)


def block_action(
    tiles: Iterable[tuple[Array, Array]], shift: Array, Q: Array, weights: Iterable[Array] | None = None
) -> Action:
    """The sums of one block, one tile (V (b, D), k(x_i, x_i) (b,)) at a time, with the weights (b,) of the rows of
    each, which are 1 by default. Tiles are overwritten."""
    count, weight, trace, squares = 0, 0.0, 0.0, 0.0
    total: Array = np.zeros(len(shift))
    products: Array = np.zeros(Q.shape)
    rounded = right = np.empty(0)
    for V, diagonal, w in weighted_tiles(tiles, weights):
        dtype = dtype_of(V)
        if not rounded.shape[0] or dtype_of(rounded) != dtype:
            rounded, right = moved(shift.astype(dtype), V), moved(Q.astype(dtype), V)
            total, products = moved(total, V), moved(products, V)
        V -= rounded
        w = np.ones(V.shape[0]) if w is None else w
        roots = moved(np.sqrt(w).astype(dtype), V)
        if weights is not None:
            V *= roots[:, None]
        for own in added_pieces(V):
            products += V[own, :].T @ (V[own, :] @ right)
            total += roots[own] @ V[own, :]
        squares += float(on_host(inner_products(V, V)).sum(dtype=np.float64))
        count, weight = count + V.shape[0], weight + float(w.sum())
        trace += float(w @ diagonal)
    return Action(count, weight, on_host(total), on_host(products), trace, squares)


@dataclass(frozen=True)
class Ritz:
    """Approximate leading eigenpairs of A."""

    values: Array  # (r,), descending
    vectors: Array  # (D, r), orthonormal
    residuals: Array  # |A u - value u| / value, (r,)
    products: int  # their number
    lowest: float  # Ritz value so far, an upper bound of the lowest eigenvalue of A

    def worst(self, floor: float) -> float:
        """The largest residual of values above `floor` times the largest; infinity if no value is positive."""
        positive = self.values[0] > 0
        counted = self.values > floor * self.values[0]
        return float(self.residuals.max(initial=0.0, where=counted)) if positive else np.inf


def leading_eigenpairs(
    apply: Callable[[Array], Array],
    start: Array,
    count: int,
    *,
    most: int = PASSES,
    tol: float = 0.0,
    floor: float = 0.0,
    on_iteration: Callable[[Ritz], None] = lambda _: None,
) -> Ritz:
    """The `count` largest eigenpairs of a symmetric operator on R^D whose leading part is positive.

    Calls apply(Q (D, b)) -> A Q at most `most` times, until the residuals of all pairs are at most `tol`, except those
    of values below `floor` times the largest. Starts from the span of `start` (D, b), b >= count, with Rayleigh-Ritz in
    the span of all blocks so far (block Krylov, Musco and Musco 2015): values are lower bounds, and converge far faster
    than power iteration with the same number of products. After four blocks it restarts from the b best vectors.
    `on_iteration` receives the result of every step. Memory: about 12 D b float64.
    """
    basis = np.linalg.qr(start)[0]
    width, blocks = basis.shape[1], 1
    images = apply(basis)
    found = rayleigh_ritz(basis, images, count, 1)
    on_iteration(found)
    while found.products < most and found.worst(floor) > tol:
        Q = next_block(basis, images[:, -width:])
        if not Q.shape[1] or blocks * width >= len(start):  # no more blocks fit into R^D
            break
        if basis.shape[1] >= PASSES * width:
            S = _rotation(basis, images)[1][:, :width]
            basis, images, blocks = basis @ S, images @ S, 1
        basis, images, blocks = np.hstack([basis, Q]), np.hstack([images, apply(Q)]), blocks + 1
        lowest, found = found.lowest, rayleigh_ritz(basis, images, count, found.products + 1)
        found = replace(found, lowest=min(found.lowest, lowest))  # a restart drops the low end of the spectrum
        on_iteration(found)
    return found


def starting_block(D: int, width: int, rng: np.random.Generator) -> Array:
    """Orthonormal columns in uniformly random directions, (D, width)."""
    return np.linalg.qr(rng.standard_normal((D, width)))[0]


def next_block(basis: Array, image: Array) -> Array:
    """Orthonormal columns that span what the image adds to the basis; at most D columns including the basis."""
    floor = _ROUNDING * float(np.linalg.norm(image))
    for _ in range(2):  # a single orthogonalisation leaves rounding errors
        image = image - basis @ (basis.T @ image)
        image, R, _ = scipy.linalg.qr(image, mode="economic", pivoting=True, check_finite=False)
        image = image[:, np.abs(np.diag(R)) > floor]
        floor = _ROUNDING  # columns have unit length from here on
    return image[:, : max(0, len(basis) - basis.shape[1])]


def _rotation(basis: Array, images: Array) -> tuple[Array, Array]:
    """Ritz values (b,), descending, and the coefficients (b, b) of the Ritz vectors in the basis."""
    T = basis.T @ images
    return eigh_descending((T + T.T) / 2)


def rayleigh_ritz(basis: Array, images: Array, count: int, products: int = 0) -> Ritz:
    """The `count` leading Ritz pairs in the span of `basis`, given its images under the operator."""
    all_values, S = _rotation(basis, images)
    S = S[:, :count]
    vectors, moved = basis @ S, images @ S
    values = np.einsum("ij,ij->j", vectors, moved)
    for column, value, vector in zip(moved.T, values, vectors.T, strict=True):  # saves a third block of this size
        column -= value * vector
    norms = np.sqrt(np.einsum("ij,ij->j", moved, moved))
    residuals = np.divide(norms, values, out=np.full(len(values), np.inf), where=values > 0)
    return Ritz(values, vectors, residuals, products, float(all_values[-1]))


_TILE_ROWS = 512


def nystroem(span: Span, components: Components, *, center: bool, tolerance: float) -> Solution:
    """Orthogonalised Nyström: exact PCA in the span of the landmarks in feature space.

        P'W P = I,  P' scatter P = V Λ V',  components = P V,  eigenvalues = Λ.

    These are the eigenpairs of H C W⁺ C' H with C = k(X, S), computed without vectors of length n; Λ_j <= λ_j for
    positive semidefinite kernels. The total variance is Σ k(x_i, x_i) - n m' W⁺ m >= tr(Kc), m = mean of v.

    P is the basis of `span`, and `components` are as in `Method.solve`. If W has negative eigenvalues, P'W P = J with
    entries ±1, and with Z = H C P and R = (Z'Z)^(1/2) = (P' scatter P)^(1/2),

        R J R = B Λ B',  components = P R^(-1) B Λ^(1/2)

    for the positive Λ, since H C W⁺ C' H = Z J Z' has the eigenvectors Z R^(-1) B. With every row a landmark this is
    the positive part of H K H; without the negative part of W it would be that of H K₊ H.
    Source: `docs/numerics.md`, sections 1 and 7.
    """
    M, _ = about_the_mean(span.coordinates, center)
    if span.basis.indefinite:
        squares, U = eigh_descending(M.copy())
        kept = numerical_rank(squares, tolerance)
        roots, U = np.sqrt(squares[:kept]), U[:, :kept]
        UJU = U.T @ (span.basis.signs[:, None] * U)
        values, B = eigh_descending(roots[:, None] * UJU * roots)
        V = (U / roots) @ (B * np.sqrt(np.maximum(values, 0)))
    else:
        values, V = _leading(M, components)
    variance = at_least_its_parts(span.variance(center), values)
    r = kept_components(values, components, variance, span.moments.trace, tolerance)
    _, mean = about_the_mean(span.moments, center)
    A = span.basis.P @ V[:, :r]
    A *= signs_at_landmarks(span, mean, A)
    negative = negative_share(values) if span.basis.indefinite else 0.0
    return Solution(mean, A, values[:r].copy(), variance, negative, span.unexplained)


def _leading(M: Array, components: Components) -> tuple[Array, Array]:
    """The eigenpairs of M (m, m): as many as there are components, or all."""
    return leading_pairs(M, components) if isinstance(components, int) else leading_pairs(M.copy(), None)


def signs_at_landmarks(span: Span, mean: Array, A: Array) -> Array:
    """The signs that make the score of largest absolute value at the landmarks positive, (r,)."""
    W = span.basis.W
    tiles = (slice(start, start + _TILE_ROWS) for start in range(0, len(W), _TILE_ROWS))
    return signs(np.concatenate([(W[tile] - mean) @ A for tile in tiles]))


def nystroem_map(W: Array, tolerance: float, *, positive: bool, rank: int | None = None) -> Array:
    """P (l, m) with C W⁺ C' = (C P)(C P)' for the positive part of W, or its `rank` largest eigenvalues."""
    basis = basis_of(W, tolerance, positive=positive and rank is None)
    return basis.P[:, basis.signs > 0][:, :rank]


def about_the_mean(moments: Moments, center: bool) -> tuple[Array, Array]:
    """Second moments (D, D), and the vector (D,) that scores subtract: about the mean when centred, else about zero."""
    if center:
        return moments.scatter, moments.mean
    return moments.about_zero, np.zeros_like(moments.mean)


def _centred_landmarks(A: Array, center: bool) -> Array:
    """H A H with H = I - 11'/l, symmetric: the landmarks represent all rows, which is valid for uniform ones."""
    if center:
        A = A - A.mean(axis=0)
        A -= A.mean(axis=1)[:, None]
    return (A + A.T) / 2


def column_sampling(span: Span, components: Components, *, center: bool, tolerance: float) -> Solution:
    """Column sampling: singular values of the sampled columns C, scaled by √(n / l); uniform landmarks only.

        H_l (C'C - n m m') H_l = V D² V',  eigenvalues = √(n / l) D,  components = H_l V √eigenvalues / D,

    H_l = I - 11'/l; without it and without m when not centred. Eigenvalues are nearly unbiased, not lower bounds.
    Singular values have no signs: if W is indefinite, columns v of V with v'H_l W H_l v < 0 belong to negative
    eigenvalues and are dropped. Source: `docs/numerics.md`, section 8.
    """
    n, l, W = span.moments.weight, len(span.basis.W), span.basis.W  # noqa: E741
    second, mean = about_the_mean(span.moments, center)
    squares, V = eigh_descending(_centred_landmarks(second, center))
    D = np.sqrt(np.maximum(squares, 0))
    # D is computed from D², so its tolerance is the square root of that for eigenvalues.
    kept = np.arange(numerical_rank(squares, tolerance))
    negative = 0.0
    if span.basis.indefinite and len(kept):
        positive = np.einsum("ij,ij->j", V[:, kept], _centred_landmarks(W, center) @ V[:, kept]) > 0
        negative = -float(D[kept[~positive]].max(initial=0.0) / D[0])
        kept = kept[positive]
    D, V = D[kept], V[:, kept]
    values = np.sqrt(n / l) * D
    variance = at_least_its_parts(span.variance(center), values)
    r = kept_components(values, components, variance, span.moments.trace, 0.0)
    A = V[:, :r] * (np.sqrt(values[:r]) / D[:r])  # H_l V = V, since V belongs to positive eigenvalues
    A *= signs_at_landmarks(span, mean, A)
    return Solution(mean, A, values[:r].copy(), variance, negative, span.unexplained)


def column_sampling_map(moments: Moments, tolerance: float) -> Array:
    """P (l, m) with √(n / l) C ((C'C)^(1/2))⁺ C' = (C P)(C P)': (n / l)^(1/4) V D^(-1/2)."""
    squares, V = eigh_descending(about_the_mean(moments, center=False)[0])
    kept = numerical_rank(squares, tolerance)
    return (moments.weight / len(V)) ** 0.25 * V[:, :kept] / squares[:kept] ** 0.25


def nystroem_thesis(
    span: Span, components: Components, *, rank: int | None, center: bool, tolerance: float
) -> Solution:
    """Nyström as extended by Williams and Seeger: columns are not orthogonalised, W is first truncated to its `rank`;
    for replication.

        H_l W H_l = B diag(a) B',  eigenvalues = (n / l) a,  u(x) = √(l / n) (k_S(x) - w)'B / a,

    scores √eigenvalues u(x); H_l = I - 11'/l and w = W 1 / l, or I and 0 when not centred. Score columns are not
    orthogonal, and `nystroem` has smaller errors at the same cost. Source: `docs/numerics.md`, section 8.
    """
    n, l, W = span.moments.weight, len(span.basis.W), span.basis.W  # noqa: E741
    a, B = eigh_descending(_centred_landmarks(W, center), None if span.basis.indefinite else rank)
    negative = negative_share(a) if span.basis.indefinite else 0.0
    a = a[:rank][: numerical_rank(a[:rank], tolerance)]
    values = n / l * a
    variance = at_least_its_parts(span.variance(center), values)
    r = kept_components(values, components, variance, span.moments.trace, 0.0)
    A = B[:, :r] * np.sqrt(values[:r] * l / n) / a[:r]
    mean = W.mean(axis=0) if center else np.zeros(l)
    A *= signs_at_landmarks(span, mean, A)
    return Solution(mean, A, values[:r].copy(), variance, negative, span.unexplained)


def plain(moments: Moments, components: Components, *, added: float = 0.0, center: bool, tolerance: float) -> Solution:
    """Kernel PCA as PCA of random features v, with K ≈ ZZ' + added · I:

        scatter = V Λ V',  components = V,  eigenvalues = Λ + added.

    The total variance Σ k(x_i, x_i) - n |m|² is unbiased for tr(Kc).
    """
    second, mean = about_the_mean(moments, center)
    values, V = _leading(second, components)
    return spectrum(values, V, mean, moments, components, added, tolerance)


def add_strip(
    out: Array, kernel: Kernel, B: Array, rows: slice, X: Array, later: Iterable[tuple[slice, Array]], tile_rows: int
) -> None:
    """Add to out (n, c) the contributions to K B of the tiles K_II and K_IJ of rows I and all later rows J, in float64.

    X (b, d) are the rows I, numbered `rows`; `later` yields (numbers, rows) of the others in order. B (n, c) has the
    dtype of X; tiles have at most `tile_rows` rows. All arrays are in the same library.
    """
    evaluate = kernel.against_anywhere(X, tile_rows)
    work = empty((tile_rows, X.shape[0]), X)
    for numbers, Y in chain([(rows, X)], later):
        for start in range(0, Y.shape[0], tile_rows):
            piece = Y[start : min(start + tile_rows, Y.shape[0]), :]
            K = work[: piece.shape[0], :]
            evaluate(piece, K)
            where = slice(numbers.start + start, numbers.start + start + piece.shape[0])
            out[rows, :] += _product(K.T, B[where, :])
            if numbers != rows:
                out[where, :] += _product(K, B[rows, :])


def _product(K: Array, B: Array) -> Array:
    """K B (m, c) in float64, for K (m, k) and B (k, c): at most 128 terms are added up in the dtype of K, since equal
    ones round alike, and a sum of n may be wrong by n / 4 eps. On a device all are in float64, in one call."""
    if not in_numpy(K):
        return astype(K, np.float64) @ astype(B, np.float64)
    found, part = np.zeros((len(K), B.shape[1])), np.empty((len(K), B.shape[1]), K.dtype)
    for start in range(0, len(B), _SUMMED):
        piece = slice(start, start + _SUMMED)
        found += np.matmul(K[:, piece], B[piece], out=part)
    return found


def gram(
    K: Array, components: Components, *, center: bool, tolerance: float, positive: bool, noise: float | None = None
) -> Solution:
    """Exact kernel PCA from the full Gram matrix K (n, n), float64, exactly symmetric, which is overwritten.

        Kc = H K H = U Λ U',  components = U Λ^(-1/2),  eigenvalues = Λ,  mean = K 1 / n.

    A new row has the scores (k(x, X) - mean) @ components. Only the leading part of the spectrum is computed for a
    number of `components`, unless the kernel is not `positive` semidefinite and an eigenvalue is below -`noise`. Raises
    DataError if kernels overflow, or no eigenvalue is positive.
    """
    entry = float(max(K.max(), -K.min()))
    check_overflow(np.array(entry), "the Gram matrix")
    trace, mean = float(np.trace(K)), np.zeros(len(K))
    for _ in range(2 * center):  # twice: the means of nearly equal rows have nearly equal rounding errors
        part = K.mean(axis=0)
        K -= part
        K -= (part - part.mean())[:, None]
        mean += part
    variance = float(np.trace(K))
    most = components if isinstance(components, int) else None
    shift = rounding_of_eigenvalues(len(K), 0.0, entry, 0.0) if noise is None else noise
    values, U = leading_pairs(K, most)
    every = values if most is None or positive else values_if_negative(K, shift)
    lowest = 0.0 if every is None else min(float(every[-1]), 0.0)
    check_some_positive(values[0], lowest, shift)
    variance = at_least_its_parts(variance, values if every is None else every)
    r = kept_components(values, components, variance, trace, tolerance)
    A = orthogonal_to_ones(U[:, :r], center) / np.sqrt(values[:r]) * signs(U[:, :r])
    return Solution(mean, A, values[:r].copy(), variance, min(lowest / float(values[0]), 0.0))
