"""Rounding errors of the sums of a pass, measured on a few rows in float32 and in float64.

The measurement covers the errors of kernel values, of the rows and of the sums of a tile, for the data at hand:
repeated values, wide kernels, far rows. Source: `docs/numerics.md`, section 14.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows, has_landmarks
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.linalg import Map, at_once
from bigkpca.numerics.moments import Moments, block_moments
from bigkpca.numerics.span import Span

MEASURED_ROWS = 512
_TILE_ROWS, _PIECE_ROWS = 512, 16  # of matrices (D, D), a task, and what stays in cache
_LANDMARKS = 128  # landmarks that are measured as well, at most
_ALIKE = 16  # eps: the least error of a sum in the dtype of block work
_SAFETY = 16  # times the measured error: other rows may have larger errors
_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53
_LOST = 2.0**-20  # relative error that is assumed where float32 overflows


@dataclass(frozen=True)
class Significant:
    """The part of a span that exceeds rounding.

    trace_rounding: the largest error of tr(E) of the span: the sum of the errors of all directions and, in case they
    cancel by chance in the measurement, what independent errors would give. dropped (k,): upper bounds of the squares
    of all rows in each dropped direction, in the order in which directions are kept.
    """

    span: Span
    trace_rounding: float
    dropped: Array


@dataclass(frozen=True)
class Rounding:
    """Errors per row of the sums of a pass over features in R^D.

    scatter, second (D, D): of the scatter, and of the second moments about zero. value: the largest error of a kernel
    value in float64, of which W consists. precision: of block work. rows: number of measured rows. squares (D,): mean
    squares of their features. trace: the largest relative error of k(x, x).
    """

    scatter: Array
    second: Array
    value: float
    precision: float
    rows: int
    squares: Array
    trace: float

    def of_eigenvalues(self, moments: Moments, solution: Solution, center: bool) -> Array:
        """The largest errors of the eigenvalues of `solution`, (r,).

        They are a'(sums)a of its components a. Row norms of A'(errors)A bound the entries, some of which may cancel.
        """
        A = solution.components
        moved = moments.count * np.linalg.norm(A.T @ (self.scatter if center else self.second) @ A, axis=1)
        sizes = np.einsum("ij,ij->j", A, (moments.scatter if center else moments.about_zero) @ A)
        # Each term has an error of 2 eps, their sum one of 16 eps: equal rows make equal errors, which add up.
        least = self.precision * np.maximum(2 * (A**2).T @ _squares(moments), _ALIKE * np.abs(sizes))
        found: Array = _SAFETY * (np.maximum(moved, least) + self._of_W(A) * np.abs(sizes))
        return found

    def of_the_rest(self, center: bool) -> Rounding:
        """What `of_eigenvalues` needs, without the square that only `significant` does."""
        nothing = np.empty((0, 0))
        return replace(self, second=nothing) if center else replace(self, scatter=nothing)

    def significant(self, span: Span, most: int | None = None, in_order: Map = map) -> Significant:
        """The leading directions of the basis for which the bound of tr(E), rounding included, is smallest.

        Directions come in the order of the lengths of their coefficients: for eigenvectors, |L| descending. At most
        `most` of them: those that were kept for the rows fitted before, whose rounding is not measured again.
        """
        P, squares, count = span.basis.P, np.abs(span.squares), span.moments.count
        of_W, moved = self._of_W(P) * squares, count * span.basis.quadratic_forms(self.second, in_order)
        others = 2 * self.precision * (P**2).T @ self._beyond(span.moments) + _ALIKE * self.precision * squares
        every = np.argsort(np.einsum("ij,ij->j", P, P), kind="stable")
        order = every[:most]
        # Errors of directions add up; in case they cancel by chance in the measurement, as independent ones do.
        errors = np.abs(np.cumsum(moved[order])) + np.sqrt(np.cumsum(moved[order] ** 2))
        errors += np.sqrt(np.cumsum(others[order] ** 2)) + np.cumsum(of_W[order])
        errors = _SAFETY * (errors + self.trace * abs(span.moments.trace))
        explained = np.cumsum(span.squares[order])
        usable = np.cumsum(span.basis.signs[order] > 0) > 0
        k = 1 + int(np.argmin(np.where(usable, errors - explained, np.inf)))
        if k == P.shape[1]:
            return Significant(span, float(errors[-1]), np.empty(0))
        # Errors of single directions have either sign, and grow with the root of the number of rows. Errors that grow
        # with that number itself show in the sum, where all directions add up.
        least = 2 * _DOUBLE * (P**2).T @ _squares(span.moments)  # of the arithmetic after the pass
        noise = np.maximum(np.abs(moved) * np.sqrt(self.rows / max(count, self.rows)), least) + of_W
        return Significant(span.keep(np.sort(order[:k])), float(errors[k - 1]), (squares + _SAFETY * noise)[every[k:]])

    def _beyond(self, moments: Moments) -> Array:
        """Σ v_i² (D,) over rows unlike those measured: the excess over twice the measured squares; all in float64."""
        squares = _squares(moments)
        return squares if self.precision == _DOUBLE else np.maximum(squares - 2 * moments.count * self.squares, 0)

    def _of_W(self, A: Array) -> Array:
        """The largest error of a'W a = 1 of columns a, where each entry of W has an error of `value`."""
        found: Array = self.value * np.abs(A).sum(axis=0) ** 2
        return found


def _squares(moments: Moments) -> Array:
    """Σ v_i² over all rows, (D,)."""
    found: Array = np.diag(moments.scatter) + moments.count * moments.mean**2
    return found


def measured(features: FeatureMap, shift: Array, X: Array, in_order: Map = map) -> Rounding:
    """The rounding of a pass with these features and this shift (D,).

    Measured on rows X (q, d) in the units of the data, and on points near landmarks, where kernels are large. float32
    is compared with float64; the errors of float64 itself are smaller by `smaller_in_double`.
    """
    if has_landmarks(features):
        with np.errstate(over="ignore"):
            near = _near_landmarks(features).astype(np.result_type(X.dtype, np.float32))
        X = np.concatenate([X, near[np.isfinite(near).all(axis=1)]])
    rounded, exact = _in_both(features, X, in_order)
    ratio = _smaller(features, rounded, exact)
    value = _value(rounded, exact, ratio)
    smaller, precision = (1.0, _SINGLE) if features.dtype == np.float32 else (ratio, _DOUBLE)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        sums, second = at_once(
            in_order, lambda: block_moments([(rounded, np.zeros(1))], shift), lambda: exact.T @ exact
        )
        scatter, errors = _errors_of_sums(sums, second, exact.mean(axis=0), smaller / len(X), in_order)
    if not np.isfinite(errors).all():  # float32 overflows: each sum is assumed to be wrong in its 20th bit
        size = np.sqrt(np.diag(second) / len(X))
        errors = scatter = smaller * _LOST * np.outer(size, size)
    squares, trace = np.diag(second) / len(X), smaller * _of_diagonal(features, X)
    return Rounding(scatter, errors, value, precision, len(X), squares, trace)


def _errors_of_sums(sums: Moments, second: Array, mean: Array, scale: float, in_order: Map) -> tuple[Array, Array]:
    """Errors of the scatter and of the second moments about zero of `sums`, times `scale`, (D, D) each.

    second (D, D) and mean (D,) are the exact ones.
    """
    of_scatter, of_second, n = np.empty_like(second), np.empty_like(second), sums.count

    def rows(start: int) -> Array:
        for first in range(start, min(start + _TILE_ROWS, len(second)), _PIECE_ROWS):  # which stay in cache
            own = slice(first, first + _PIECE_ROWS)
            np.subtract(sums.scatter[own], second[own], out=of_second[own])
            np.add(of_second[own], np.outer(n * mean[own], mean), out=of_scatter[own])
            of_second[own] += np.outer(n * sums.mean[own], sums.mean)
            of_scatter[own] *= scale
            of_second[own] *= scale
        return of_second

    for _ in in_order(rows, range(0, len(second), _TILE_ROWS)):
        pass
    return of_scatter, of_second


def _of_diagonal(features: FeatureMap, X: Array) -> float:
    """The largest relative error of k(x, x) in float32."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        maps = (features.in_precision(np.dtype(dtype)) for dtype in (np.float32, np.float64))
        rounded, exact = (each.kernel.diagonal(each.shifted(X)).astype(np.float64) for each in maps)
        off = np.abs(rounded - exact) / np.abs(exact)
    return float(np.max(off, initial=0.0, where=np.isfinite(off)))


def farthest(Z: Array, count: int) -> Array:
    """Numbers of the `count` rows of Z (m, d), shifted, farthest from zero: their kernels have the largest errors."""
    with np.errstate(over="ignore"):
        return np.argsort(-squared_norms(Z), kind="stable")[:count]


def error_of_values(features: KernelRows, X: Array) -> float:
    """The largest error of a kernel value in float64, from rows X (q, d) in the units of the data."""
    rounded, exact = _in_both(features, X)
    return _value(rounded, exact, _smaller(features, rounded, exact))


def _in_both(features: FeatureMap, X: Array, in_order: Map = map) -> tuple[Array, Array]:
    """Features of rows X (q, d), (q, D), in float32 and in float64."""

    def computed(dtype: type) -> Array:
        return next(features.in_precision(np.dtype(dtype)).tiles([X], len(X)))[0]

    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        rounded, exact = at_once(in_order, lambda: computed(np.float32), lambda: computed(np.float64))
    return rounded, exact


def _value(rounded: Array, exact: Array, smaller: float) -> float:
    """The largest error of a value in float64, at least 4 eps of the largest value."""
    return max(_off(rounded, exact) * smaller, 4 * _DOUBLE * float(np.abs(exact).max()))


def _off(rounded: Array, exact: Array) -> float:
    """The largest error of a value in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        off = float(np.abs(rounded - exact).max())
    return off if np.isfinite(off) else _LOST * float(np.abs(exact).max())


def smaller_in_double(kernel: Kernel, Z: Array, off: float) -> float:
    """The ratio of an error in float64 to the largest error in float32, `off`.

    It is the ratio of the precisions or, if larger, that of the error at pairs of equal rows Z (q, d), where k(x, x) is
    known: kernels with a kink there, e.g. of |x - y|, have errors of the root of the precision.
    """
    ratio, rows = _DOUBLE / _SINGLE, Z.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        same = float(np.abs(np.diag(kernel(rows, rows)) - kernel.diagonal(rows)).max())
    return max(ratio, min(same / off, 1.0)) if off and np.isfinite(same) else ratio


def _smaller(features: FeatureMap, rounded: Array, exact: Array) -> float:
    """`smaller_in_double` of these features, from some of the landmarks."""
    if not has_landmarks(features):
        return _DOUBLE / _SINGLE
    return smaller_in_double(features.kernel, _some(features), _off(rounded, exact))


def _near_landmarks(features: KernelRows) -> Array:
    """Some of the landmarks, and points about one length of the kernel away from them, in the units of the data."""
    few = replace(features, landmarks=_some(features))
    S, sigma = few.landmarks_in_user_units(), getattr(features.kernel, "sigma", None)
    if sigma is None:
        return S
    away = np.random.default_rng(0).standard_normal(S.shape) * (sigma / np.sqrt(S.shape[1]))
    return np.concatenate([S, S + (away if features.scale is None else away * features.scale)])


def _some(features: KernelRows) -> Array:
    """At most 128 landmarks, evenly spaced."""
    return features.landmarks[:: -(-features.size // _LANDMARKS)]
