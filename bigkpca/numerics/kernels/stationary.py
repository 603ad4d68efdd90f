"""Kernels of x - y: Gaussian, Laplacian, Matérn and rational quadratic, with their spectral densities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.array_api import (
    Distance,
    astype,
    distances,
    dtype_of,
    empty,
    functions_of,
    on_host,
    rows_of,
    set_columns,
)
from bigkpca.numerics.kernels.base import (
    Evaluate,
    EvaluateWithWeights,
    FrequencyDraws,
    SimpleKernel,
    Towards,
    cached_pieces,
    require_positive,
    squared_norms,
)


@dataclass(frozen=True)
class Stationary(SimpleKernel):
    """A kernel of (x - y) / sigma with k(x, x) = 1 and positive parameters; sigma is in the units of the columns."""

    sigma: float

    def __post_init__(self) -> None:
        require_positive(self, **vars(self))

    @property
    def on_devices(self) -> bool:
        return True

    def diagonal(self, X: Array) -> Array:
        return np.ones(X.shape[0])

    def own_gradient_weight(self, X: Array) -> Array:
        return np.full(len(X), self._largest_weight)

    @property
    def _largest_weight(self) -> float:
        """The gradient weight of a row and itself."""
        return 1 / self.sigma**2


_FAR = 32.0  # lengths from the origin; distances to a row beyond are computed from differences


def radial(Y: Array, sigma: float, most_rows: int, profile: Callable[[Array], object]) -> Evaluate:
    """Prepare a kernel of |x - y|: `profile` turns t = -|x - y|² / (2 sigma²) into kernel values, in place.

    The error of t is about eps (|y / sigma|² + 1) for x near y, and eps |t| for y beyond 32 sigma from the origin.
    """
    # t is one matrix product: [x/σ, 1, -|x/σ|²/2] · [y/σ; -|y/σ|²/2; 1]. Division by σ is free, since rows are copied
    # next to their two extra columns anyway, and keeps float32 far from overflow whatever the units of the data.
    xp, (count, d), dtype, sigma = functions_of(Y), Y.shape, dtype_of(Y), float(sigma)
    scaled = astype(Y, np.float64) / sigma
    right = empty((d + 2, count), Y)
    # The product suffers from cancellation if rows are far from the origin and near each other. Rows far from every y
    # need no special care: their kernel values are zero either way.
    beyond = squared_norms(scaled) > _FAR**2
    far = np.flatnonzero(on_host(beyond))
    distant = rows_of(scaled, far)
    if len(far):
        scaled = xp.where(beyond[:, None], 0.0, scaled)
    right[:d, :] = astype(scaled.T, dtype)
    right[d, :] = astype(-0.5 * squared_norms(scaled), dtype)
    right[d + 1, :] = 1
    work = empty((most_rows, d + 2), Y)
    work[:, d] = 1
    with np.errstate(over="ignore"):
        inverse = float(dtype.type(1 / sigma))
    finite = bool(np.isfinite(inverse))

    @np.errstate(over="ignore")  # overflow gives -infinity, where the kernel is zero
    def evaluate(X: Array, out: Array) -> None:
        left = work[: X.shape[0], :]
        for piece in cached_pieces(X):
            rows = left[piece, :d]
            if finite:
                xp.multiply(X[piece, :], inverse, out=rows)
            else:  # rows and sigma are near the smallest number of the dtype
                xp.divide(astype(X[piece, :], np.float64), sigma, out=rows)
            xp.multiply(squared_norms(rows), -0.5, out=left[piece, d + 1])
        endless = xp.isinf(left[:, d + 1])[:, None]
        if some := bool(xp.any(endless)):  # infinity times the zeros that pad a product would be NaN
            left[:, :] = xp.where(endless, 0.0, left)
            left[:, d] = 1
        xp.matmul(left, right, out=out)
        if some:
            out[:, :] = xp.where(endless, -np.inf, out)
        if len(far):
            set_columns(out, far, -0.5 * distances(astype(X, np.float64) / sigma, distant, "sqeuclidean"))
        for piece in cached_pieces(X):
            values = out[piece, :]
            xp.minimum(values, 0.0, out=values)  # rounding may make a squared distance slightly negative
            profile(values)

    return evaluate


def with_gradient_weights(evaluate: Evaluate, weight_of: Callable[[Array, Array], object]) -> EvaluateWithWeights:
    """k with its gradient weight, which `weight_of` writes to its second argument from kernel values in its first."""

    def both(X: Array, K: Array, weights: Array) -> None:
        evaluate(X, K)
        for piece in cached_pieces(X):
            weight_of(K[piece], weights[piece])

    return both


@dataclass(frozen=True)
class Gaussian(Stationary):
    """k(x, y) = exp(-|x - y|² / (2 sigma²)), the RBF kernel; sigma is a length in the units of the columns.

    Raises SpecError if sigma is not positive.
    """

    name: ClassVar[str] = "gaussian"
    distance: ClassVar[Distance] = "sqeuclidean"
    towards: ClassVar[Towards] = "difference"

    @property
    def gamma(self) -> float:
        """1 / (2 sigma²), the parameter gamma of scikit-learn."""
        return 0.5 / self.sigma**2

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        xp = functions_of(Y)
        return radial(Y, self.sigma, most_rows, lambda values: xp.exp(values, out=values))

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Prepare k and its gradient weight k / sigma²."""
        inverse = Y.dtype.type(1 / self.sigma**2)
        evaluate = self.against(Y, most_rows)
        return with_gradient_weights(evaluate, lambda K, weights: np.multiply(K, inverse, out=weights))

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """w ~ N(0, I / sigma²)."""
        return draws.normals() / self.sigma


@dataclass(frozen=True)
class Laplacian(Stationary):
    """k(x, y) = exp(-|x - y|_1 / sigma); sigma is a length in the units of the columns.

    It has no gradient at x = y, so pre-images have no fixed point. Raises SpecError if sigma is not positive.
    """

    name: ClassVar[str] = "laplacian"
    distance: ClassVar[Distance] = "cityblock"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        xp = functions_of(Y)
        work = empty((most_rows, Y.shape[0]), Y, np.float64)
        fixed = astype(Y, np.float64)

        def evaluate(X: Array, out: Array) -> None:
            exponents = work[: X.shape[0], :]
            distances(X, fixed, "cityblock", exponents)
            exponents *= -1 / float(self.sigma)
            xp.exp(exponents, out=out)

        return evaluate

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """w has independent Cauchy entries of scale 1 / sigma, made from normal ones through their quantiles."""
        return np.tan(np.pi * (scipy.special.ndtr(draws.normals()) - 0.5)) / self.sigma


_LARGEST_NU = 100  # beyond it the Bessel functions overflow in double precision
_ZERO = 1e4  # where exp(-s) is zero and powers of s are still finite


@dataclass(frozen=True)
class Matern(Stationary):
    """k(x, y) = 2^(1 - nu) / Γ(nu) · s^nu K_nu(s), s = √(2 nu) |x - y| / sigma, K_nu the modified Bessel function.

    nu = 0.5, 1.5 and 2.5 are the fastest. Pre-images have a fixed point for nu > 1. Raises SpecError if a parameter is
    out of range. Source: Rasmussen and Williams (2006), *Gaussian Processes for Machine Learning*, section 4.2.

    Parameters
    ----------
    sigma : float
        Length, in the units of the columns.
    nu : float
        Smoothness, up to 100: 0.5 is exp(-|x - y| / sigma), and nu → ∞ the Gaussian with the same sigma.
    """

    name: ClassVar[str] = "matern"
    distance: ClassVar[Distance] = "sqeuclidean"
    nu: float = 1.5

    @property
    def on_devices(self) -> bool:
        return self.nu in (0.5, 1.5, 2.5)  # others need Bessel functions

    @property
    def towards(self) -> Towards | None:
        return "difference" if self.nu > 1 else None  # for smaller nu the weight is infinite at x = y

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu > _LARGEST_NU:
            raise SpecError(f"Matern: nu={self.nu} is above {_LARGEST_NU}, where it is the Gaussian to 0.3 %: use that")

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        xp = functions_of(Y)

        def profile(s: Array) -> None:
            s *= -4 * float(self.nu)
            xp.sqrt(s, out=s)  # s = sqrt(-4 nu t)
            if self.nu == 0.5:
                xp.exp(xp.negative(s, out=s), out=s)
            elif self.nu in (1.5, 2.5):
                xp.minimum(s, _ZERO, out=s)
                factor = 1 + s if self.nu == 1.5 else 1 + s + s**2 / 3
                xp.exp(xp.negative(s, out=s), out=s)
                s *= factor
            else:
                # In logarithms, since s^nu underflows where K_nu overflows; where even the logarithm overflows, k is 1.
                # SciPy has no K_nu for s above about 1e9, where the kernel is zero in any precision.
                exact, nu = np.minimum(s.astype(np.float64), 1e6), self.nu
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    constant = (1 - nu) * np.log(2) - scipy.special.gammaln(nu)
                    logarithm = constant + nu * np.log(exact) + np.log(scipy.special.kve(nu, exact)) - exact
                s[:] = np.where(np.isfinite(logarithm), np.exp(np.minimum(logarithm, 0)), 1)

        return radial(Y, self.sigma, most_rows, profile)

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Prepare k and its gradient weight.

        The weight is nu / (nu - 1) / sigma² times the Matérn kernel of nu - 1 and length sigma √((nu - 1) / nu).
        """
        values = self.against(Y, most_rows)
        smoother = Matern(self.sigma * np.sqrt((self.nu - 1) / self.nu), self.nu - 1).against(Y, most_rows)

        def evaluate(X: Array, K: Array, weights: Array) -> None:
            values(X, K)
            smoother(X, weights)
            weights *= self._largest_weight

        return evaluate

    @property
    def _largest_weight(self) -> float:
        return self.nu / (self.nu - 1) / self.sigma**2

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """w = z / sigma · √(2 nu / chi²(2 nu)), z ~ N(0, I): a multivariate t with 2 nu degrees of freedom."""
        chi_squared = 2 * scipy.special.gammaincinv(self.nu, draws.uniforms())
        chi_squared = np.maximum(chi_squared, 1e-30)  # may underflow when nu is tiny
        return draws.normals() * (np.sqrt(2 * self.nu / chi_squared) / self.sigma)[:, None]


@dataclass(frozen=True)
class RationalQuadratic(Stationary):
    """k(x, y) = (1 + |x - y|² / (2 alpha sigma²))^(-alpha), a mixture of Gaussians of many lengths.

    Raises SpecError if a parameter is not positive. Source: Rasmussen and Williams (2006), *Gaussian Processes for
    Machine Learning*, section 4.2.

    Parameters
    ----------
    sigma : float
        Length, in the units of the columns.
    alpha : float
        Positive; alpha → ∞ is the Gaussian with the same sigma.
    """

    name: ClassVar[str] = "rational-quadratic"
    distance: ClassVar[Distance] = "sqeuclidean"
    towards: ClassVar[Towards] = "difference"
    alpha: float = 1.0

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        xp = functions_of(Y)

        def profile(values: Array) -> None:
            values *= -1 / float(self.alpha)
            xp.log1p(values, out=values)
            values *= -float(self.alpha)
            xp.exp(values, out=values)

        return radial(Y, self.sigma, most_rows, profile)

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Prepare k and its gradient weight k^((alpha + 1) / alpha) / sigma²."""

        def weight_of(K: Array, weights: Array) -> None:
            np.power(K, (self.alpha + 1) / self.alpha, out=weights)
            weights *= 1 / self.sigma**2

        return with_gradient_weights(self.against(Y, most_rows), weight_of)

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """w = √tau z / sigma, z ~ N(0, I), tau ~ Gamma(shape alpha, rate alpha)."""
        tau = scipy.special.gammaincinv(self.alpha, draws.uniforms()) / self.alpha
        return draws.normals() * (np.sqrt(tau) / self.sigma)[:, None]
