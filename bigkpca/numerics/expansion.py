"""The point φ^ of feature space that scores represent, as a combination of landmarks, and what it leaves of a row.

Formulas: `docs/numerics.md`, section 18.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics import solvers
from bigkpca.numerics.array_api import astype, functions_of, inner_products, moved
from bigkpca.numerics.eigenpairs import Projection, Solution
from bigkpca.numerics.features import FeatureMap, has_landmarks
from bigkpca.numerics.linalg import arrays_of, in_parts, rank_tolerance
from bigkpca.numerics.methods import Method, Nystroem
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Basis, basis_of

_TILE_FEATURES = 2**22  # of rows that are projected at once: 32 MB in float64


@dataclass(frozen=True)
class Fitted:
    """The parts of a fitted model that pre-images and residuals are made from."""

    features: FeatureMap
    solution: Solution
    moments: Moments | None  # None for models that keep their rows, and for those of the randomized solver
    method: Method
    basis: Basis | None = None  # of the span of the landmarks, if the fit already has it

    @property
    def tolerance(self) -> float:
        """Rank tolerance: a smaller eigenvalue, relative to the largest, is noise."""
        return rank_tolerance(self.features.dtype)

    @property
    def centred(self) -> bool:
        """Whether scores are centred; if the mean is zero, both are the same."""
        return bool(self.solution.mean.any())

    def scores(self, X: Array, most_rows: int = 1024) -> Array:
        """Scores (m, r), float64, of rows X (m, d) in memory, in the units of the data."""
        features, solution = self.features, self.solution
        project = Projection(solution.mean.astype(features.dtype), solution.components)
        height = max(1, min(most_rows, len(X), _TILE_FEATURES // features.size))

        def of_tile(start: int) -> Array:
            ((V, _),) = features.tiles([X[start : start + height]], height)
            return project(V, overwrite=True)

        return np.concatenate(in_parts(of_tile, range(0, len(X), height))).astype(np.float64)

    def landmark_scores(self) -> Array:
        """Scores (l, r), float64, of the landmarks."""
        assert has_landmarks(self.features)
        if self.moments is None:
            return self.solution.components * self.solution.eigenvalues  # = (K - mean) A
        return self.solution.projection()(self.basis.W if self.basis else self.features.gram())


@dataclass(frozen=True)
class Expansion:
    """The reconstruction of scores y: φ^ = Σ gamma_i φ(s_i) with gamma = origin + map y.

    For random features gamma is z^ itself, so that <φ^, φ(x)> = v(x)'gamma for every method. |φ^|² is
    constant + 2 linear'y + y'quadratic y; quadratic is None for the identity, i.e. if components are orthonormal in
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
        return self.constant + 2 * Y @ self.linear + inner_products(own, Y)

    def placed(self, place: Callable[[Array], Any]) -> Expansion:
        """The same expansion with its arrays on a device."""
        return replace(self, **{name: place(value) for name, value in arrays_of(self).items()})

    def without_mean(self) -> Expansion:
        """The thesis's form, for replication: weights gamma - (Σ gamma) origin, gamma = map y. It drops the mean of the
        data and then subtracts it once more. |φ^|² does not change."""
        dropped = self.map - np.outer(self.origin, self.map.sum(axis=0))
        return replace(self, origin=np.zeros_like(self.origin), map=dropped)


def expansion(fitted: Fitted) -> Expansion:
    """The expansion of a fitted model, by method:

        orthogonalised Nyström:    gamma = W⁺ mean + A y,
        other landmark methods:    gamma = W⁺ m + G (y - A'(m - mean)),  G = W⁺ M A (A'M A)⁺,
        all rows as landmarks:     gamma = 1 / n + A y,
        random features:           z^ = mean + A y,

    with A the components, m and M mean and scatter of the moments. If scores are not centred, the first terms vanish
    and M is taken about zero. The second line is least squares over the fitted rows, which for Nyström equals the
    first.
    """
    features, solution = fitted.features, fitted.solution
    if not has_landmarks(features):
        return _with_components(solution, solution.mean)
    if fitted.moments is None:  # W is the Gram matrix of all rows, and W⁺ mean is known without it
        return _with_components(solution, np.full(features.size, 1 / features.size if fitted.centred else 0.0))
    basis = fitted.basis or basis_of(features.gram(), fitted.tolerance, positive=features.kernel.positive)
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
    """|φ(x) - φ^(x)|² of rows with features V (b, D) and k(x, x) = diagonal (b,), (b,): small for rows like those of
    the fit, about k(x, x) for others; never negative."""
    V = astype(V, np.float64)
    Y = solution.projection()(V)
    inner = V @ given.origin + inner_products(V @ given.map, Y)
    return functions_of(V).maximum(moved(diagonal, V) - 2 * inner + given.squares(Y), 0.0)
