"""Eigenproblems of landmarks and of random features: from moments to components and eigenvalues."""

from __future__ import annotations

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics import lanczos
from bigkpca.numerics.eigenpairs import Solution, at_least_its_parts, kept_components, negative_share, spectrum
from bigkpca.numerics.linalg import Map, eigh_descending, numerical_rank, signs
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Span, basis_of, eigenvector_basis

_TILE_ROWS = 512


def nystroem(
    span: Span, components: int | float | None, *, center: bool, tolerance: float, in_order: Map = map
) -> Solution:
    """Orthogonalised Nyström: exact PCA in the span of the landmarks in feature space.

        P'W P = I,  P' scatter P = V Λ V',  components = P V,  eigenvalues = Λ.

    These are the eigenpairs of H C W⁺ C' H with C = k(X, S), computed without vectors of length n; Λ_j <= λ_j for
    positive semidefinite kernels. The total variance is Σ k(x_i, x_i) - n m' W⁺ m >= tr(Kc), m = mean of v.

    P is the basis of `span`. Where W has negative eigenvalues, P'W P = J of entries ±1, and with Z = H C P and
    R = (Z'Z)^(1/2) = (P' scatter P)^(1/2),

        R J R = B Λ B',  components = P R^(-1) B Λ^(1/2)

    for the positive Λ, since H C W⁺ C' H = Z J Z' has the eigenvectors Z R^(-1) B. With every row a landmark this is
    the positive part of H K H; without the negative part of W it would be that of H K₊ H.

    `components` is a number, a share of the total variance in (0, 1), or None for the numerical rank. Raises
    DataError where no direction varies. Source: `docs/numerics.md`, sections 1 and 7.
    """
    M, _ = about_the_mean(span.coordinates, center)
    if span.basis.indefinite:
        values, V = _indefinite_pairs(M, span.basis.signs, tolerance)
    else:
        values, V = _leading_pairs(M, components, in_order)
    variance = at_least_its_parts(span.variance(center), values)
    r = kept_components(values, components, variance, span.moments.trace, tolerance)
    _, mean = about_the_mean(span.moments, center)
    A = span.basis.P @ V[:, :r]
    A *= signs_at_landmarks(span, mean, A)
    negative = negative_share(values) if span.basis.indefinite else 0.0
    return Solution(mean, A, values[:r].copy(), variance, negative, span.unexplained)


def signs_at_landmarks(span: Span, mean: Array, A: Array) -> Array:
    """The signs that make the score of largest absolute value at the landmarks positive, (r,)."""
    W = span.basis.W
    tiles = (slice(start, start + _TILE_ROWS) for start in range(0, len(W), _TILE_ROWS))
    return signs(np.concatenate([(W[tile] - mean) @ A for tile in tiles]))


def _leading_pairs(M: Array, components: int | float | None, in_order: Map) -> tuple[Array, Array]:
    """The eigenpairs of a positive semidefinite M (m, m): as many as there are components, or all."""
    count = components if isinstance(components, int) else None
    if count is not None and lanczos.are_few(count, len(M)):
        found = lanczos.leading(M, count, float(np.diag(M).max()), in_order)
        if found is not None:
            return found
    return eigh_descending(M.copy(), count)


def _indefinite_pairs(M: Array, J: Array, tolerance: float) -> tuple[Array, Array]:
    """Eigenvalues Λ of R J R, descending, R = M^(1/2) (m, m), and R^(-1) B Λ^(1/2) of its eigenvectors B, (m, q).

    The vectors are zero where Λ is negative.
    """
    squares, U = eigh_descending(M.copy())
    kept = numerical_rank(squares, tolerance)
    roots, U = np.sqrt(squares[:kept]), U[:, :kept]
    UJU = U.T @ (J[:, None] * U)
    values, B = eigh_descending(roots[:, None] * UJU * roots)
    return values, (U / roots) @ (B * np.sqrt(np.maximum(values, 0)))


def nystroem_map(W: Array, tolerance: float, rank: int | None = None) -> Array:
    """P (l, m) with C W⁺ C' = (C P)(C P)' for a positive semidefinite W; otherwise for its positive part.

    With a `rank`, of W cut to its `rank` largest eigenvalues.
    """
    basis = basis_of(W, tolerance) if rank is None else eigenvector_basis(W, tolerance)
    return basis.P[:, basis.signs > 0][:, :rank]


def about_the_mean(moments: Moments, center: bool) -> tuple[Array, Array]:
    """Second moments (D, D), and the vector (D,) that scores subtract: about the mean when centred, else about zero."""
    if center:
        return moments.scatter, moments.mean
    return moments.about_zero, np.zeros_like(moments.mean)


def _centred_landmarks(A: Array, center: bool) -> Array:
    """H A H with H = I - 11'/l, symmetric: the landmarks stand for all rows, which holds for uniform ones."""
    if center:
        A = A - A.mean(axis=0)
        A -= A.mean(axis=1)[:, None]
    return (A + A.T) / 2


def column_sampling(span: Span, components: int | float | None, *, center: bool, tolerance: float) -> Solution:
    """Column sampling: singular values of the sampled columns C, scaled by √(n / l); uniform landmarks only.

        H_l (C'C - n m m') H_l = V D² V',  eigenvalues = √(n / l) D,  components = H_l V √eigenvalues / D,

    H_l = I - 11'/l; without it and without m when not centred. Eigenvalues are nearly unbiased, not lower bounds.
    Singular values have no signs: where W is indefinite, columns v of V with v'H_l W H_l v < 0 belong to negative
    eigenvalues and are dropped. Raises DataError where no direction varies. Source: `docs/numerics.md`, section 8.
    """
    n, l, W = span.moments.count, len(span.basis.W), span.basis.W  # noqa: E741
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
    return (moments.count / len(V)) ** 0.25 * V[:, :kept] / squares[:kept] ** 0.25


def nystroem_thesis(
    span: Span,
    components: int | float | None,
    *,
    rank: int | None,
    center: bool,
    tolerance: float,
) -> Solution:
    """Nyström as Williams and Seeger extend it: columns not orthogonalised, W cut to its `rank` first; for replication.

        H_l W H_l = B diag(a) B',  eigenvalues = (n / l) a,  u(x) = √(l / n) (k_S(x) - w)'B / a,

    scores √eigenvalues u(x); H_l = I - 11'/l and w = W 1 / l, or I and 0 when not centred. Score columns are not
    orthogonal, and `nystroem` has smaller errors at the same cost. Source: `docs/numerics.md`, section 8.
    """
    n, l, W = span.moments.count, len(span.basis.W), span.basis.W  # noqa: E741
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


def plain(
    moments: Moments,
    components: int | float | None,
    *,
    unexplained: float = 0.0,
    center: bool,
    tolerance: float,
    in_order: Map = map,
) -> Solution:
    """Kernel PCA as PCA of random features v, with K ≈ ZZ' + unexplained · I:

        scatter = V Λ V',  components = V,  eigenvalues = Λ + unexplained.

    The total variance Σ k(x_i, x_i) - n |m|² is unbiased for tr(Kc). Raises DataError where no direction varies.
    """
    second, mean = about_the_mean(moments, center)
    values, V = _leading_pairs(second, components, in_order)
    return spectrum(values, V, mean, moments.count, moments.trace, components, unexplained, tolerance)
