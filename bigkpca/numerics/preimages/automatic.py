""" "auto": the fixed point where the row is known; from scores alone, the map with the smallest error on held-out rows.

No pass: the maps are fitted to the landmarks and to sampled rows, which the model keeps, at the first use of a decoder.
Source: `docs/numerics.md`, section 18.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics import bandwidth
from bigkpca.numerics.display import brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, Shape, has_landmarks
from bigkpca.numerics.kernels import Gaussian, Kernel, squared_norms
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import (
    Decode,
    Decoder,
    Expansion,
    Fitted,
    LinearDecoder,
    Preimages,
    Regression,
    block_regression,
    expansion,
    sampled,
    scores_of,
    spread,
)
from bigkpca.numerics.preimages.fixed_point import FixedPoint, FixedPointDecoder, stored
from bigkpca.numerics.preimages.ridge import KernelDecoder, kernel_bytes

RIDGES = (0.01, 0.1, 1.0)  # penalties of the kernels on scores, to choose from
_MOST_KERNELS = 500
_KERNEL_NUMBERS = 8_000_000  # of the weights of these kernels: 64 MB
_FOLDS = 4  # that are held out in turn, of few rows
_HELD_OUT = 128  # of more rows, one fold of about this many
_LEAST_ROWS = 16  # to hold any out
_STANDARD_ERRORS = 2.0
_ROWS_PER_LANDMARK = 4  # with fewer, many held-out rows may be landmarks
_TILE_ROWS = 512
_TOLERANCE = 1e-10  # above the rounding of a Cholesky factor of all features


@dataclass(frozen=True)
class Automatic:
    """The fixed point where the row is known; from scores alone, the map with the smallest error on held-out rows.

    These maps are compared: linear least squares; kernel ridge regression with a linear part that has no penalty, for
    several penalties of the kernels; and the fixed point that starts at the linear map. They are fitted to the
    landmarks and to sampled rows. Where the row itself is known (denoising), the fixed point starts there.

    Needs no pass: a decoder learns at its first use. Raises SpecError if an option is out of range; from `check`, if
    the kernel or the method is unsuitable. Source: `docs/numerics.md`, section 18.

    Parameters
    ----------
    rows : int
        The largest number of sampled rows, at least 2; the model keeps them.

    Examples
    --------
    >>> Automatic().trained
    False
    """

    name: ClassVar[str] = "auto"
    trained: ClassVar[bool] = False
    needs_rows: ClassVar[bool] = True
    rows: int = 2000

    def __post_init__(self) -> None:
        if self.rows < 2:
            raise SpecError(f"{self}: at least 2 rows are needed")

    def check(self, kernel: Kernel, method: Method) -> None:
        FixedPoint().check(kernel, method)

    def decoder(self, fitted: Fitted, rows: Array | None = None) -> AutomaticDecoder:
        self.check(fitted.features.kernel, fitted.method)
        R = fitted.features.shifted(spread(sampled(rows, "pre-images by 'auto'"), self.rows))
        known = has_landmarks(fitted.features) and fitted.moments
        few = bool(known and known.count >= _ROWS_PER_LANDMARK * fitted.features.size)
        return AutomaticDecoder(**stored(expansion(fitted), fitted.solution), rows=R, from_landmarks=few)


@dataclass(frozen=True)
class _Pairs:
    """Sums of pairs of features [k(y, T), y] of scores y and rows: of several folds, which are held out in turn, and of
    all other pairs.

    k is Gaussian of length sigma, T (p, r) are scores. Rows are shifted and scaled.
    """

    landmarks: Array  # T (p, r)
    sigma: float
    penalty: Array  # (p + r, p + r): k(T, T), and nothing for the scores themselves
    sums: tuple[Regression, ...]  # of each fold; the last of the others
    held_out: tuple[tuple[Array, Array], ...]  # scores (h, r) and rows (h, d) of each fold

    @classmethod
    def of(cls, Y: Array, R: Array, count: int) -> _Pairs:
        """The pairs of scores Y (m, r) and rows R (m, d), of which the first `count` may be held out."""
        T, sigma = _kernels_on(Y[:count], R.shape[1])
        gram, p = Gaussian(sigma).gram(T), len(T)
        penalty = np.zeros((p + Y.shape[1],) * 2)
        penalty[:p, :p] = gram
        shift = np.concatenate([gram.sum(axis=0) / max(p, 1), Y.mean(axis=0)])
        row_shift = R.mean(axis=0, dtype=np.float64)

        def sums(Y: Array, X: Array) -> Regression:
            def of_tile(start: int) -> Any:
                tile = slice(start, start + _TILE_ROWS)
                pair = _features(Y[tile], T, sigma), X[tile].astype(np.float64)
                return block_regression([pair], shift, row_shift)

            return reduce(add, map(of_tile, range(0, len(X), _TILE_ROWS)))

        step = max(_FOLDS, count // _HELD_OUT)
        folds = 0 if count < _LEAST_ROWS else _FOLDS if step == _FOLDS else 1
        number = np.arange(len(R))
        number = np.where(number < count, number % step, step)
        held_out = tuple((Y[number == fold], R[number == fold].astype(np.float64)) for fold in range(folds))
        pairs = (*held_out, (Y[number >= folds], R[number >= folds]))
        return cls(T, sigma, penalty, tuple(sums(*pair) for pair in pairs if len(pair[0])), held_out)

    @property
    def total(self) -> Regression:
        """The sums of all pairs."""
        return reduce(add, self.sums)

    def linear(self, sums: Regression) -> LinearDecoder:
        """The linear map from the scores themselves."""
        own = slice(len(self.landmarks), None)
        of_scores = replace(sums, mean=sums.mean[own], scatter=sums.scatter[own, own], cross=sums.cross[own])
        return LinearDecoder.of_sums(of_scores)

    def best(self, fixed: Decode) -> float | None:
        """The penalty with the smallest error on held-out rows, infinite for a linear map; None for the fixed point,
        also where the gain over it is within two standard errors."""
        if not self.held_out:
            return None
        folds = [self._errors(number) for number in range(len(self.held_out))]
        errors = {ridge: np.concatenate([fold[ridge] for fold in folds]) for ridge in folds[0]}
        best = min(errors, key=lambda ridge: float(errors[ridge].sum()))
        if _smaller(errors[best], errors[np.inf]):  # then it is better than the fixed point, which is slow, too
            return best
        of_fixed = np.concatenate([squared_norms(fixed(Y, None).rows - X) for Y, X in self.held_out])
        return best if _smaller(errors[best], of_fixed) else None

    def _errors(self, fold: int) -> dict[float, Array]:
        """Squared errors (h,) of the rows of a fold, for each penalty, from the pairs outside the fold."""
        Y, X = self.held_out[fold]
        training = reduce(add, (each for number, each in enumerate(self.sums) if number != fold))
        F = _features(Y, self.landmarks, self.sigma) - training.mean
        found = {np.inf: self.linear(training)(Y)}
        for ridge in RIDGES if len(self.landmarks) else ():
            solved = training.solve(ridge * self.penalty, _TOLERANCE, F.T)  # less work than weights for all columns
            found[ridge] = training.mean_rows + solved.T @ training.cross
        return {ridge: squared_norms(rows - X) for ridge, rows in found.items()}

    def kernels(self, ridge: float) -> dict[str, Any]:
        """Fields of the decoder for a map with this penalty, fitted to all pairs."""
        p, total = len(self.landmarks), self.total
        weights = total.weights(ridge * self.penalty, _TOLERANCE)
        return {
            "landmarks": self.landmarks,
            "sigma": self.sigma,
            "mean_kernel": total.mean[:p],
            "kernel_weights": weights[:p],
            "weights": weights[p:],
        }


def _smaller(errors: Array, others: Array) -> bool:
    """Whether errors (h,) of rows are smaller than others by more than two standard errors of the mean difference."""
    gain = others - errors
    return bool(gain.mean() > _STANDARD_ERRORS * gain.std() / np.sqrt(len(gain)))


def kernel_count(columns: int) -> int:
    """The largest number of kernels on scores for rows of `columns` columns."""
    return max(2, min(_MOST_KERNELS, _KERNEL_NUMBERS // columns))


def _kernels_on(Y: Array, columns: int) -> tuple[Array, float]:
    """T (p, r) of scores Y (m, r) for rows of `columns` columns, and the length sigma; no T if all are equal."""
    T = spread(np.unique(Y, axis=0), kernel_count(columns))
    if len(T) < 2:
        return T[:0], 1.0
    distances = bandwidth.pair_distances(T, "sqeuclidean", np.random.default_rng(0))
    return T, bandwidth.median_sigma(distances, "sqeuclidean")


def _features(Y: Array, T: Array, sigma: float) -> Array:
    """[k(y, T), y] of scores Y (b, r), (b, p + r)."""
    return np.hstack([Gaussian(sigma)(Y, T), Y])


@dataclass(frozen=True)
class AutomaticDecoder(Decoder):
    """Decoder of `Automatic`: the expansion of φ^, and sampled rows (m, d), from which the map is learned at first use.

    map is None if it equals the components of the model. `from_landmarks` if these are rows of the regressions, too.
    """

    name: ClassVar[str] = "auto"
    shapes: ClassVar[Mapping[str, Shape]] = {
        **{each: FixedPointDecoder.shapes[each] for each in ("origin", "linear", "map", "quadratic")},
        "rows": ("m", "d"),
    }
    origin: Array  # (D,)
    linear: Array  # (r,)
    constant: float
    rows: Array  # (m, d)
    from_landmarks: bool
    map: Array | None = None  # (D, r)
    quadratic: Array | None = None  # (r, r)

    __repr__ = brief

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        return self.learned(features, solution).decoding(features, solution, most_rows)

    def learned(self, features: FeatureMap, solution: Solution) -> LearnedDecoder:
        """The map, which is learned once, since features and solution are those of the model that has the decoder."""
        known: LearnedDecoder | None = vars(self).get("_learned")
        if known is None:
            R = self.rows
            if self.from_landmarks and has_landmarks(features):
                R = np.concatenate([R, features.landmarks])
            pairs = _Pairs.of(scores_of(features.unshifted(R), features, solution), R, len(self.rows))
            given = stored(self.expansion(solution), solution)
            fixed = FixedPointDecoder(**given, **vars(pairs.linear(pairs.total)), **vars(FixedPoint()))
            chosen = pairs.best(fixed.decoding(features, solution, len(self.rows)))
            regression = pairs.kernels(chosen) if chosen and np.isfinite(chosen) else {}
            known = LearnedDecoder(**vars(fixed) | regression, iterates=chosen is None)
            vars(self)["_learned"] = known
        return known

    def expansion(self, solution: Solution) -> Expansion:
        G = solution.components if self.map is None else self.map
        return Expansion(self.origin, G, self.constant, self.linear, self.quadratic)

    def working_bytes(self, features: FeatureMap, rows: int) -> int:
        p, r = kernel_count(features.columns), len(self.linear)
        return super().working_bytes(features, rows) + kernel_bytes(p, r, features.columns, rows)

    def learning_bytes(self, features: FeatureMap) -> int:
        d, r = features.columns, len(self.linear)
        pairs = len(self.rows) + (features.size if self.from_landmarks else 0)
        g = kernel_count(d) + r
        # Rows, twice, and scores; sums of a tile, their totals, and solutions.
        return 8 * (pairs * (3 * d + r) + 9 * g * (g + d) + _TILE_ROWS * (g + d))

    @property
    def reference_rows(self) -> Array:
        return self.rows


@dataclass(frozen=True)
class LearnedDecoder(FixedPointDecoder):
    """x = mean_row + (y - mean_score) weights + (k(y, T) - mean_kernel) kernel_weights.

    T are `landmarks`, k is Gaussian of length sigma; without them, the map is linear. `iterates` if the fixed point
    starts at this map.
    """

    _: KW_ONLY
    iterates: bool
    landmarks: Array | None = None  # T (p, r)
    mean_kernel: Array | None = None  # (p,)
    kernel_weights: Array | None = None  # (p, d)
    sigma: float = 1.0

    __repr__ = brief

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        iterate = super().decoding(features, solution, most_rows)
        linear, kernels = LinearDecoder(self.mean_score, self.mean_row, self.weights), self._kernels
        add_kernels = None if kernels is None else kernels.decoding(features, solution, most_rows)

        def decode(Y: Array, start: Array | None) -> Preimages:
            if self.iterates or (start is not None and not features.blind_off_axes):
                return iterate(Y, start)
            rows = linear(Y)
            if add_kernels is not None:
                rows += add_kernels(Y, None).rows
            return Preimages.direct(rows)

        return decode

    @property
    def _kernels(self) -> KernelDecoder | None:
        """The part of the map with kernels on scores."""
        if self.landmarks is None or self.mean_kernel is None or self.kernel_weights is None:
            return None
        nothing = np.zeros(len(self.mean_row))
        return KernelDecoder(self.landmarks, self.mean_kernel, nothing, self.kernel_weights, self.sigma)
