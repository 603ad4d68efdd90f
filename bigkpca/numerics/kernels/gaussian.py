"""The Gaussian (RBF) kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels.base import Distance, Draws, Evaluate, EvaluatePull, Towards
from bigkpca.numerics.kernels.stationary import Stationary, radial, with_gradient_weights


@dataclass(frozen=True)
class Gaussian(Stationary):
    """k(x, y) = exp(-|x - y|^2 / (2 sigma^2)); sigma in the units of the columns."""

    name: ClassVar[str] = "gaussian"
    distance: ClassVar[Distance] = "sqeuclidean"
    towards: ClassVar[Towards] = "difference"

    @property
    def gamma(self) -> float:
        """1 / (2 sigma^2)."""
        return 0.5 / self.sigma**2

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return radial(Y, self.sigma, most_rows, lambda values: np.exp(values, out=values))

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        """p(x, y) = k(x, y) / sigma^2."""
        inverse = Y.dtype.type(1 / self.sigma**2)
        return with_gradient_weights(self.against(Y, most_rows), lambda K, pulls: np.multiply(K, inverse, out=pulls))

    def own_pull(self, X: Array) -> Array:
        return np.full(len(X), 1 / self.sigma**2)

    def frequencies(self, draws: Draws) -> Array:
        """w ~ N(0, I / sigma^2)."""
        return draws.normals() / self.sigma
