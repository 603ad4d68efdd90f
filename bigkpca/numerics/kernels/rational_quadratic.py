"""The rational quadratic kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics.kernels.base import (
    Distance,
    Evaluate,
    EvaluateWithWeights,
    FrequencyDraws,
    Towards,
    require_positive,
)
from bigkpca.numerics.kernels.stationary import Stationary, radial, with_gradient_weights


@dataclass(frozen=True)
class RationalQuadratic(Stationary):
    """k(x, y) = (1 + |x - y|² / (2 alpha sigma²))^(-alpha), a mixture of Gaussians of many lengths.

    Parameters
    ----------
    sigma : float
        Length, in the units of the columns.
    alpha : float
        Positive; alpha → ∞ is the Gaussian of the same sigma.

    Raises
    ------
    SpecError
        Where a parameter is not positive.

    Notes
    -----
    Frequencies of random features are w = √tau z / sigma with z ~ N(0, I), tau ~ Gamma(shape alpha, rate alpha).

    References
    ----------
    Rasmussen and Williams (2006), *Gaussian Processes for Machine Learning*, section 4.2.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> kernels.RationalQuadratic(1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.6667]])
    """

    name: ClassVar[str] = "rational-quadratic"
    distance: ClassVar[Distance] = "sqeuclidean"
    towards: ClassVar[Towards] = "difference"
    alpha: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, sigma=self.sigma, alpha=self.alpha)

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        def profile(values: Array) -> None:
            values *= -1 / self.alpha
            np.log1p(values, out=values)
            values *= -self.alpha
            np.exp(values, out=values)

        return radial(Y, self.sigma, most_rows, profile)

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Prepare k and its gradient weight k^((alpha + 1) / alpha) / sigma²."""

        def weight_of(K: Array, weights: Array) -> None:
            np.power(K, (self.alpha + 1) / self.alpha, out=weights)
            weights *= 1 / self.sigma**2

        return with_gradient_weights(self.against(Y, most_rows), weight_of)

    def own_gradient_weight(self, X: Array) -> Array:
        return np.full(len(X), 1 / self.sigma**2)

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """w = √tau z / sigma, z ~ N(0, I), tau ~ Gamma(shape alpha, rate alpha)."""
        tau = scipy.special.gammaincinv(self.alpha, draws.uniforms()) / self.alpha
        return draws.normals() * (np.sqrt(tau) / self.sigma)[:, None]
