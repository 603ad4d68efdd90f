"""The Matérn kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels.base import (
    Distance,
    Evaluate,
    EvaluateWithWeights,
    FrequencyDraws,
    Towards,
    no_gradient,
    require_positive,
)
from bigkpca.numerics.kernels.stationary import Stationary, radial

_LARGEST_NU = 100  # beyond it the Bessel functions overflow in double precision


@dataclass(frozen=True)
class Matern(Stationary):
    """k(x, y) = 2^(1 - nu) / Γ(nu) · s^nu K_nu(s), s = √(2 nu) |x - y| / sigma, K_nu the modified Bessel function.

    Parameters
    ----------
    sigma : float
        Length, in the units of the columns.
    nu : float
        Smoothness, up to 100. nu = 0.5 is exp(-|x - y| / sigma); nu → ∞ is the Gaussian of the same sigma.

    Raises
    ------
    SpecError
        Where a parameter is out of range.

    Notes
    -----
    nu = 0.5, 1.5 and 2.5 are the fastest. Frequencies of random features are multivariate t with 2 nu degrees of
    freedom and scale 1 / sigma. Pre-images have a fixed point for nu > 1.

    References
    ----------
    Rasmussen and Williams (2006), *Gaussian Processes for Machine Learning*, section 4.2.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> kernels.Matern(1.0, nu=0.5)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    name: ClassVar[str] = "matern"
    distance: ClassVar[Distance] = "sqeuclidean"
    nu: float = 1.5

    def __post_init__(self) -> None:
        require_positive(self, sigma=self.sigma, nu=self.nu)
        if self.nu > _LARGEST_NU:
            raise SpecError(f"Matern: nu={self.nu} is above {_LARGEST_NU}, where it is the Gaussian to 0.3 %: use that")

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        polynomial = {0.5: _matern_12, 1.5: _matern_32, 2.5: _matern_52}.get(self.nu, self._bessel)

        def profile(values: Array) -> None:
            values *= -4 * self.nu
            np.sqrt(values, out=values)  # s = sqrt(-4 nu t)
            polynomial(values)

        return radial(Y, self.sigma, most_rows, profile)

    @property
    def towards(self) -> Towards | None:
        return "difference" if self.nu > 1 else None  # for smaller nu the gradient weight is infinite at x = y

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Prepare k and its gradient weight.

        It is nu / (nu - 1) / sigma² times the Matérn kernel of nu - 1 and length sigma √((nu - 1) / nu).
        """
        if self.towards is None:
            raise no_gradient(self)
        values = self.against(Y, most_rows)
        smoother = Matern(self.sigma * np.sqrt((self.nu - 1) / self.nu), self.nu - 1).against(Y, most_rows)

        def evaluate(X: Array, K: Array, weights: Array) -> None:
            values(X, K)
            smoother(X, weights)
            weights *= self._largest_weight

        return evaluate

    def own_gradient_weight(self, X: Array) -> Array:
        if self.towards is None:
            raise no_gradient(self)
        return np.full(len(X), self._largest_weight)

    @property
    def _largest_weight(self) -> float:
        return self.nu / (self.nu - 1) / self.sigma**2

    def _bessel(self, s: Array) -> None:
        # In logarithms, since s^nu underflows where K_nu overflows; where even the logarithm overflows, k is 1.
        # SciPy has no K_nu for s above about 1e9, where the kernel is zero in any precision.
        """Turn s into kernel values, in place, for any nu."""
        exact, nu = np.minimum(s.astype(np.float64), 1e6), self.nu
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logarithm = (
                (1 - nu) * np.log(2)
                - scipy.special.gammaln(nu)
                + nu * np.log(exact)
                + np.log(scipy.special.kve(nu, exact))
                - exact
            )
        s[:] = np.where(np.isfinite(logarithm), np.exp(np.minimum(logarithm, 0)), 1)

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """w = z / sigma · √(2 nu / chi²(2 nu)), z ~ N(0, I): a multivariate t with 2 nu degrees of freedom."""
        chi_squared = np.maximum(
            2 * scipy.special.gammaincinv(self.nu, draws.uniforms()), 1e-30
        )  # may underflow when nu is tiny
        return draws.normals() * (np.sqrt(2 * self.nu / chi_squared) / self.sigma)[:, None]


_ZERO = 1e4  # where exp(-s) is zero and powers of s are still finite


def _matern_12(s: Array) -> None:
    """exp(-s), in place: nu = 1/2."""
    np.negative(s, out=s)
    np.exp(s, out=s)


def _matern_32(s: Array) -> None:
    """(1 + s) exp(-s), in place: nu = 3/2."""
    np.minimum(s, _ZERO, out=s)
    factor = 1 + s
    _matern_12(s)
    s *= factor


def _matern_52(s: Array) -> None:
    """(1 + s + s² / 3) exp(-s), in place: nu = 5/2."""
    np.minimum(s, _ZERO, out=s)
    factor = 1 + s + s**2 / 3
    _matern_12(s)
    s *= factor
