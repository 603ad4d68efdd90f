"""Rounding: measured once on sampled rows, it decides the dtype of the pass and widens the bounds of its results.

A pass adds up v v' of computed features v. The errors of these values are d, those of the sums within a tile Delta. For
coefficients p of a direction in feature space, with S = Σ (p'v)²,

    |Σ (p'(v + d))² - S| <= 2 e √S + e²,   e = Σ_s |p_s| √errors_s,   errors_s = Σ over rows of d_s²,
    |p'Delta p| <= Σ_s coarse_s p_s²,      coarse_s = beta Σ over rows of v_s²,  beta = |M^(-1/2) Delta M^(-1/2)|_2,
    |p'W p - 1| <= omega (Σ_s |p_s| √k(s, s))²,

with M the diagonal of Σ v v', and the relative error omega of the entries of W. `errors` and `coarse` are sums over
rows, so those of two passes add up. Source: `docs/numerics.md`, section 14.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.array_api import inner_products, moved, on_host, rows_of
from bigkpca.numerics.display import brief
from bigkpca.numerics.drawn_rows import quarter
from bigkpca.numerics.features import FeatureMap, KernelRows, has_landmarks
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.linalg import eigh_descending, in_parts, product
from bigkpca.numerics.moments import FAR, UNDERFLOW, Rounding
from bigkpca.numerics.span import Basis, Span

MEASURED_ROWS, _TILE_ROWS = 1024, 256
_LANDMARKS = 512  # that are measured, too: near them kernels are large
_SUMMED_ROWS = 512  # of a tile whose products are measured
_SAFETY = 4  # times the measured errors: other rows may have larger ones
_POWER_STEPS = 20
_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53
_UNIT = 512 * _DOUBLE  # relative error of sums in float64, and of what follows the pass
_IN_DOUBLE = 2.0**-24  # times errors of float32 are those of float64: 32 times the ratio of precisions, to be safe
_LOST = 2.0**-20  # relative error that is assumed where float32 overflows
_JUDGED_ROWS = 512  # at least, of a sample, and four for each component
_ENOUGH = 0.01  # share of a requested eigenvalue, and of Σ k(x, x), that rounding in float32 may move
_NOISE = 1e-12  # of the largest eigenvalue
_KERNEL_ROWS = 128
_FARTHEST = 64
_ALL = 2.0  # the largest relative error of a kernel that matters
_CHANGED = 1e-3  # of k(x, x): by more, k(x, y) differs if y is x moved by rounding and x is far


class InSingle(NamedTuple):
    """What the device of a pass computes in float32: features less a shift (q, D), and products (D, D) of those rows
    with the numbers `summed`."""

    values: Array
    products: Array
    summed: Array


@np.errstate(all="ignore")
def in_single(features: FeatureMap, X: Array, shift: Array) -> InSingle:
    """The features of rows X (q, d), in float32, less a shift (D,), and the products of most of the first 512."""
    ((V, _),) = features.tiles([X], len(X))
    V -= moved(shift.astype(np.float32), V)
    first = V[: min(_SUMMED_ROWS, len(X)), :]
    summed = _in_one_sum(on_host(inner_products(first, first, np.float64)))
    some = rows_of(V, summed)
    return InSingle(on_host(V), on_host(some.T @ some), summed)


def _in_one_sum(lengths: Array) -> Array:
    """Numbers of the rows of these lengths (q,) beyond which none is far from the others: next to a far one, the
    rounding of the others does not show, and the pass adds up its tile in float64."""
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    of_others = np.cumsum(lengths[order]) / np.arange(1, len(order) + 1)
    far = np.append(lengths[order] > FAR * of_others, True)  # NaN is not
    return np.sort(order[: int(far.argmax())])


def measured_rows(features: FeatureMap, X: Array) -> Array:
    """At most 1024 rows of the sample X (q, d), and some landmarks, in the units of the data."""
    own = features.landmarks_in_user_units()
    if own is None:
        return X[:MEASURED_ROWS]
    some = own[:: -(-len(own) // _LANDMARKS)].astype(np.result_type(X.dtype, np.float32))
    return np.concatenate([X[:MEASURED_ROWS], some[np.isfinite(some).all(axis=1)]])


@dataclass(frozen=True)
class RoundingOfRows:
    """What decides the precision of a pass, from some of its rows."""

    exact: Array  # their features in float64, less the shift (q, D)
    diagonal: Array  # k(x, x) (q,)
    in_single: InSingle
    errors: Array  # of float32 in the features (D,)
    visible: Array  # errors of float64 that can be seen (D,)

    @cached_property
    def single(self) -> Rounding:
        """The rounding of a pass in float32."""
        # Sums of a few whole numbers may be exact by luck: others, and in another order, are not.
        beta = _SAFETY * max(_norm_of_sums(self.in_single), _SINGLE) + len(self.errors) * 2.0**-52
        return Rounding(self.errors, beta)

    def of(self, dtype: np.dtype[np.generic]) -> Rounding:
        """The rounding of a pass in this dtype."""
        if dtype == np.float32:
            return self.single
        return Rounding(_IN_DOUBLE**2 * self.errors + self.visible, _UNIT + len(self.errors) * 2.0**-52)


def rounding_of_rows(features: FeatureMap, X: Array, shift: Array, single: InSingle) -> RoundingOfRows:
    """The rounding of rows X (q, d), from what `in_single` computes for them."""
    with np.errstate(all="ignore"):
        double = features.in_precision(np.dtype(np.float64))
        tiles = in_parts(
            lambda at: double.evaluation(_TILE_ROWS)(X[at : at + _TILE_ROWS]), range(0, len(X), _TILE_ROWS)
        )
        exact, diagonal = map(np.concatenate, zip(*tiles, strict=True))
        rounded = shift.astype(np.float32)
        exact -= np.where(np.isfinite(rounded), rounded, shift)
        off = single.values - exact
        off = np.where(np.isfinite(off), off, _LOST * np.abs(exact))
        root = float(np.sqrt(np.abs(diagonal).sum())) or 1.0  # of a kernel without a diagonal nothing is bounded
        errors = _SAFETY**2 * np.sum((off / root) ** 2, axis=0)
    visible = np.zeros(features.size)
    if has_landmarks(features):
        visible = (_SAFETY * _visible_error(features)) ** 2 * np.abs(features.kernel.diagonal(features.landmarks))
    return RoundingOfRows(exact, np.abs(diagonal), single, errors, visible)


@np.errstate(all="ignore")
def _norm_of_sums(single: InSingle) -> float:
    """|M^(-1/2) Delta M^(-1/2)|_2 of the error Delta of products in float32, by power steps."""
    exact = single.values[single.summed].astype(np.float64)
    M = product(exact.T, exact, _TILE_ROWS)
    roots = np.sqrt(np.diag(M) + len(exact) * UNDERFLOW)
    off = single.products - M
    off /= roots
    off /= roots[:, None]
    B = np.nan_to_num(off.astype(np.float32), nan=1, posinf=1, neginf=-1)
    x = np.random.default_rng(0).standard_normal(len(B), np.float32)
    for _ in range(_POWER_STEPS):
        x = B @ (x / (np.linalg.norm(x) or 1))
    return float(np.linalg.norm(x))


def errors_in_double(kernel: Kernel, Z: Array) -> Array:
    """The errors (q, q) of kernels between rows Z (q, d) in float64 that can be seen without more digits: at equal
    rows, where k is known, and of a row that is moved by rounding, where it hardly changes.

    Kernels of |x - y| have errors of the root of the precision at nearly equal rows, and those of far rows exceed all
    others. Rows so far that k does change there show nothing, nor do codes, which a kernel may only compare.
    """
    rows = Z.astype(np.float64)
    K = kernel(rows, rows)
    at_equal = np.diag(np.abs(np.diag(K) - kernel.diagonal(rows)))
    if may_be_codes(kernel, rows):
        return at_equal
    signs = (-1.0) ** np.arange(rows.size).reshape(rows.shape)
    moved_rows = rows * (1 + 2 * _DOUBLE * signs)
    off = np.abs(K - kernel(rows, moved_rows))
    if kernel.stationary:
        own = kernel(np.zeros_like(rows[:1]), moved_rows - rows)[0]
        off[:, np.abs(own - kernel.diagonal(rows)) > _CHANGED * np.abs(own)] = 0
    return np.maximum(at_equal, off)


def may_be_codes(kernel: Kernel, Z: Array) -> bool:
    """Whether rows Z (q, d) may be codes, which are not numbers to a kernel."""
    return not kernel.on_vectors and bool((np.rint(Z) == Z).all())


def _visible_error(features: KernelRows) -> float:
    """The largest of these errors between landmarks, relative to √(k(s, s) k(t, t)) or, if larger, to k(s, t)."""
    landmarks, largest = features.landmarks, 0.0
    for start in range(0, len(landmarks), _KERNEL_ROWS):
        piece = landmarks[start : start + _KERNEL_ROWS].astype(np.float64)
        roots = np.sqrt(np.abs(features.kernel.diagonal(piece)))
        with np.errstate(all="ignore"):
            sizes = np.maximum(np.outer(roots, roots), np.abs(features.kernel(piece, piece)))
            off = errors_in_double(features.kernel, piece)
            relative = np.divide(off, sizes, out=np.zeros_like(off), where=sizes != 0)
        largest = max(largest, float(np.nan_to_num(relative, nan=np.inf).max()))
    return min(largest, _ALL)


def error_of_gram(features: KernelRows) -> float:
    """omega: the relative error of an entry of W in float64, from the errors of some in float32."""
    some = features.landmarks[:: -(-features.size // _LANDMARKS)]
    single, double = some.astype(np.float32), some.astype(np.float32).astype(np.float64)
    kernel = features.kernel
    with np.errstate(all="ignore"):
        exact, own = kernel(double, double), np.abs(kernel.diagonal(double))
        off = np.abs(kernel(single, single) - exact) / np.maximum(np.sqrt(np.outer(own, own)), np.finfo(float).tiny)
        off = np.where(np.isfinite(off), off, _LOST)
    return _IN_DOUBLE * float(off.max()) + _visible_error(features) + features.size * 2.0**-52


@dataclass(frozen=True)
class Slack:
    """How far rounding may move what sums say: see the formulas above."""

    errors: Array  # (D,)
    coarse: Array  # (D,)
    roots: Array  # of k(s, s) (D,); zeros without landmarks
    omega: float  # of W; 0 without landmarks

    __repr__ = brief

    @classmethod
    def of(cls, features: FeatureMap, errors: Array, coarse: Array) -> Slack:
        """That of features whose sums have these errors."""
        errors, coarse = (np.nan_to_num(each, nan=np.finfo(float).max) for each in (errors, coarse))
        if not has_landmarks(features):
            return cls(errors, coarse, np.zeros(features.size), 0.0)
        roots = np.sqrt(np.abs(features.kernel.diagonal(features.landmarks.astype(np.float64))))
        return cls(errors, coarse, roots, error_of_gram(features))

    def of_values(self, A: Array) -> Array:
        """e (k,) of the columns of A (D, k)."""
        return np.asarray(np.sqrt(self.errors) @ np.abs(A))

    def of_lengths(self, A: Array) -> Array:
        """The error of a'W a = 1 of the columns of A (D, k), at most 1."""
        return np.minimum(self.omega * (self.roots @ np.abs(A)) ** 2, 1)


def farthest(Z: Array, count: int) -> Array:
    """Numbers of the `count` rows of Z (m, d) farthest from the offset, whose kernels have the largest errors."""
    with np.errstate(over="ignore"):
        return np.argsort(-squared_norms(Z), kind="stable")[:count]


def smaller_in_double(kernel: Kernel, Z: Array, off: float) -> float:
    """The ratio of an error in float64 to the largest one in float32, `off`: that of the precisions or, if larger, of
    the errors between rows Z (q, d) that can be seen, unless those in float32 are as large as the values."""
    with np.errstate(all="ignore"):
        same = float(errors_in_double(kernel, Z).max())
    ratio = _DOUBLE / _SINGLE
    return max(ratio, min(same / off, 1.0)) if off and np.isfinite(same) else ratio


def moved_by_rounding(features: KernelRows) -> float:
    """The largest change of a kernel of the farthest landmarks, each moved by one rounding error; 0 for codes."""
    Z = features.landmarks[farthest(features.landmarks, _FARTHEST)].astype(np.float64)
    if may_be_codes(features.kernel, Z):
        return 0.0
    signs = np.random.default_rng(0).choice([-1.0, 1.0], Z.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(features.kernel.gram(Z) - features.kernel.gram(Z * (1 + np.finfo(features.dtype).eps * signs)))
    return float(np.max(off, initial=0.0, where=np.isfinite(off)))


class Kept(NamedTuple):
    """The directions of a span that exceed rounding."""

    directions: Array  # their numbers (k,), ascending
    trace: float  # the rounding of tr(E) with these
    dropped: float  # what the others explain of it that may be among those by which rows are drawn


def kept_directions(slack: Slack, span: Span) -> Kept:
    """Of the directions in the order of their error over what they explain, the first ones for which the error of tr(E)
    less what they explain is smallest."""
    squares = np.maximum(span.squares, 0)
    order, total = _errors_of_trace(slack, span.basis.P, squares)
    k = 1 + int(np.argmin(total - np.cumsum(squares[order])))
    left = order[k:]
    return Kept(np.sort(order[:k]), float(total[k - 1]), float(squares[left[left < quarter(len(order))]].sum()))


@np.errstate(over="ignore", invalid="ignore")
def _errors_of_trace(slack: Slack, P: Array, squares: Array) -> tuple[Array, Array]:
    """Numbers of the directions P (D, m), in the order of their error over what they explain, `squares` (m,), and the
    error of tr(E) with the first 1, 2, ... of them."""
    e = slack.of_values(P)
    one = 2 * e * np.sqrt(squares) + e**2 + (slack.of_lengths(P) + _UNIT) * squares
    of_sums = np.einsum("ij,i,ij->j", P, slack.coarse, P)
    order = np.argsort((one + of_sums) / np.maximum(squares, np.finfo(float).tiny), kind="stable")
    return order, np.cumsum(one[order]) + np.sqrt(np.cumsum(of_sums[order] ** 2))


class Bounds(NamedTuple):
    """Bounds (r,) of the eigenvalues of an exact computation from rounded ones."""

    lower: Array
    upper: Array


@np.errstate(over="ignore", invalid="ignore")
def bounds(slack: Slack, values: Array, A: Array) -> Bounds:
    """Bounds of the eigenvalues whose computed ones are `values` (r,), descending, with the components A (D, r):

        lambda_j >= (√(values_j - g_j) - E_j)² (1 - w_j),

    with g_j the largest eigenvalue of A_j'diag(coarse)A_j of the first j components, E_j² and w_j the sums of their e²
    and errors of length (Courant and Fischer).
    """
    # Components have the length of an eigenvalue: a'W a = 1 and a'M a = values.
    G = A.T @ (slack.coarse[:, None] * A)
    g = np.minimum(np.cumsum(np.diag(G)), _largest_of_leading(G))
    e = np.sqrt(np.cumsum(slack.of_values(A) ** 2))
    w = np.minimum(np.cumsum(slack.of_lengths(A)) + _UNIT, 0.999)
    lower = np.maximum(np.sqrt(np.maximum(values - g, 0)) - e, 0) ** 2 * (1 - w)
    upper = (np.sqrt(np.maximum(values, 0) + g) + e) ** 2 / (1 - w)
    return Bounds(lower, upper)


def _largest_of_leading(G: Array) -> Array:
    """At least the largest eigenvalue of each leading (j, j) part of G (r, r): that of a part at most 1.5 times as
    large, (r,). Small components at the end have large errors, which do not concern those before them."""
    found, j = np.full(len(G), np.inf), 0
    while j < len(G) and np.isfinite(G).all():
        stop = min(max(j + 1, int(1.5 * j)), len(G))
        found[j:stop] = np.linalg.eigvalsh(G[:stop, :stop])[-1]
        j = stop
    return found


def single_is_enough(
    found: RoundingOfRows, features: FeatureMap, basis: Basis | None, rows: int, weight: float, components: int
) -> bool:
    """Whether float32 suffices for a pass over rows of this total weight: by the bounds of the sums of a sample, the
    first of the measured rows, it moves no requested eigenvalue by more than 1 %, nor tr(E) by 1 % of Σ k(x, x)."""
    sample = weight > rows
    if sample:
        rows = min(rows, max(_JUDGED_ROWS, 4 * components))
    V, times = found.exact[:rows], weight / rows
    if not (np.isfinite(V).all() and np.isfinite(found.single.errors).all()):
        return False
    trace, squares = times * float(found.diagonal[:rows].sum()), times * np.einsum("ij,ij->j", V, V)
    slack = Slack.of(features, trace * found.single.errors, found.single.beta * (squares + weight * UNDERFLOW))
    B = np.sqrt(times) * (V if basis is None else product(V, basis.P, _TILE_ROWS))  # about the shift, near the mean
    known = rows // 4 if sample else rows  # of a sample, the last ones are too small
    if not known:
        return False
    values, U = eigh_descending(B @ B.T, min(components, known))
    wanted = int(np.count_nonzero(values > max(_NOISE * values[0], 0)))
    if not wanted:
        return False
    values, U = values[:wanted], U[:, :wanted]
    A = B.T @ (U / np.sqrt(values))
    A = A if basis is None else basis.P @ A
    if (bounds(slack, values, A).lower < (1 - _ENOUGH) * values).any():
        return False
    if basis is None or not basis.triangular:
        return True
    in_directions = np.einsum("ij,ij->j", B, B)
    order, total = _errors_of_trace(slack, basis.P, in_directions)
    left = in_directions.sum() - np.cumsum(in_directions[order])
    return bool(np.min(total + left) <= _ENOUGH * trace)
