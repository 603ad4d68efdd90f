"""The Laplacian kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtr

from bigkpca.errors import Array
from bigkpca.numerics.kernels.base import Distance, Draws, Evaluate
from bigkpca.numerics.kernels.stationary import Stationary


@dataclass(frozen=True)
class Laplacian(Stationary):
    """k(x, y) = exp(-|x - y|_1 / sigma); sigma in the units of the columns, gamma = 1 / sigma."""

    name: ClassVar[str] = "laplacian"
    distance: ClassVar[Distance] = "cityblock"

    @property
    def gamma(self) -> float:
        """1 / sigma."""
        return 1 / self.sigma

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        work = np.empty((most_rows, len(Y)))
        fixed = Y.astype(np.float64)

        def evaluate(X: Array, out: Array) -> None:
            distances = work[: len(X)]
            cdist(X, fixed, "cityblock", out=distances)
            distances *= -1 / self.sigma
            np.exp(distances, out=out, casting="same_kind")

        return evaluate

    def frequencies(self, draws: Draws) -> Array:
        """w has independent Cauchy entries of scale 1 / sigma: quantiles of normal ones."""
        return np.tan(np.pi * (ndtr(draws.normals()) - 0.5)) / self.sigma
