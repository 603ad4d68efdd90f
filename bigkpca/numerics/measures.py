"""Error measures of an approximation of kernel PCA, coherence and leverage.

K (n, n) is the Gram matrix and K^ its approximation. Formulas: `docs/numerics.md`, section 12. *The thesis* is the
master's thesis on random approximations of kernel PCA whose experiments `docs/sources.md` repeats; its section 4.1
defines measures. `bigkpca.evaluate` estimates errors from sampled rows where n is too large for whole matrices.

Examples
--------
>>> import numpy as np
>>> from bigkpca import kernels, measures
>>> X = np.linspace(0, 1, 6)[:, None]
>>> K = kernels.Gaussian(0.5).gram(X)
>>> measures.matrix_error(K, K, 1) < 0  # an approximation of full rank is better than the best of rank 1
True
>>> 0 < measures.relative_accuracy(K, K[:, :1] @ K[:1], 1) < 1  # Nyström with one landmark
True
"""

from __future__ import annotations

import numpy as np
import scipy

from bigkpca.errors import Array

__all__ = [
    "best_error",
    "coherence",
    "eigenvalue_error",
    "leverage",
    "matrix_error",
    "relative_accuracy",
    "score_error",
    "subspace_cosine",
    "vector_agreement",
]


def vector_agreement(U: Array, approximation: Array) -> Array:
    """|u_j'u^_j|, (r,), of columns scaled to unit norm: 1 for equal directions, 0 for orthogonal ones.

    U and `approximation`, both (n, r), are eigenvectors or scores, in columns of any length.
    """
    products = np.abs(np.einsum("ij,ij->j", U, approximation))
    return np.asarray(products / (np.linalg.norm(U, axis=0) * np.linalg.norm(approximation, axis=0)))


def eigenvalue_error(eigenvalues: Array, approximation: Array) -> float:
    """Mean over j of |lambda_j - lambda^_j| / lambda_j of positive `eigenvalues` (r,).

    Eigenvalues missing from the `approximation` (q,) count as zero; those beyond r are ignored. Source:
    `docs/numerics.md`, section 19.
    """
    found = np.zeros(len(eigenvalues))
    found[: len(approximation)] = approximation[: len(eigenvalues)]
    return float(np.mean(np.abs(found - eigenvalues) / eigenvalues))


def score_error(Y: Array, approximation: Array) -> float:
    """min_B |Y - Y^ B|_F / |Y|_F: the part of the scores Y that no linear map of the scores Y^ reproduces, in [0, 1].

    Y (m, r) are scores of the reference, `approximation` (m, q) are Y^, scores of the same rows. Exchanging two close
    components changes nothing, so the measure is smooth, while the angle between the spans depends on the gap after
    the last component. Source: `docs/numerics.md`, section 19.
    """
    B = np.linalg.lstsq(approximation, Y, rcond=None)[0]
    return float(np.linalg.norm(Y - approximation @ B) / np.linalg.norm(Y))


def subspace_cosine(U: Array, V: Array) -> float:
    """The cosine of the largest principal angle between the spans of the columns of U and V, both (n, r), of full rank.

    1 for equal spans, 0 if a direction of one is orthogonal to the other. Source: Björck and Golub (1973), *Math.
    Comp.* 27; `docs/numerics.md`, section 19.
    """
    return float(scipy.linalg.svdvals(np.linalg.qr(U)[0].T @ np.linalg.qr(V)[0])[-1])


def leverage(scores: Array, eigenvalues: Array) -> Array:
    """Leverage scores |row i of U|² = Σ_j y_ij² / lambda_j, (b,), with U = Y / √lambda the unit eigenvectors.

    `scores` (b, r) are Y, for any rows, and `eigenvalues` (r,) are lambda, positive. Over all n fitted rows the
    leverage scores add up to r. Source: Mohri and Talwalkar (2011), *AISTATS*.
    """
    return np.asarray(np.einsum("ij,j->i", scores.astype(np.float64) ** 2, 1 / eigenvalues))


def coherence(leverages: Array, r: int) -> float:
    """gamma = (n / r) max_i leverage_i for r components and the `leverages` (n,) of all rows, between 1 and n / r.

    Uniform landmarks work well if it is below about 10. Source: Mohri and Talwalkar (2011), *AISTATS*.
    """
    return float(len(leverages) / r * np.max(leverages))


def matrix_error(K: Array, approximation: Array, rank: int) -> float:
    """|K - K^|_F - |K - K_k|_F: how much worse K^ is than K_k, the best approximation of rank k.

    K and `approximation`, K^, are (n, n), K symmetric; `rank` is k. Never negative for K^ of rank k. Needs all
    eigenvalues of K, n³ operations.
    """
    return float(np.linalg.norm(K - approximation)) - best_error(K, rank)


def relative_accuracy(K: Array, approximation: Array, rank: int) -> float:
    """|K - K_k|_F / |K - K^|_F: at most 1 for K^ of rank k, and 1 for the best one, K_k; arguments as for
    `matrix_error`.
    """
    return best_error(K, rank) / float(np.linalg.norm(K - approximation))


def best_error(K: Array, rank: int) -> float:
    """|K - K_k|_F = √Σ_{j > k} lambda_j², eigenvalues of the symmetric K (n, n) by falling absolute value, k = `rank`.

    Source: Eckart and Young (1936), *Psychometrika* 1.
    """
    values = np.sort(np.abs(np.linalg.eigvalsh(K)))[::-1]
    return float(np.linalg.norm(values[rank:]))
