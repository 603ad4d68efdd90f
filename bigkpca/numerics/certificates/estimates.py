"""Estimates of the exact eigenvalues and components from the error of sampled rows.

Source: `docs/numerics.md`, section 14.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.certificates.spectral import SAME, SampledError
from bigkpca.numerics.linalg import Map, eigh_descending


@dataclass(frozen=True)
class Refined:
    """Estimates of eigenpairs of Kc from unit scores Q (n, c) of an approximation K^ = K - E.

    eigenvalues (c,), descending: those of T = Q'KcQ, each plus `added` (c,) = |(I - QQ')E q|² / itself for its Ritz
    vector q, which is what directions outside of Q add to second order. standard_errors (c,): of the sampling.
    rotation (c, c): the eigenvectors of T. variances (c, c): those of q'Tq for its Ritz vectors q. outside (c,):
    |(I - QQ')E q|.
    """

    eigenvalues: Array
    added: Array
    standard_errors: Array
    rotation: Array
    variances: Array
    outside: Array

    def cosines(self, missed: float) -> Array:
        """The cosine of the angle between each column of Q and the eigenvectors of Kc of its rank, and of eigenvalues
        within 2 % of that, (c,); 0 for eigenvalues below `missed`, the largest one of other directions.

        The squared sine is the part outside of these Ritz vectors, with what sampling may hide of it: two standard
        errors; that outside of Q, to first order (outside / (eigenvalue - missed))²; and what other Ritz vectors add by
        way of directions outside of Q, to second order.
        """
        values, outside = self.eigenvalues, self.outside
        near = np.abs(values[:, None] - values) <= SAME * np.abs(values[:, None])
        apart_inside = np.where(near, np.inf, values[:, None] - values)
        mixed = 1 - np.einsum("ij,ij->i", self.rotation**2, near)
        mixed += np.sum(4 * self.variances / apart_inside**2, axis=1)
        apart = np.maximum(values - missed, np.finfo(float).tiny)
        through = np.outer(outside / apart, outside) / apart_inside
        with np.errstate(over="ignore", invalid="ignore"):
            sines = mixed + (outside / apart) ** 2 + np.sum(through**2, axis=1)
        return np.sqrt(np.clip(np.nan_to_num(1 - sines, nan=0.0), 0, 1))


def refined(
    error: SampledError, Q: Array, approximate: Array, centred: float | None = None, in_order: Map = map
) -> Refined:
    """The estimates from unit scores Q (m, c) of the sampled rows and Q'K^Q = `approximate` (c, c), of all rows, the
    sum of whose weights is `centred` if scores have the mean 0 and Kc = H K H; None if Kc = K.

    Q'EQ is the sum of E_ij q_i q_j' over all pairs of rows, estimated from pairs of sampled ones with weights
    1 / (p_i p_j), and 1 / p_i for i = j (Horvitz and Thompson 1952). The variance of a sum is the sum over sampled rows
    of (1 - p_i) times the square of what it would lose without row i.
    """
    p, weights = error.probabilities[:, None], 1 / error.probabilities[:, None]
    own = error.diagonal[:, None]
    image = error.times(weights * Q, in_order)
    T = (weights * Q).T @ (image - (weights - 1) * own * Q)
    values, Z = eigh_descending(approximate + (T + T.T) / 2)
    q, image = Q @ Z, image @ Z
    others = image - weights * own * q  # Σ over other rows j of E_ij q_j / p_j
    variances = _variances((1 - p) * weights**2, q, others, own)
    # (E q)_i² is too large by the variance of the sum over the others, which is estimated from its terms
    spread = (1 - p) * weights**2 * q**2
    noise = error.squares_times(spread, in_order) - own**2 * spread
    image = others + own * q  # E q, without bias
    inside = np.sum((T @ Z) ** 2, axis=0)
    if centred is not None:
        inside += np.sum(error.roots[:, None] * weights * image, axis=0) ** 2 / centred
    outside = np.maximum(np.sum(weights * (image**2 - noise), axis=0) - inside, 0)
    added = outside / np.maximum(values, np.finfo(float).tiny)
    order = np.argsort(-(values + added), kind="stable")
    variances = variances[np.ix_(order, order)]
    values, added = (values + added)[order], added[order]
    # Noise between two directions moves both eigenvalues: apart, to second order, and by as much as itself if they tie.
    limit = np.maximum(variances, (values[:, None] - values) ** 2)
    moved = np.divide(variances**2, limit, out=np.zeros_like(limit), where=limit > 0)
    errors = np.sqrt(np.sum(moved, axis=1))
    return Refined(values, added, errors, Z[:, order], variances, np.sqrt(outside[order]))


def _variances(weights: Array, q: Array, others: Array, own: Array) -> Array:
    """Σ w (q_j o_k + q_k o_j + E_ii q_j q_k)² over rows, (c, c): what the sums Q'EQ would lose without a row.

    With h = o + E_ii q / 2 that is Σ w (q_j h_k + q_k h_j)², of which three matrices are products.
    """
    half, roots = others + own * q / 2, np.sqrt(weights)
    with np.errstate(over="ignore", invalid="ignore"):
        apart, mixed = (weights * q**2).T @ half**2, roots * q * half
        found = np.maximum(apart + apart.T + 2 * mixed.T @ mixed, 0)
    return np.where(np.isnan(found), np.inf, found)  # of squares that overflow
