"""Leverage scores and coherence: whether uniform landmarks will do."""

from __future__ import annotations

import numpy as np

from bigkpca.errors import Array


def leverage(scores: Array, eigenvalues: Array) -> Array:
    """Leverage scores |row i of U|² = Σ_j y_ij² / lambda_j, with U = Y / √lambda the unit eigenvectors.

    Parameters
    ----------
    scores : (b, r) array
        Y, the scores of any rows.
    eigenvalues : (r,) array
        lambda, positive.

    Returns
    -------
    (b,) array
        Over all n fitted rows they add up to r.

    References
    ----------
    `docs/numerics.md`, section 12; Mohri and Talwalkar (2011), *AISTATS*.

    Examples
    --------
    >>> leverage(np.array([[2.0], [0.0]]), np.array([4.0]))
    array([1., 0.])
    """
    return np.asarray(np.einsum("ij,j->i", scores.astype(np.float64) ** 2, 1 / eigenvalues))


def coherence(leverages: Array, r: int) -> float:
    """gamma = (n / r) max_i leverage_i, between 1 and n / r.

    Uniform landmarks serve well where it is below about 10.

    Parameters
    ----------
    leverages : (n,) array
        Those of all rows, see `leverage`.
    r : int
        Number of components.

    Returns
    -------
    float
        gamma.

    References
    ----------
    Mohri and Talwalkar (2011), *AISTATS*; `docs/numerics.md`, section 12.

    Examples
    --------
    >>> coherence(np.array([1.0, 0.0, 0.0, 0.0]), 1)
    4.0
    """
    return float(len(leverages) / r * np.max(leverages))


def largest_coherence(U: Array) -> float:
    """mu = √n max_ij |U_ij| of orthonormal columns, between 1 and √n.

    Parameters
    ----------
    U : (n, r) array
        Orthonormal columns, e.g. unit eigenvectors.

    Returns
    -------
    float
        mu.

    References
    ----------
    Talwalkar and Rostamizadeh (2010), *UAI*; `docs/numerics.md`, section 12.

    Examples
    --------
    >>> largest_coherence(np.eye(4)[:, :1])
    2.0
    """
    return float(np.sqrt(len(U)) * np.abs(U).max())
