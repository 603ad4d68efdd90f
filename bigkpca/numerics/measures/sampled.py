"""Estimates of the errors of a Gram matrix from its block at sampled rows."""

from __future__ import annotations

import numpy as np

from bigkpca.errors import Array


def sampled_norm(A: Array, n: int) -> float:
    """An estimate of |.|_F of a symmetric (n, n) matrix from its block A at m rows sampled uniformly.

    |.|_F² ≈ (n / m) Σ a_ii² + n (n - 1) / (m (m - 1)) Σ_{i≠j} a_ij², which is unbiased.

    Parameters
    ----------
    A : (m, m) array
        Rows and columns of the sampled numbers.
    n : int
        Rows of the whole matrix.

    Returns
    -------
    float
        In the units of A.

    References
    ----------
    `docs/numerics.md`, section 12.

    Examples
    --------
    >>> round(sampled_norm(np.array([[3.0, 4.0], [4.0, 3.0]]), 2) ** 2, 12)
    50.0
    """
    m = len(A)
    diagonal = float(np.sum(np.diag(A) ** 2))
    rest = float(np.sum(A**2)) - diagonal
    return float(np.sqrt(n / m * diagonal + (n * (n - 1) / (m * (m - 1)) * rest if m > 1 else 0.0)))


def sampled_matrix_error(K: Array, approximation: Array, eigenvalues: Array, n: int) -> float:
    """`matrix_error` from blocks at m rows sampled uniformly, with |K - K_k|² = |K|² - Σ lambda_j², not below zero.

    Parameters
    ----------
    K, approximation : (m, m) array
        The blocks of K and K^.
    eigenvalues : (k,) array
        The leading ones of the whole K.
    n : int
        Rows of the whole matrix.

    Returns
    -------
    float
        In the units of K; an estimate, which may be negative.

    References
    ----------
    The thesis, section 4.1; `docs/numerics.md`, section 12.

    Examples
    --------
    >>> K = np.diag([3.0, 2.0])
    >>> abs(sampled_matrix_error(K, np.diag([3.0, 0.0]), [3.0], 2)) < 1e-12
    True
    """
    return sampled_norm(K - approximation, n) - _sampled_best(K, eigenvalues, n)


def sampled_relative_accuracy(K: Array, approximation: Array, eigenvalues: Array, n: int) -> float:
    """`relative_accuracy` from blocks at m rows sampled uniformly, with |K - K_k|² = |K|² - Σ lambda_j².

    Parameters
    ----------
    K, approximation : (m, m) array
        The blocks of K and K^.
    eigenvalues : (k,) array
        The leading ones of the whole K.
    n : int
        Rows of the whole matrix.

    Returns
    -------
    float
        A ratio; an estimate, which may exceed 1.

    References
    ----------
    The thesis, section 4.1; `docs/numerics.md`, section 12.

    Examples
    --------
    >>> K = np.diag([3.0, 2.0])
    >>> round(sampled_relative_accuracy(K, np.diag([3.0, 0.0]), [3.0], 2), 12)
    1.0
    """
    return _sampled_best(K, eigenvalues, n) / sampled_norm(K - approximation, n)


def _sampled_best(K: Array, eigenvalues: Array, n: int) -> float:
    """|K - K_k|_F from the block K (m, m) at sampled rows and the leading eigenvalues (k,) of the whole matrix."""
    return float(np.sqrt(max(sampled_norm(K, n) ** 2 - float(np.sum(np.asarray(eigenvalues) ** 2)), 0.0)))
