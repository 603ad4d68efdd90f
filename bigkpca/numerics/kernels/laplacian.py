"""The Laplacian kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics.kernels.base import Distance, Evaluate, FrequencyDraws
from bigkpca.numerics.kernels.stationary import Stationary


@dataclass(frozen=True)
class Laplacian(Stationary):
    """k(x, y) = exp(-|x - y|_1 / sigma).

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
    Frequencies of random features have independent Cauchy entries of scale 1 / sigma. The kernel has no gradient at
    x = y, so that pre-images have no fixed point.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> kernels.Laplacian(1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    name: ClassVar[str] = "laplacian"
    distance: ClassVar[Distance] = "cityblock"

    @property
    def gamma(self) -> float:
        """1 / sigma, the parameter gamma of scikit-learn."""
        return 1 / self.sigma

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        from scipy.spatial.distance import cdist  # takes long to import, and only this kernel needs it

        work = np.empty((most_rows, len(Y)))
        fixed = Y.astype(np.float64)

        def evaluate(X: Array, out: Array) -> None:
            distances = work[: len(X)]
            cdist(X, fixed, "cityblock", out=distances)
            distances *= -1 / self.sigma
            np.exp(distances, out=out, casting="same_kind")

        return evaluate

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """w has independent Cauchy entries of scale 1 / sigma, made of normal ones through their quantiles."""
        return np.tan(np.pi * (scipy.special.ndtr(draws.normals()) - 0.5)) / self.sigma
