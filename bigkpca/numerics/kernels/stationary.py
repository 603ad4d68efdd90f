"""Kernels of x - y: Gaussian, Laplacian, Matérn, rational quadratic. All have k(x, x) = 1 and a spectral density."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import gammaincinv, gammaln, kve, ndtr

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels.algebra import Leaf
from bigkpca.numerics.kernels.base import (
    Distance,
    Draws,
    Evaluate,
    EvaluatePull,
    Towards,
    cached_pieces,
    no_pull,
    require_positive,
    squared_norms,
)


@dataclass(frozen=True)
class _Stationary(Leaf):
    """A kernel of (x - y) / sigma, 1 on the diagonal; sigma in the units of the columns."""

    sigma: float

    def __post_init__(self) -> None:
        require_positive(self, sigma=self.sigma)

    @property
    def spectral(self) -> bool:
        return True

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


_FAR = 32.0  # lengths from the origin beyond which distances to a row are taken from differences


def _radial(Y: Array, sigma: float, most_rows: int, profile: Callable[[Array], object]) -> Evaluate:
    """A kernel of |x - y|: `profile` turns t = -|x - y|² / (2 sigma²) into kernel values, in place.

    t is right to eps (|y / sigma|² + 1) or so near every y, and for y beyond 32 sigma to eps |t|.
    """
    # The whole of t is one matrix product: [x/σ, 1, -|x/σ|²/2] · [y/σ; -|y/σ|²/2; 1]. Dividing by
    # σ costs nothing, since rows are copied beside their two extra columns anyway, and it keeps
    # float32 far from overflow whatever the units of the data.
    d = Y.shape[1]
    scaled = Y.astype(np.float64) / sigma
    right = np.empty((d + 2, len(Y)), Y.dtype)
    # The product cancels between rows that are far from the origin and near each other. Rows far from every y need no
    # care: their kernel values are zero either way.
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
        left[endless, :d], left[endless, d + 1] = 0, 0  # infinity times the zeros that pad a product would be no number
        np.matmul(left, right, out=out)
        out[endless] = -np.inf
        if len(far):
            with np.errstate(over="ignore"):  # to -infinity, where the kernel is zero
                out[:, far] = -0.5 * cdist(X / np.float64(sigma), distant, "sqeuclidean")
        for piece in cached_pieces(len(X)):
            values = out[piece]
            np.minimum(values, 0, out=values)  # rounding may leave a squared distance a little below zero
            profile(values)

    return evaluate


def _with_pulls(evaluate: Evaluate, pull_of: Callable[[Array, Array], object]) -> EvaluatePull:
    """k with its pull, which `pull_of` writes into its second argument from kernel values in its first."""

    def both(X: Array, K: Array, pulls: Array) -> None:
        evaluate(X, K)
        for piece in cached_pieces(len(X)):
            pull_of(K[piece], pulls[piece])

    return both


@dataclass(frozen=True)
class Gaussian(_Stationary):
    """k(x, y) = exp(-|x - y|^2 / (2 sigma^2)); sigma in the units of the columns."""

    name: ClassVar[str] = "gaussian"
    distance: ClassVar[Distance] = "sqeuclidean"
    towards: ClassVar[Towards] = "difference"

    @property
    def gamma(self) -> float:
        """1 / (2 sigma^2)."""
        return 0.5 / self.sigma**2

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return _radial(Y, self.sigma, most_rows, lambda values: np.exp(values, out=values))

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        """p(x, y) = k(x, y) / sigma^2."""
        inverse = Y.dtype.type(1 / self.sigma**2)
        return _with_pulls(self.against(Y, most_rows), lambda K, pulls: np.multiply(K, inverse, out=pulls))

    def own_pull(self, X: Array) -> Array:
        return np.full(len(X), 1 / self.sigma**2)

    def frequencies(self, draws: Draws) -> Array:
        """w ~ N(0, I / sigma^2)."""
        return draws.normals() / self.sigma


@dataclass(frozen=True)
class Laplacian(_Stationary):
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


_LARGEST_NU = 100  # beyond it the Bessel functions of double precision overflow


@dataclass(frozen=True)
class Matern(_Stationary):
    """k(x, y) = 2^(1-nu) / Γ(nu) · s^nu K_nu(s), s = sqrt(2 nu) |x - y| / sigma; K_nu the modified Bessel function.

    nu = 0.5 is exp(-|x - y| / sigma), nu -> ∞ the Gaussian of the same sigma.
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

        return _radial(Y, self.sigma, most_rows, profile)

    @property
    def towards(self) -> Towards | None:
        return "difference" if self.nu > 1 else None  # below, the pull of a row at y itself is infinite

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        """p(x, y) = nu / (nu - 1) / sigma^2 · the Matérn kernel of nu - 1 with length sigma sqrt((nu - 1) / nu)."""
        if self.towards is None:
            raise no_pull(self)
        values = self.against(Y, most_rows)
        smoother = Matern(self.sigma * np.sqrt((self.nu - 1) / self.nu), self.nu - 1).against(Y, most_rows)

        def evaluate(X: Array, K: Array, pulls: Array) -> None:
            values(X, K)
            smoother(X, pulls)
            pulls *= self._largest_pull

        return evaluate

    def own_pull(self, X: Array) -> Array:
        if self.towards is None:
            raise no_pull(self)
        return np.full(len(X), self._largest_pull)

    @property
    def _largest_pull(self) -> float:
        return self.nu / (self.nu - 1) / self.sigma**2

    def _bessel(self, s: Array) -> None:
        # In logarithms, since s^nu underflows where K_nu overflows; where even its logarithm does, s is as good as 0.
        # For s above 1e9 or so no library has K_nu, where the kernel is zero in any precision.
        exact, nu = np.minimum(s.astype(np.float64), 1e6), self.nu
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logarithm = (1 - nu) * np.log(2) - gammaln(nu) + nu * np.log(exact) + np.log(kve(nu, exact)) - exact
        s[:] = np.where(np.isfinite(logarithm), np.exp(np.minimum(logarithm, 0)), 1)

    def frequencies(self, draws: Draws) -> Array:
        """w = z / sigma · sqrt(2 nu / chi²(2 nu)), z ~ N(0, I): a multivariate t with 2 nu degrees of freedom."""
        chi_squared = np.maximum(2 * gammaincinv(self.nu, draws.uniforms()), 1e-30)  # may underflow when nu is tiny
        return draws.normals() * (np.sqrt(2 * self.nu / chi_squared) / self.sigma)[:, None]


_ZERO = 1e4  # lengths at which exp(-s) is zero, and powers of s are not infinite


def _matern_12(s: Array) -> None:
    np.negative(s, out=s)
    np.exp(s, out=s)


def _matern_32(s: Array) -> None:
    np.minimum(s, _ZERO, out=s)
    factor = 1 + s
    _matern_12(s)
    s *= factor


def _matern_52(s: Array) -> None:
    np.minimum(s, _ZERO, out=s)
    factor = 1 + s + s**2 / 3
    _matern_12(s)
    s *= factor


@dataclass(frozen=True)
class RationalQuadratic(_Stationary):
    """k(x, y) = (1 + |x - y|^2 / (2 alpha sigma^2))^(-alpha), a mixture of Gaussians of many lengths."""

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

        return _radial(Y, self.sigma, most_rows, profile)

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        """p(x, y) = k(x, y)^((alpha + 1) / alpha) / sigma^2."""

        def pull_of(K: Array, pulls: Array) -> None:
            np.power(K, (self.alpha + 1) / self.alpha, out=pulls)
            pulls *= 1 / self.sigma**2

        return _with_pulls(self.against(Y, most_rows), pull_of)

    def own_pull(self, X: Array) -> Array:
        return np.full(len(X), 1 / self.sigma**2)

    def frequencies(self, draws: Draws) -> Array:
        """w = sqrt(tau) z / sigma, z ~ N(0, I), tau ~ Gamma(shape alpha, rate alpha)."""
        tau = gammaincinv(self.alpha, draws.uniforms()) / self.alpha
        return draws.normals() * (np.sqrt(tau) / self.sigma)[:, None]
