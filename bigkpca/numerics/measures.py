"""Measures of an approximation: those of the thesis (its section 4.1), coherence and leverage.

For n that fits they take whole matrices; for n that does not, Gram matrices of m rows sampled uniformly.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import svdvals

from bigkpca.errors import Array
from bigkpca.numerics.linalg import eigh_descending, numerical_rank

_CUTOFF = 1e-12


def matrix_error(K: Array, approximation: Array, rank: int) -> float:
    """|K - K^|_F - |K - K_k|_F, K_k the best approximation of rank k; never negative for K^ of rank k."""
    return float(np.linalg.norm(K - approximation)) - best_error(K, rank)


def relative_accuracy(K: Array, approximation: Array, rank: int) -> float:
    """|K - K_k|_F / |K - K^|_F, at most 1 for K^ of rank k."""
    return best_error(K, rank) / float(np.linalg.norm(K - approximation))


def best_error(K: Array, rank: int) -> float:
    """|K - K_k|_F for the symmetric K (n, n)."""
    values = np.sort(np.abs(np.linalg.eigvalsh(K)))[::-1]
    return float(np.linalg.norm(values[rank:]))


def vector_agreement(U: Array, approximation: Array) -> Array:
    """|u_j'u^_j| of columns (n, r), at unit norm: 1 for the same direction, 0 for orthogonal ones, (r,)."""
    products = np.abs(np.einsum("ij,ij->j", U, approximation))
    return np.asarray(products / (np.linalg.norm(U, axis=0) * np.linalg.norm(approximation, axis=0)))


def eigenvalue_difference(eigenvalues: Array, approximation: Array) -> Array:
    """|lambda_j - lambda^_j|, (r,)."""
    return np.abs(np.asarray(eigenvalues) - np.asarray(approximation))


def eigenvalue_error(eigenvalues: Array, approximation: Array) -> float:
    """Mean over the r eigenvalues of |lambda_j - lambda^_j| / lambda_j; one that was not found counts as zero."""
    found = np.zeros(len(eigenvalues))
    found[: len(approximation)] = approximation[: len(eigenvalues)]
    return float(np.mean(np.abs(found - eigenvalues) / eigenvalues))


def score_error(Y: Array, approximation: Array) -> float:
    """min_B |Y - Y^ B|_F / |Y|_F: what no linear map of the scores Y^ (m, q) gives of the scores Y (m, r).

    Components count by their variance, and those that change places with close neighbours do not count at all; so the
    measure is smooth where the angle between the spans is at the mercy of the gap behind the last component.
    """
    B = np.linalg.lstsq(approximation, Y, rcond=None)[0]
    return float(np.linalg.norm(Y - approximation @ B) / np.linalg.norm(Y))


def column_projection(K: Array, numbers: Array, rank: int | None = None) -> Array:
    """C ((C'C)_k)⁺ C'K with C = K[:, numbers]: the projection form of column sampling, which needs K itself."""
    C = K[:, numbers]
    values, V = eigh_descending(C.T @ C)
    kept = min(numerical_rank(values, _CUTOFF), rank or len(values))
    basis = C @ (V[:, :kept] / np.sqrt(values[:kept]))
    return basis @ (basis.T @ K)


def nystroem_projection(K: Array, numbers: Array, rank: int | None = None) -> Array:
    """(l / n) C ((W²)_k)⁺ C'K with W = K[numbers, numbers]: the projection form of Nyström, which needs K itself."""
    C = K[:, numbers]
    values, V = eigh_descending(C[numbers].copy())
    kept = min(numerical_rank(values, _CUTOFF), rank or len(values))
    basis = C @ (V[:, :kept] / values[:kept])
    return len(numbers) / len(K) * (basis @ (basis.T @ K))


def sampled_norm(A: Array, n: int) -> float:
    """|.|_F of a symmetric n x n matrix from its block A (m, m) at m rows sampled uniformly; its square is unbiased.

    Entries on the diagonal stand for n, the others for n (n - 1).
    """
    m = len(A)
    diagonal = float(np.sum(np.diag(A) ** 2))
    rest = float(np.sum(A**2)) - diagonal
    return float(np.sqrt(n / m * diagonal + (n * (n - 1) / (m * (m - 1)) * rest if m > 1 else 0.0)))


def sampled_matrix_error(K: Array, approximation: Array, eigenvalues: Array, n: int) -> float:
    """`matrix_error` from blocks (m, m) at sampled rows; `eigenvalues` are the leading k of the whole K.

    |K - K_k|² = |K|² - Σ lambda_j², clipped at zero.
    """
    return sampled_norm(K - approximation, n) - _sampled_best(K, eigenvalues, n)


def sampled_relative_accuracy(K: Array, approximation: Array, eigenvalues: Array, n: int) -> float:
    """`relative_accuracy` from blocks (m, m) at sampled rows; `eigenvalues` are the leading k of the whole K."""
    return _sampled_best(K, eigenvalues, n) / sampled_norm(K - approximation, n)


def _sampled_best(K: Array, eigenvalues: Array, n: int) -> float:
    return float(np.sqrt(max(sampled_norm(K, n) ** 2 - float(np.sum(np.asarray(eigenvalues) ** 2)), 0.0)))


def leverage(scores: Array, eigenvalues: Array) -> Array:
    """|row i of U|² with U = scores / sqrt(eigenvalues), the unit eigenvectors: (b,) for scores (b, r) of any rows.

    Over all n rows they add up to r.
    """
    return np.asarray(np.einsum("ij,j->i", scores.astype(np.float64) ** 2, 1 / eigenvalues))


def coherence(leverages: Array, r: int) -> float:
    """gamma = (n / r) max_i leverage_i, between 1 and n / r: below about 10, uniform landmarks serve well."""
    return float(len(leverages) / r * np.max(leverages))


def largest_coherence(U: Array) -> float:
    """mu = sqrt(n) max |U_ij| of orthonormal columns U (n, r)."""
    return float(np.sqrt(len(U)) * np.abs(U).max())


def subspace_cosine(U: Array, V: Array) -> float:
    """The cosine of the largest principal angle between the spans of the columns of U and V, (n, r) each."""
    return float(svdvals(np.linalg.qr(U)[0].T @ np.linalg.qr(V)[0])[-1])
