"""Errors of an approximation of the Gram matrix, from whole matrices."""

from __future__ import annotations

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.linalg import eigh_descending, numerical_rank

_CUTOFF = 1e-12  # rank tolerance of the projections


def matrix_error(K: Array, approximation: Array, rank: int) -> float:
    """|K - K^|_F - |K - K_k|_F: how much worse K^ is than K_k, the best approximation of rank k.

    Never negative for K^ of rank k. Needs all eigenvalues of K, n³ operations.

    Parameters
    ----------
    K, approximation : (n, n) array
        The Gram matrix, symmetric, and K^.
    rank : int
        k.

    Returns
    -------
    float
        In the units of K.

    References
    ----------
    The thesis, section 4.1; `docs/numerics.md`, section 12.

    Examples
    --------
    >>> matrix_error(np.diag([3.0, 2.0, 1.0]), np.diag([3.0, 0.0, 0.0]), 1)
    0.0
    """
    return float(np.linalg.norm(K - approximation)) - best_error(K, rank)


def relative_accuracy(K: Array, approximation: Array, rank: int) -> float:
    """|K - K_k|_F / |K - K^|_F: at most 1 for K^ of rank k, and 1 for the best one, K_k.

    Parameters
    ----------
    K, approximation : (n, n) array
        The Gram matrix, symmetric, and K^.
    rank : int
        k.

    Returns
    -------
    float
        A ratio.

    References
    ----------
    The thesis, section 4.1; `docs/numerics.md`, section 12.

    Examples
    --------
    >>> relative_accuracy(np.diag([3.0, 2.0, 1.0]), np.diag([3.0, 0.0, 0.0]), 1)
    1.0
    """
    return best_error(K, rank) / float(np.linalg.norm(K - approximation))


def best_error(K: Array, rank: int) -> float:
    """|K - K_k|_F = √Σ_{j > k} lambda_j², eigenvalues of the symmetric K (n, n) by falling absolute value.

    Parameters
    ----------
    K : (n, n) array
        The Gram matrix, symmetric.
    rank : int
        k.

    Returns
    -------
    float
        In the units of K.

    References
    ----------
    Eckart and Young (1936), *Psychometrika* 1.

    Examples
    --------
    >>> best_error(np.diag([5.0, 4.0, 3.0]), 1)
    5.0
    """
    values = np.sort(np.abs(np.linalg.eigvalsh(K)))[::-1]
    return float(np.linalg.norm(values[rank:]))


def column_projection(K: Array, numbers: Array, rank: int | None = None) -> Array:
    """C ((C'C)_k)⁺ C'K with C = K[:, numbers]: the projection form of column sampling, which needs K itself.

    Parameters
    ----------
    K : (n, n) array
        The Gram matrix.
    numbers : (l,) array of int
        The sampled columns.
    rank : int, optional
        k; by default the numerical rank of C'C.

    Returns
    -------
    (n, n) array
        K^.

    References
    ----------
    Talwalkar, Kumar, Mohri and Rowley (2013), *J. Mach. Learn. Res.* 14.

    Examples
    --------
    >>> K = np.diag([3.0, 2.0, 1.0])
    >>> column_projection(K, np.array([0])).diagonal()
    array([3., 0., 0.])
    """
    C = K[:, numbers]
    values, V = eigh_descending(C.T @ C)
    kept = min(numerical_rank(values, _CUTOFF), rank or len(values))
    basis = C @ (V[:, :kept] / np.sqrt(values[:kept]))
    return basis @ (basis.T @ K)


def nystroem_projection(K: Array, numbers: Array, rank: int | None = None) -> Array:
    """(l / n) C ((W²)_k)⁺ C'K with C = K[:, numbers], W = K[numbers, numbers]: the projection form of Nyström.

    It needs K itself. Eigenvectors C V / values are not orthogonalised.

    Parameters
    ----------
    K : (n, n) array
        The Gram matrix, positive semidefinite.
    numbers : (l,) array of int
        The landmarks.
    rank : int, optional
        k; by default the numerical rank of W.

    Returns
    -------
    (n, n) array
        K^.

    References
    ----------
    Talwalkar, Kumar, Mohri and Rowley (2013), *J. Mach. Learn. Res.* 14; `docs/numerics.md`, section 8.

    Examples
    --------
    >>> K = np.diag([3.0, 3.0])
    >>> nystroem_projection(K, np.array([0, 1])).diagonal()
    array([3., 3.])
    """
    C = K[:, numbers]
    values, V = eigh_descending(C[numbers].copy())
    kept = min(numerical_rank(values, _CUTOFF), rank or len(values))
    basis = C @ (V[:, :kept] / values[:kept])
    return len(numbers) / len(K) * (basis @ (basis.T @ K))
