""" "linear": a linear map from scores to rows, and the combination of landmarks that scores describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics import solvers
from bigkpca.numerics.display import brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, Shape, has_landmarks
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.methods import Method, Nystroem
from bigkpca.numerics.preimages.base import Decode, Decoder, Fitted, Preimages, block_regression, sampled
from bigkpca.numerics.span import basis_of

_TILE_ROWS = 1024
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class LinearDecoder(Decoder):
    """x = mean_row + (y - mean_score) weights, shifted and scaled like all rows; float64."""

    name: ClassVar[str] = "linear"
    shapes: ClassVar[Mapping[str, Shape]] = {"mean_score": ("r",), "mean_row": ("d",), "weights": ("r", "d")}
    mean_score: Array  # (r,)
    mean_row: Array  # (d,)
    weights: Array  # (r, d)

    __repr__ = brief

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        return lambda Y, start: Preimages.direct(self(Y))

    def __call__(self, Y: Array) -> Array:
        """Rows (b, d) of scores Y (b, r)."""
        return self.mean_row + (Y - self.mean_score) @ self.weights


@dataclass(frozen=True)
class LinearMap:
    """Linear least squares, with intercept, from scores to rows.

    Fitted to the landmarks and their scores; to sampled rows where there are no landmarks.

    Notes
    -----
    No pass, no iteration.

    References
    ----------
    `docs/numerics.md`, section 18.

    Examples
    --------
    >>> LinearMap().trained
    False
    """

    name: ClassVar[str] = "linear"
    trained: ClassVar[bool] = False
    needs_rows: ClassVar[bool] = False

    def check(self, kernel: Kernel, method: Method) -> None:
        """Accept every kernel and method."""

    def decoder(self, fitted: Fitted, rows: Array | None = None) -> LinearDecoder:
        return linear_decoder(fitted, rows)


def linear_decoder(fitted: Fitted, rows: Array | None) -> LinearDecoder:
    """Least squares from scores to rows, of the landmarks or else of `rows` (m, d) in the units of the data."""
    features, solution = fitted.features, fitted.solution
    if not has_landmarks(features):
        rows = sampled(rows, "pre-images of random features")
        X, Y = features.shifted(rows), fitted.scores(rows)
    elif fitted.moments is None:
        X, Y = features.landmarks, solution.components * solution.eigenvalues  # = (K - mean) A
    else:
        X, Y = features.landmarks, solution.projection()(fitted.basis.W if fitted.basis else features.gram())
    tiles = (slice(start, start + _TILE_ROWS) for start in range(0, len(X), _TILE_ROWS))
    pairs = ((Y[tile].copy(), X[tile].astype(np.float64)) for tile in tiles)
    sums = block_regression(pairs, Y.mean(axis=0), X.mean(axis=0, dtype=np.float64))
    no_penalty = np.zeros((len(sums.mean), len(sums.mean)))
    return LinearDecoder(sums.mean, sums.mean_rows, sums.weights(no_penalty, _TOLERANCE))


@dataclass(frozen=True)
class Expansion:
    """The reconstruction of scores y: φ^ = Σ gamma_i φ(s_i) with gamma = origin + map y.

    For random features gamma is z^ itself, so that <φ^, φ(x)> = v(x)'gamma for every method. |φ^|² is
    constant + 2 linear'y + y'quadratic y; quadratic is None for the identity, i.e. where components are orthonormal in
    feature space. All float64. Source: `docs/numerics.md`, section 18.
    """

    origin: Array  # (D,)
    map: Array  # (D, r)
    constant: float
    linear: Array  # (r,)
    quadratic: Array | None = None  # (r, r)

    def weights(self, Y: Array) -> Array:
        """gamma (b, D) of scores Y (b, r)."""
        return self.origin + Y @ self.map.T

    def squares(self, Y: Array) -> Array:
        """|φ^|² of scores Y (b, r), (b,)."""
        own = Y if self.quadratic is None else Y @ self.quadratic
        return self.constant + 2 * Y @ self.linear + np.einsum("ij,ij->i", own, Y)

    def without_mean(self) -> Expansion:
        """The thesis's form, for replication: weights gamma - (Σ gamma) origin, gamma = map y.

        It drops the mean of the data and then subtracts it once more. |φ^|² is not changed.
        """
        dropped = self.map - np.outer(self.origin, self.map.sum(axis=0))
        return replace(self, origin=np.zeros_like(self.origin), map=dropped)


def expansion(fitted: Fitted) -> Expansion:
    """The expansion of a fitted model, by method:

        orthogonalised Nyström:    gamma = W⁺ mean + A y,
        other landmark methods:    gamma = W⁺ m + G (y - A'(m - mean)),  G = W⁺ M A (A'M A)⁺,
        all rows as landmarks:     gamma = 1 / n + A y,
        random features:           z^ = mean + A y,

    with A the components, m and M mean and scatter of the moments. Where scores are not centred, the first terms vanish
    and M is taken about zero. The second line is least squares over the fitted rows, which for Nyström equals the
    first.
    """
    features, solution = fitted.features, fitted.solution
    if not has_landmarks(features):
        return _with_components(solution, solution.mean)
    if fitted.moments is None:  # W is the Gram matrix of all rows, and W⁺ mean is known without it
        return _with_components(solution, np.full(features.size, 1 / features.size if fitted.centred else 0.0))
    basis = fitted.basis or basis_of(features.gram(), fitted.tolerance)
    if fitted.method == Nystroem():
        return _with_components(solution, basis.solve(solution.mean))
    A, moments = solution.components, fitted.moments
    second, _ = solvers.about_the_mean(moments, fitted.centred)
    MA = second @ A
    G = basis.solve(MA) @ scipy.linalg.pinvh(A.T @ MA)
    origin = np.zeros(len(A))
    if fitted.centred:
        origin = basis.solve(moments.mean) - G @ (A.T @ (moments.mean - solution.mean))
    WG = basis.W @ G
    return Expansion(origin, G, float(origin @ basis.W @ origin), WG.T @ origin, G.T @ WG)


def _with_components(solution: Solution, origin: Array) -> Expansion:
    """The expansion for orthonormal components, whose inner products with the mean of the data are A'mean."""
    A, mean = solution.components, solution.mean
    return Expansion(origin, A, float(mean @ origin), A.T @ mean)


def residuals(given: Expansion, solution: Solution, V: Array, diagonal: Array) -> Array:
    """|φ(x) - φ^(x)|² of rows with features V (b, D) and k(x, x) = diagonal (b,): their novelty, (b,).

    Small for rows like those of the fit, about k(x, x) for others; never negative.
    """
    V = V.astype(np.float64, copy=False)
    Y = solution.projection()(V)
    inner = V @ given.origin + np.einsum("ij,ij->i", V @ given.map, Y)
    return np.maximum(diagonal - 2 * inner + given.squares(Y), 0)
