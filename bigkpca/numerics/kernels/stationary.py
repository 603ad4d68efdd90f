"""What kernels of x - y share: k(x, x) = 1, a spectral density, and evaluation from |x - y|²."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels.algebra import Leaf
from bigkpca.numerics.kernels.base import Evaluate, EvaluateWithWeights, cached_pieces, require_positive, squared_norms


@dataclass(frozen=True)
class Stationary(Leaf):
    """A kernel of (x - y) / sigma with k(x, x) = 1; sigma is in the units of the columns."""

    sigma: float

    def __post_init__(self) -> None:
        require_positive(self, sigma=self.sigma)

    @property
    def spectral(self) -> bool:
        return True

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


_FAR = 32.0  # lengths from the origin; distances to a row beyond are computed from differences


def radial(Y: Array, sigma: float, most_rows: int, profile: Callable[[Array], object]) -> Evaluate:
    """Prepare a kernel of |x - y|: `profile` turns t = -|x - y|² / (2 sigma²) into kernel values, in place.

    The error of t is about eps (|y / sigma|² + 1) for x near y, and eps |t| for y beyond 32 sigma from the origin.
    """
    # t is one matrix product: [x/σ, 1, -|x/σ|²/2] · [y/σ; -|y/σ|²/2; 1]. Division by σ is free, since rows are copied
    # beside their two extra columns anyway, and keeps float32 far from overflow whatever the units of the data.
    d = Y.shape[1]
    scaled = Y.astype(np.float64) / sigma
    right = np.empty((d + 2, len(Y)), Y.dtype)
    # The product suffers from cancellation where rows are far from the origin and near each other. Rows far from every
    # y need no care: their kernel values are zero either way.
    far = np.flatnonzero(squared_norms(scaled) > _FAR**2)
    distant = scaled[far]
    scaled[far] = 0
    right[:d] = scaled.T
    right[d] = -0.5 * squared_norms(scaled)
    right[d + 1] = 1
    work = np.empty((most_rows, d + 2), Y.dtype)
    work[:, d] = 1
    inverse = Y.dtype.type(1 / sigma)

    def evaluate(X: Array, out: Array) -> None:
        left = work[: len(X)]
        for piece in cached_pieces(len(X)):
            rows = left[piece, :d]
            np.multiply(X[piece], inverse, out=rows)
            np.multiply(squared_norms(rows), -0.5, out=left[piece, d + 1])
        endless = np.flatnonzero(np.isinf(left[:, d + 1]))
        left[endless, :d], left[endless, d + 1] = 0, 0  # infinity times the zeros that pad a product would be NaN
        np.matmul(left, right, out=out)
        out[endless] = -np.inf
        if len(far):
            from scipy.spatial.distance import cdist  # takes long to import, and is rarely needed

            with np.errstate(over="ignore"):  # overflow gives -infinity, where the kernel is zero
                out[:, far] = -0.5 * cdist(X / np.float64(sigma), distant, "sqeuclidean")
        for piece in cached_pieces(len(X)):
            values = out[piece]
            np.minimum(values, 0, out=values)  # rounding may make a squared distance slightly negative
            profile(values)

    return evaluate


def with_gradient_weights(evaluate: Evaluate, weight_of: Callable[[Array, Array], object]) -> EvaluateWithWeights:
    """k with its gradient weight, which `weight_of` writes to its second argument from kernel values in its first."""

    def both(X: Array, K: Array, weights: Array) -> None:
        evaluate(X, K)
        for piece in cached_pieces(len(X)):
            weight_of(K[piece], weights[piece])

    return both
