"""The Gaussian (RBF) kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels.base import Distance, Evaluate, EvaluateWithWeights, FrequencyDraws, Towards
from bigkpca.numerics.kernels.stationary import Stationary, radial, with_gradient_weights


@dataclass(frozen=True)
class Gaussian(Stationary):
    """k(x, y) = exp(-|x - y|² / (2 sigma²)), the RBF kernel.

    Parameters
    ----------
    sigma : float
        Length, in the units of the columns.

    Raises
    ------
    SpecError
        Where sigma is not positive.

    Notes
    -----
    Frequencies of random features are w ~ N(0, I / sigma²); the gradient weight is k / sigma².

    Examples
    --------
    >>> from bigkpca import kernels
    >>> kernels.Gaussian(1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.6065]])
    """

    name: ClassVar[str] = "gaussian"
    distance: ClassVar[Distance] = "sqeuclidean"
    towards: ClassVar[Towards] = "difference"

    @property
    def gamma(self) -> float:
        """1 / (2 sigma²), the parameter gamma of scikit-learn."""
        return 0.5 / self.sigma**2

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return radial(Y, self.sigma, most_rows, lambda values: np.exp(values, out=values))

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Prepare k and its gradient weight k / sigma²."""
        inverse = Y.dtype.type(1 / self.sigma**2)
        return with_gradient_weights(
            self.against(Y, most_rows), lambda K, weights: np.multiply(K, inverse, out=weights)
        )

    def own_gradient_weight(self, X: Array) -> Array:
        return np.full(len(X), 1 / self.sigma**2)

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """w ~ N(0, I / sigma²)."""
        return draws.normals() / self.sigma
