"""Recursive ridge leverage scores: rows drawn by their influence on the Gram matrix (Musco and Musco 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError, check_overflow
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map

_TILE_ROWS = 1024


def choose_rows(X: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
    """Numbers of `size` distinct rows of X (m, d), drawn without replacement in proportion to their leverage scores.

    Scores of nested random halves of the rows, from the smallest up, come from a weighted sample S of the half before:

        score_i = min(1, log(size) / lam · (k_ii - k_iS (W + lam diag(w)^-2)^-1 k_Si)).

    About 2 m size kernel evaluations.
    """
    order = rng.permutation(len(X))
    levels = [len(X)]
    while levels[-1] > 2 * size:
        levels.append(levels[-1] // 2)
    chosen = order[: min(levels[-1], size)]
    weights = np.ones(len(chosen))
    scores = np.ones(len(X))
    for count in reversed(levels):
        scores = _scores(X[order[:count]], X[chosen], weights, kernel, size, in_order)
        kept = np.flatnonzero(rng.random(count) < scores)
        if count < len(X) and len(kept):
            chosen, weights = order[kept], 1 / np.sqrt(scores[kept])
    return order[rng.choice(len(X), size, replace=False, p=scores / scores.sum())]


def _scores(X: Array, S: Array, weights: Array, kernel: Kernel, size: int, in_order: Map) -> Array:
    """Approximate ridge leverage scores of rows X (m, d) from weighted rows S, in (0, 1]."""
    with np.errstate(over="ignore", invalid="ignore"):
        W = kernel.gram(S)
    check_overflow(W, "the sampled rows")
    lam = _ridge(W, weights, size)
    try:
        factor = scipy.linalg.cho_factor(W + np.diag(lam / weights**2), lower=True)
    except np.linalg.LinAlgError:
        raise SpecError(
            "leverage scores need a positive semidefinite kernel, which this one is not on the sampled rows: use "
            "landmarks='uniform'"
        ) from None

    def of_tile(start: int) -> Array:
        rows = X[start : start + _TILE_ROWS]
        with np.errstate(over="ignore", invalid="ignore"):
            values = kernel(S, rows).astype(np.float64)
        check_overflow(values, "the sampled rows")
        return kernel.diagonal(rows) - np.einsum("ij,ij->j", values, scipy.linalg.cho_solve(factor, values))

    residual = np.concatenate(list(in_order(of_tile, range(0, len(X), _TILE_ROWS))))
    # The floor keeps enough rows with a positive chance where the kernel has far fewer directions than landmarks.
    return np.clip(np.log(max(size, 3)) / lam * residual, 1e-9, 1)


def _ridge(W: Array, weights: Array, size: int) -> float:
    """lam: the sum of the eigenvalues of the weighted Gram matrix beyond the k largest, over k."""
    k = max(1, int(size / (4 * np.log(max(size, 3)))))
    values = scipy.linalg.eigvalsh(weights[:, None] * W * weights)
    return float(max(values[:-k].sum() / k, 1e-12 * values[-1])) or 1.0  # any value will do where all kernels are zero


@dataclass(frozen=True)
class Leverage:
    """Rows drawn by recursive ridge leverage scores, which bound the error in the spectral norm.

    Notes
    -----
    No pass over the data: 20 l rows of the sample, at least 20,000, and about 2 m l kernel evaluations. The kernel must
    be positive semidefinite; `choose` raises SpecError where it is not.

    References
    ----------
    Musco and Musco (2017), *NIPS*; `docs/numerics.md`, section 4.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> Leverage().choose(X, kernels.Gaussian(0.1), 3, np.random.default_rng(0)).shape
    (3, 1)
    """

    name: ClassVar[str] = "leverage"

    def most_rows(self, size: int) -> int:
        return max(20 * size, 20_000)

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        return rows * columns * itemsize + 8 * size * (4 * size + 4 * _TILE_ROWS)

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[choose_rows(sample, kernel, size, rng, in_order)]
