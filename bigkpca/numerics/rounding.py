"""Rounding errors of the sums of a pass, measured on a few rows in float32 and in float64.

The measurement covers the errors of kernel values, of the rows and of the sums of a tile, for the data at hand:
repeated values, wide kernels, far rows. A few random rows represent all rows. The farthest rows of the pass, which a
few random ones rarely include and whose errors may exceed those of all others together, represent themselves. Source:
`docs/numerics.md`, section 14.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.array_api import on_host, rows_of
from bigkpca.numerics.display import brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows, has_landmarks
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.linalg import Map, at_once, row_pieces
from bigkpca.numerics.moments import Moments, block_moments, represented
from bigkpca.numerics.span import Span

FAR_ROWS = 16  # rows that are kept


class Compute(NamedTuple):
    """What computes as a pass does, where rounding is measured, since devices round differently: the features V (q, D)
    of a map of rows X (q, d), and moments of V (q, D), about a vector near their mean (D,)."""

    features: Callable[[FeatureMap, Array], Array]
    moments: Callable[[Array, Array], Moments]


def features_here(features: FeatureMap, X: Array) -> Array:
    """The features (q, D) of rows X (q, d)."""
    return next(features.tiles([X], len(X)))[0]


def moments_here(V: Array, shift: Array) -> Moments:
    """Moments of features V (q, D), about a vector near their mean (D,)."""
    return block_moments([(V, np.zeros(1))], shift)


ON_PROCESSOR = Compute(features_here, moments_here)


@dataclass(frozen=True)
class FarRows:
    """The farthest rows of a pass, at most 16, in the order of the rows: X (q, d) in the units and dtype of the data,
    their squared distances from the offset, (q,), as tiles are shifted and scaled, and their weights (q,)."""

    X: Array
    squares: Array
    weights: Array

    __repr__ = brief

    def __add__(self, other: FarRows) -> FarRows:
        """The farthest rows of both; of rows at the same distance, the first."""
        X, squares, weights = (np.concatenate([getattr(each, part) for each in (self, other)]) for part in _PARTS)
        kept = np.sort(_largest(squares, FAR_ROWS))
        return FarRows(X[kept], squares[kept], weights[kept])


_PARTS = ("X", "squares", "weights")


class Farthest:
    """Keeps the farthest rows, of positive weight, of those that it sees, which have these `weights` (n,)."""

    def __init__(self, weights: Array | None = None) -> None:
        self.found: FarRows | None = None
        self._weights, self._at = weights, 0

    def see(self, X: Array, shifted: Array) -> None:
        """Process the next rows X (b, d), a tile or a piece of one, and the same rows shifted and scaled."""
        squares, start = on_host(squared_norms(shifted)), self._at
        self._at += len(squares)
        weights = np.ones(len(squares)) if self._weights is None else self._weights[start : self._at]
        if self.found is None:
            self.found = FarRows(on_host(X[:0, :]).copy(), squares[:0], weights[:0])
        least = self.found.squares.min() if len(self.found.squares) == FAR_ROWS else -np.inf
        farther = np.flatnonzero((squares > least) & (weights > 0))
        farther = np.sort(farther[_largest(squares[farther], FAR_ROWS)])
        if len(farther):
            self.found += FarRows(on_host(rows_of(X, farther)), squares[farther], weights[farther])


MEASURED_ROWS = 512
_TILE_ROWS = 512  # of matrices (D, D), per task
_LANDMARKS = 128  # maximum number of landmarks that are also measured
_ALIKE = 16  # eps: the smallest error of a sum in the dtype of block work
_TERM = 4  # eps: that of each of its terms: nearly equal rows round alike, and their errors add up
_SAFETY = 16  # times the measured error: other rows may have larger errors
_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53
_LOST = 2.0**-20  # relative error that is assumed if float32 overflows


@dataclass(frozen=True)
class Significant:
    """The part of a span that exceeds rounding.

    trace_rounding: the largest error of tr(E) of the span: the sum of the errors of all directions and, in case they
    cancel by chance in the measurement, the sum that independent errors would have. dropped (k,): upper bounds of the
    squares of all rows in each dropped direction, in the order in which directions are kept.
    """

    span: Span
    trace_rounding: float
    dropped: Array


@dataclass(frozen=True)
class FarErrors:
    """Features of the far rows.

    rounded, exact (q, D): in float32 and in float64, times the root of the number of rows like each of them; in block
    work of float64, also times the root of the ratio by which its errors are smaller.
    """

    rounded: Array
    exact: Array

    def of(self, A: Array) -> Array:
        """A'(errors)A of the sum of second moments about zero, (m, m), for A (D, m)."""
        exact, rounded = self.exact @ A, self.rounded @ A
        return np.asarray(rounded.T @ rounded - exact.T @ exact)

    def of_columns(self, A: Array) -> Array:
        """a'(errors)a of the columns of A (D, m), (m,), with the errors of the rows taken as positive, since they may
        cancel by chance."""
        return np.asarray(np.abs((self.exact @ A) ** 2 - (self.rounded @ A) ** 2).sum(axis=0))


@dataclass(frozen=True)
class Rounding:
    """Errors of the sums of a pass over features in R^D: per row, and of the `far` rows.

    second (D, D): of the second moments about zero. means (D, 2), columns m of the exact features and e of the rounded
    ones: those of the scatter are second + m m' - e e'. value: the largest error of a kernel value in float64, of which
    W consists; 0 without landmarks. precision: of block work. rows: number of measured rows. squares (D,): mean squares
    of their features. trace: the largest relative error of k(x, x). far: None if no rows stand out.
    """

    second: Array
    means: Array
    value: float
    precision: float
    rows: int
    squares: Array
    trace: float
    far: FarErrors | None = None

    def of_eigenvalues(self, moments: Moments, solution: Solution, center: bool) -> Array:
        """The largest errors of the eigenvalues of `solution`, (r,).

        They are a'(sums)a of its components a. Row norms of A'(errors)A bound the entries, some of which may cancel.
        """
        A = solution.components
        off = A.T @ self.second @ A
        if self.far is not None:
            off += self.far.of(A) / moments.weight
        if center:
            B = A.T @ self.means
            off += (B * [1, -1]) @ B.T
        moved = moments.weight * np.hypot.reduce(off, axis=1)  # whose squares do not overflow
        sizes = np.einsum("ij,ij->j", A, (moments.scatter if center else moments.about_zero) @ A)
        terms = _TERM * _weighted_squares(A, _squares(moments))
        least = self.precision * np.maximum(terms, _ALIKE * np.abs(sizes))
        return _SAFETY * (np.maximum(moved, least) + self._of_W(A) * np.abs(sizes))

    def significant(self, span: Span, most: int | None = None, in_order: Map = map, least: int = 0) -> Significant:
        """The leading directions of the basis for which the bound of tr(E), rounding included, is smallest.

        The first `least` are kept. The others come in the order of the lengths of their coefficients: for eigenvectors,
        |L| descending. At most `most` of them: those kept for the rows fitted before, whose rounding is not measured
        again.
        """
        P, squares, moments = span.basis.P, np.abs(span.squares), span.moments
        # Σ v_i² over rows unlike those measured; over all rows in float64
        beyond = _squares(moments) if self.precision == _DOUBLE else _excess(moments, self.squares)
        moved, of_W, terms, lengths, of_far = at_once(
            in_order,
            lambda: moments.weight * span.basis.quadratic_forms(self.second, in_order),
            lambda: self._of_W(P) * squares,
            lambda: _TERM * _weighted_squares(P, beyond),
            lambda: np.einsum("ij,ij->j", P, P),
            lambda: np.zeros(P.shape[1]) if self.far is None else self.far.of_columns(P),
        )
        others = self.precision * (terms + _ALIKE * squares)
        lengths[:least] = 0
        every = np.argsort(lengths, kind="stable")
        order = every[:most]
        # Errors of directions add up; in case they cancel by chance in the measurement, as independent ones do.
        errors = np.abs(np.cumsum(moved[order])) + np.sqrt(np.cumsum(moved[order] ** 2))
        errors += np.sqrt(np.cumsum(others[order] ** 2)) + np.cumsum(of_W[order] + of_far[order])
        errors = _SAFETY * (errors + self.trace * abs(moments.trace))
        explained = np.cumsum(span.squares[order])
        usable = np.cumsum(span.basis.signs[order] > 0) > 0
        usable[: max(least - 1, 0)] = False
        k = 1 + int(np.argmin(np.where(usable, errors - explained, np.inf)))
        if k == P.shape[1]:
            return Significant(span, float(errors[-1]), np.empty(0))
        # Errors of single directions have either sign, and grow with the root of the number of rows. Errors that grow
        # with the number itself appear in the sum over all directions.
        smallest = 2 * _DOUBLE * _weighted_squares(P, _squares(moments))  # from the arithmetic after the pass
        noise = np.maximum(np.abs(moved) * np.sqrt(self.rows / max(moments.count, self.rows)), smallest) + of_W + of_far
        return Significant(span.keep(np.sort(order[:k])), float(errors[k - 1]), (squares + _SAFETY * noise)[every[k:]])

    def _of_W(self, A: Array) -> Array:
        """The largest error of a'W a = 1 of columns a, where each entry of W has an error of `value`."""
        absolute = np.zeros(A.shape[1])
        for piece in row_pieces(len(A)):
            absolute += np.abs(A[piece]).sum(axis=0)
        return np.asarray(self.value * absolute**2)


def _weighted_squares(A: Array, weights: Array) -> Array:
    """Σ_i w_i A_ij² of an A (k, m), (m,)."""
    found = np.zeros(A.shape[1])
    for piece in row_pieces(len(A)):
        found += weights[piece] @ A[piece] ** 2
    return found


def _squares(moments: Moments) -> Array:
    """Σ v_i² over all rows, (D,)."""
    return np.diag(moments.scatter) + moments.weight * moments.mean**2


def _excess(moments: Moments, squares: Array) -> Array:
    """Σ v_i² (D,) over all rows, beyond twice the sum for rows with these mean squares (D,)."""
    return np.maximum(_squares(moments) - 2 * moments.weight * squares, 0)


def measured(
    features: FeatureMap,
    moments: Moments,
    shift: Array,
    X: Array,
    far: FarRows | None = None,
    in_order: Map = map,
    weights: Array | None = None,
    compute: Compute = ON_PROCESSOR,
) -> Rounding:
    """The rounding of a pass with these features and this shift (D,), which produced these moments.

    Measured on rows X (q, d) in the units of the data, drawn by their weights (q,) in the pass, on points near
    landmarks, where kernels are large, and on the far rows of the pass. float32 is compared with float64; the errors of
    float64 itself are smaller by `smaller_in_double`.
    """
    n = moments.weight
    shares = np.ones(len(X)) if weights is None else represented(weights, n) * (len(X) / n)
    if far is not None:  # which represent themselves
        with np.errstate(over="ignore"):
            near = squared_norms(features.shifted(X)) < far.squares.min(initial=np.inf)
        if near.any():
            X, shares = X[near], shares[near]
    X = _with_rows_near_landmarks(features, X)
    count = len(X)
    every = X if far is None else np.concatenate([X, far.X])
    rounded, exact = _in_both(features, every, in_order, compute)
    off = _of_diagonal(features, every)
    if weights is not None:
        roots = np.sqrt(shares)[:, None]
        rounded[: len(roots)] *= roots.astype(rounded.dtype)
        exact[: len(roots)] *= roots
    found, smaller = _of_random_rows(features, shift, rounded[:count], exact[:count], off, in_order, compute)
    rounded, exact = rounded[count:], exact[count:]
    if not len(exact):
        return found
    if not np.isfinite(rounded).all():
        rounded = exact * (1 + _LOST)
    assert far is not None
    many = _rows_like_each(exact, _excess(moments, found.squares), far.weights)[:, None]
    means = np.column_stack([(many * exact).sum(axis=0), (many * rounded).sum(axis=0, dtype=np.float64)])
    means *= np.sqrt(smaller) / moments.weight
    weight = np.sqrt(smaller * many)
    return replace(found, means=found.means + means, far=FarErrors(weight * rounded, weight * exact))


def _rows_like_each(far: Array, beyond: Array, weights: Array) -> Array:
    """How many rows there may be like each of the far ones, with features (q, D), as a sum of weights, (q,): the
    squares of all rows `beyond` those of random ones, (D,), divided by the squares of these; at least its own
    weight."""
    squares = float(np.sum(far**2))
    return np.maximum(weights, float(beyond.sum()) / squares) if squares else weights


def _with_rows_near_landmarks(features: FeatureMap, X: Array) -> Array:
    """Rows X (q, d) and, if there are landmarks, points near some of these, in the units of the data."""
    if not has_landmarks(features):
        return X
    near = replace(features, landmarks=_some(features)).landmarks_in_user_units()
    with np.errstate(over="ignore"):
        if (sigma := getattr(features.kernel, "sigma", None)) is not None:  # points about one length away, too
            away = np.random.default_rng(0).standard_normal(near.shape) * (sigma / np.sqrt(near.shape[1]))
            near = np.concatenate([near, near + features.unscaled(away)])
        near = near.astype(np.result_type(X.dtype, np.float32))
    return np.concatenate([X, near[np.isfinite(near).all(axis=1)]])


def _of_random_rows(
    features: FeatureMap,
    shift: Array,
    rounded: Array,
    exact: Array,
    of_diagonal: float,
    in_order: Map,
    compute: Compute,
) -> tuple[Rounding, float]:
    """The rounding of rows with these features (q, D), given that of k(x, x) in float32; with its ratio to errors in
    float32. `rounded` is overwritten."""
    ratio = _smaller(features, rounded, exact)
    value = _value(rounded, exact, ratio) if has_landmarks(features) else 0.0
    smaller, precision = (1.0, _SINGLE) if features.dtype == np.float32 else (ratio, _DOUBLE)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        sums, second = at_once(in_order, lambda: compute.moments(rounded, shift), lambda: exact.T @ exact)
        squares = np.diag(second) / len(exact)
        errors, means = _errors_of_sums(sums, second, exact.mean(axis=0), smaller / len(exact), in_order)
    if not np.isfinite(errors).all():  # float32 overflows: each sum is assumed to be wrong in its 20th bit
        errors, means = smaller * _LOST * np.outer(np.sqrt(squares), np.sqrt(squares)), np.zeros_like(means)
    return Rounding(errors, means, value, precision, len(exact), squares, smaller * of_diagonal), smaller


def _errors_of_sums(sums: Moments, second: Array, mean: Array, scale: float, in_order: Map) -> tuple[Array, Array]:
    """Errors of the second moments about zero of `sums`, (D, D), and `means`, see `Rounding`, times `scale`.

    second (D, D), which is overwritten, and mean (D,) are the exact ones.
    """

    def rows(start: int) -> Array:
        for own in row_pieces(min(start + _TILE_ROWS, len(second)), start):
            np.subtract(sums.scatter[own], second[own], out=second[own])
            second[own] += np.outer(sums.count * sums.mean[own], sums.mean)
            second[own] *= scale
        return second

    for _ in in_order(rows, range(0, len(second), _TILE_ROWS)):
        pass
    return second, np.sqrt(sums.count * scale) * np.column_stack([mean, sums.mean])


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
        return _largest(squared_norms(Z), count)


def _largest(squares: Array, count: int) -> Array:
    """Numbers of the `count` largest, descending; of equal ones, the first."""
    return np.argsort(-squares, kind="stable")[:count]


def error_of_values(features: KernelRows, X: Array) -> float:
    """The largest error of a kernel value in float64, from rows X (q, d) in the units of the data."""
    rounded, exact = _in_both(features, X, map, ON_PROCESSOR)
    return _value(rounded, exact, _smaller(features, rounded, exact))


def _in_both(features: FeatureMap, X: Array, in_order: Map, compute: Compute) -> tuple[Array, Array]:
    """Features of rows X (q, d), (q, D), in float32 as a pass computes them, and in float64."""
    single, double = (features.in_precision(np.dtype(dtype)) for dtype in (np.float32, np.float64))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        rounded, exact = at_once(in_order, lambda: compute.features(single, X), lambda: features_here(double, X))
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

    It is the ratio of the precisions or, if larger, that of the error at pairs of rows Z (q, d) that are equal, where
    k(x, x) is known, or all but equal, where k hardly changes: kernels with a kink there, e.g. of |x - y|, have errors
    of the root of the precision, and those of rows far from the offset exceed all errors of others, which cannot be
    seen in float32 if these are as large as the values.
    """
    ratio, rows = _DOUBLE / _SINGLE, Z.astype(np.float64)
    moved = rows * (1 + 2 * _DOUBLE * (-1.0) ** np.arange(rows.size).reshape(rows.shape))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        gram = kernel(rows, rows)
        same = np.maximum(np.abs(np.diag(gram) - kernel.diagonal(rows)).max(), np.abs(gram - kernel(rows, moved)).max())
    return max(ratio, min(float(same) / off, 1.0)) if off and np.isfinite(same) else ratio


def _smaller(features: FeatureMap, rounded: Array, exact: Array) -> float:
    """`smaller_in_double` for these features, from some of the landmarks."""
    if not has_landmarks(features):
        return _DOUBLE / _SINGLE
    return smaller_in_double(features.kernel, _some(features), _off(rounded, exact))


def _some(features: KernelRows) -> Array:
    """At most 128 landmarks, evenly spaced."""
    return features.landmarks[:: -(-features.size // _LANDMARKS)]
