"""Errors of eigenvalues, eigenvectors and scores."""

from __future__ import annotations

import numpy as np
import scipy

from bigkpca.errors import Array


def vector_agreement(U: Array, approximation: Array) -> Array:
    """|u_j'u^_j| of columns at unit norm: 1 for equal directions, 0 for orthogonal ones.

    Parameters
    ----------
    U, approximation : (n, r) array
        Eigenvectors, or scores, in columns of any length.

    Returns
    -------
    (r,) array
        Cosines.

    References
    ----------
    The thesis, section 4.1; `docs/numerics.md`, section 12.

    Examples
    --------
    >>> vector_agreement(np.array([[1.0], [0.0]]), np.array([[-3.0], [4.0]]))
    array([0.6])
    """
    products = np.abs(np.einsum("ij,ij->j", U, approximation))
    return np.asarray(products / (np.linalg.norm(U, axis=0) * np.linalg.norm(approximation, axis=0)))


def eigenvalue_difference(eigenvalues: Array, approximation: Array) -> Array:
    """|lambda_j - lambda^_j|, one for each eigenvalue.

    Parameters
    ----------
    eigenvalues, approximation : (r,) array
        lambda and lambda^.

    Returns
    -------
    (r,) array
        In the units of the eigenvalues.

    References
    ----------
    The thesis, section 4.1; `docs/numerics.md`, section 12.

    Examples
    --------
    >>> eigenvalue_difference([3.0, 1.0], [2.5, 1.5])
    array([0.5, 0.5])
    """
    return np.abs(np.asarray(eigenvalues) - np.asarray(approximation))


def eigenvalue_error(eigenvalues: Array, approximation: Array) -> float:
    """Mean over j of |lambda_j - lambda^_j| / lambda_j; an eigenvalue that was not found counts as zero.

    Parameters
    ----------
    eigenvalues : (r,) array
        lambda, positive.
    approximation : (q,) array
        lambda^; those beyond r are ignored.

    Returns
    -------
    float
        A relative error.

    References
    ----------
    `docs/numerics.md`, section 19.

    Examples
    --------
    >>> eigenvalue_error(np.array([4.0, 2.0]), np.array([3.0]))
    0.625
    """
    found = np.zeros(len(eigenvalues))
    found[: len(approximation)] = approximation[: len(eigenvalues)]
    return float(np.mean(np.abs(found - eigenvalues) / eigenvalues))


def score_error(Y: Array, approximation: Array) -> float:
    """min_B |Y - Y^ B|_F / |Y|_F: the part of the scores Y that no linear map of the scores Y^ reproduces.

    Parameters
    ----------
    Y : (m, r) array
        Scores of the reference.
    approximation : (m, q) array
        Y^, scores of the same rows.

    Returns
    -------
    float
        Between 0 and 1.

    Notes
    -----
    Components count by their variance, and an exchange of two close components changes nothing. So the measure is
    smooth where the angle between the spans depends on the gap behind the last component.

    References
    ----------
    `docs/numerics.md`, section 19.

    Examples
    --------
    >>> Y = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> score_error(Y, Y[:, ::-1])
    0.0
    """
    B = np.linalg.lstsq(approximation, Y, rcond=None)[0]
    return float(np.linalg.norm(Y - approximation @ B) / np.linalg.norm(Y))


def subspace_cosine(U: Array, V: Array) -> float:
    """The cosine of the largest principal angle between the spans of the columns of U and V.

    Parameters
    ----------
    U, V : (n, r) array
        Bases of both spans, of full rank.

    Returns
    -------
    float
        1 for equal spans, 0 where a direction of one is orthogonal to the other.

    References
    ----------
    Björck and Golub (1973), *Math. Comp.* 27; `docs/numerics.md`, section 19.

    Examples
    --------
    >>> round(subspace_cosine(np.array([[1.0], [0.0]]), np.array([[3.0], [4.0]])), 12)
    0.6
    """
    return float(scipy.linalg.svdvals(np.linalg.qr(U)[0].T @ np.linalg.qr(V)[0])[-1])
