"""Interfaces of pre-images, the methods and the decoders, and least squares from one streamed pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics import solvers
from bigkpca.numerics.array_api import astype, functions_of, inner_products, moved
from bigkpca.numerics.display import brief
from bigkpca.numerics.eigenpairs import Projection, Solution
from bigkpca.numerics.features import FeatureMap, Shape, has_landmarks
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import arrays_of, in_parts, rank_tolerance
from bigkpca.numerics.methods import Method, Nystroem
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Basis, basis_of


@dataclass(frozen=True)
class Regression:
    """Sums of n pairs of a feature row f_i in R^q and a row x_i in R^d, all in float64.

    mean (q,) and mean_rows (d,) are averages; scatter (q, q) = Σ (f_i - mean)(f_i - mean)',
    cross (q, d) = Σ (f_i - mean)(x_i - mean_rows)'.
    """

    count: int
    mean: Array
    mean_rows: Array
    scatter: Array
    cross: Array

    def __add__(self, other: Regression) -> Regression:
        """Sums of both sets of pairs together (Chan, Golub and LeVeque 1983)."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta, delta_rows = other.mean - self.mean, other.mean_rows - self.mean_rows
        weighted = delta * (self.count * other.count / count)
        share = other.count / count
        return Regression(
            count,
            self.mean + delta * share,
            self.mean_rows + delta_rows * share,
            self.scatter + other.scatter + np.outer(weighted, delta),
            self.cross + other.cross + np.outer(weighted, delta_rows),
        )

    def weights(self, penalty: Array, tolerance: float) -> Array:
        """w (q, d) that minimises Σ |x_i - mean_rows - w'(f_i - mean)|² + tr(w'penalty w), penalty (q, q).

        Features are scaled to unit length first; then `tolerance` bounds the rounding of equal features.
        """
        return self.solve(penalty, tolerance, self.cross)

    def solve(self, penalty: Array, tolerance: float, right: Array) -> Array:
        """(scatter + penalty)⁻¹ right, for a right side (q, c): see `weights`."""
        regularised = self.scatter + penalty
        diagonal = np.diag(regularised)
        lengths = np.sqrt(np.where(diagonal > 0, diagonal, 1))
        regularised /= np.outer(lengths, lengths)
        regularised[np.diag_indices_from(regularised)] += tolerance
        scaled = right / lengths[:, None]
        # `solve` would warn of a large condition, which `tolerance` bounds.
        try:
            factor = scipy.linalg.cho_factor(regularised, check_finite=False)
            solved = scipy.linalg.cho_solve(factor, scaled, check_finite=False)
        except np.linalg.LinAlgError:  # indefinite by rounding: without the directions that are rounding only
            values, vectors = scipy.linalg.eigh(regularised, check_finite=False)
            solved = vectors @ ((vectors.T @ scaled) / np.where(values > tolerance, values, np.inf)[:, None])
        return np.asarray(solved / lengths[:, None])


def block_regression(pairs: Iterable[tuple[Array, Array]], shift: Array, row_shift: Array) -> Regression:
    """The sums of one block, one tile (features (b, q), rows (b, d)) at a time. Tiles are overwritten.

    The shifts (q,) and (d,) are fixed vectors near the means, which keep float32 products from cancellation, as for
    moments. Products have the dtype of the tiles; they are added up in float64.
    """
    q, d = len(shift), len(row_shift)
    count, total, total_rows = 0, np.zeros(q), np.zeros(d)
    products, cross = np.zeros((q, q)), np.zeros((q, d))
    near = near_rows = np.empty(0)
    for F, X in pairs:
        near, near_rows = shift.astype(F.dtype), row_shift.astype(X.dtype)
        F -= near
        X -= near_rows
        ones = np.ones(len(F), F.dtype)
        products += F.T @ F
        cross += F.T @ X
        total += ones @ F
        total_rows += ones @ X
        count += len(F)
    if not count:
        return Regression(0, total, total_rows, products, cross)
    mean, mean_rows = total / count, total_rows / count
    products -= np.outer(total, mean)
    cross -= np.outer(total, mean_rows)
    # The rounded vectors were subtracted.
    return Regression(count, near + mean, near_rows + mean_rows, products, cross)


_TILE_FEATURES = 2**22  # of rows that are projected at once: 32 MB in float64


@dataclass(frozen=True)
class Fitted:
    """The parts of a fitted model that pre-image methods may use.

    moments is None for models that keep their rows, and for those of the randomized solver. basis is that of the span
    of the landmarks, if the fit already has it.
    """

    features: FeatureMap
    solution: Solution
    moments: Moments | None
    method: Method
    basis: Basis | None = None

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
        return scores_of(X, self.features, self.solution, most_rows)

    def landmark_scores(self) -> Array:
        """Scores (l, r), float64, of the landmarks."""
        assert has_landmarks(self.features)
        if self.moments is None:
            return self.solution.components * self.solution.eigenvalues  # = (K - mean) A
        return self.solution.projection()(self.basis.W if self.basis else self.features.gram())


def scores_of(X: Array, features: FeatureMap, solution: Solution, most_rows: int = 1024) -> Array:
    """Scores (m, r), float64, of rows X (m, d) in memory, in the units of the data."""
    project = Projection(solution.mean.astype(features.dtype), solution.components)
    height = max(1, min(most_rows, len(X), _TILE_FEATURES // features.size))

    def of_tile(start: int) -> Array:
        ((V, _),) = features.tiles([X[start : start + height]], height)
        return project(V, overwrite=True)

    return np.concatenate(in_parts(of_tile, range(0, len(X), height))).astype(np.float64)


@dataclass(frozen=True)
class Preimages:
    """Pre-images, and how they were found.

    Parameters
    ----------
    rows : (b, d) array
        The pre-images.
    converged : (b,) array of bool
        Whether the iteration converged; always true for maps that do not iterate.
    iterations : (b,) array of int
        Number of steps; 0 for maps that do not iterate.
    far : (b,) array of bool
        Whether the scores do not correspond to anything near the data, or the start has no kernel value with any
        landmark; such a row is the mean of the data.
    """

    rows: Array
    converged: Array  # (b,), bool
    iterations: Array  # (b,), int
    far: Array  # (b,), bool

    @classmethod
    def direct(cls, rows: Array) -> Self:
        """The pre-images of a map that does not iterate."""
        b = len(rows)
        return cls(rows, np.ones(b, bool), np.zeros(b, np.intp), np.zeros(b, bool))


def joined(parts: Iterable[Preimages]) -> Preimages:
    """Concatenate the pre-images of several batches."""
    found = list(parts)
    return Preimages(*(np.concatenate([getattr(part, each.name) for part in found]) for each in fields(Preimages)))


# (scores Y (b, r), rows (b, d) to start from, or None) -> pre-images; all rows shifted and scaled, float64.
Decode = Callable[[Array, Array | None], Preimages]


@dataclass(frozen=True)
class Decoder(ABC):
    """A map from scores to rows, as plain arrays and numbers that a model file can store."""

    name: ClassVar[str]
    shapes: ClassVar[Mapping[str, Shape]] = {}  # required shapes of arrays from a file

    @abstractmethod
    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        """Prepare the map for tiles of at most `most_rows` scores; the returned function owns its work space."""

    def working_bytes(self, features: FeatureMap, rows: int) -> int:
        """Bytes that decoding a tile of `rows` scores needs, all in float64.

        By default those of an iteration: kernels and gradient weights of the tile, a few copies of its rows, and a copy
        of the landmarks.
        """
        size, columns = features.size, features.columns
        return rows * 8 * (7 * size + 9 * columns) + 2 * 8 * size * columns

    def learning_bytes(self, features: FeatureMap) -> int:
        """Bytes of what the decoder learns at its first use, and of learning it; by default none."""
        return 0

    arrays = arrays_of

    def parameters(self) -> dict[str, Any]:
        """The other fields, JSON-ready, with the name of the decoder."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        plain = {name: value for name, value in values.items() if not isinstance(value, np.ndarray | None)}
        return {"name": self.name, **{name: np.asarray(value).item() for name, value in plain.items()}}

    @classmethod
    def from_parts(cls, parameters: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The decoder whose `parameters()` and `arrays()` are given; other arrays are ignored."""
        given = {**parameters, **arrays}
        return cls(**{part.name: given[part.name] for part in fields(cls) if part.name in given})

    @property
    def reference_rows(self) -> Array | None:
        """Rows (m, d) of the data that the decoder keeps, shifted and scaled; None if it keeps none."""
        return None

    def expansion(self, solution: Solution) -> Any:
        """The Expansion of the model, if the decoder contains it; otherwise None."""
        return None


def reconstructing(decoder: Decoder, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
    """Wrap `decoding` for starts and pre-images in the units of the data; pre-images have the dtype of block work."""
    decode = decoder.decoding(features, solution, most_rows)

    def reconstruct(Y: Array, start: Array | None) -> Preimages:
        found = decode(Y.astype(np.float64), None if start is None else features.shifted(start))
        return replace(found, rows=features.unshifted(found.rows).astype(features.dtype))

    return reconstruct


def check_width(shape: tuple[int, ...], components: int, where: str) -> None:
    """Raise SpecError unless scores of this shape have as many columns as a model has components."""
    if len(shape) != 2 or shape[1] != components:
        raise SpecError(
            f"{where}: scores of shape {shape}, but the model has {components} components: pass scores (n, "
            f"{components}) made by this model"
        )


class Preimage(Protocol):
    """A method that maps scores back to rows.

    An untrained method has `decoder(fitted, rows)`, which returns the Decoder of a model; `rows` (m, d) are sampled
    rows in the units of the data, or None. A trained method has `training(fitted, rows, count, seed)`, which returns
    the Training of a pass over `count` rows, and `training_bytes(rows, columns)`: bytes of the sums that the pass adds
    up, and of a tile of `rows` rows.

    Attributes
    ----------
    name : str
        What options and files call the method.
    trained : bool
        Whether its decoder needs one more pass over the data.
    needs_rows : bool
        Whether it needs sampled rows even if there are landmarks.
    """

    name: ClassVar[str]
    trained: ClassVar[bool]
    needs_rows: ClassVar[bool]

    def check(self, kernel: Kernel, method: Method) -> None:
        """Raise SpecError, naming methods that work, unless this one works with the kernel and the method."""


class Training(Protocol):
    """The data that a training pass needs, as a frozen value."""

    def block(self, X_tiles: Iterable[Array], first_row: int, most_rows: int) -> Regression:
        """Sums of one block, one tile X (b, d) in the units of the data at a time; the sums of blocks add up.

        `first_row` is the number of its first row among all rows, on which noise depends.
        """

    def decoder(self, sums: Regression) -> Decoder:
        """The decoder made from the sums of all blocks."""


def sampled(rows: Array | None, what: str) -> Array:
    """Return the rows; raise SpecError if there are none."""
    if rows is None:
        raise SpecError(f"{what} need sampled rows of the data, but this model was fitted without them: fit it again")
    return rows


def spread(rows: Array, count: int) -> Array:
    """At most `count` of the rows (m, d), evenly spread over them."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.intp))]


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

    @classmethod
    def of_sums(cls, sums: Regression) -> Self:
        """Least squares without a penalty, from sums of pairs of scores and rows."""
        return cls(sums.mean, sums.mean_rows, sums.weights(np.zeros_like(sums.scatter), _TOLERANCE))


@dataclass(frozen=True)
class LinearMap:
    """Linear least squares, with intercept, from scores to rows.

    Fitted to the landmarks and their scores; to sampled rows if there are no landmarks.

    Needs no pass and no iteration. Source: `docs/numerics.md`, section 18.

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
        if has_landmarks(fitted.features):
            X, Y = fitted.features.landmarks, fitted.landmark_scores()
        else:
            rows = sampled(rows, "pre-images of random features")
            X, Y = fitted.features.shifted(rows), fitted.scores(rows)
        tiles = (slice(start, start + _TILE_ROWS) for start in range(0, len(X), _TILE_ROWS))
        pairs = ((Y[tile].copy(), X[tile].astype(np.float64)) for tile in tiles)
        return LinearDecoder.of_sums(block_regression(pairs, Y.mean(axis=0), X.mean(axis=0, dtype=np.float64)))


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
        """The thesis's form, for replication: weights gamma - (Σ gamma) origin, gamma = map y.

        It drops the mean of the data and then subtracts it once more. |φ^|² does not change.
        """
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
    """|φ(x) - φ^(x)|² of rows with features V (b, D) and k(x, x) = diagonal (b,): their novelty, (b,).

    Small for rows like those of the fit, about k(x, x) for others; never negative.
    """
    V = astype(V, np.float64)
    Y = solution.projection()(V)
    inner = V @ given.origin + inner_products(V @ given.map, Y)
    return functions_of(V).maximum(moved(diagonal, V) - 2 * inner + given.squares(Y), 0.0)
