"""Moments of feature rows and of columns: count, mean, scatter and trace, which one pass adds up.

Symmetric sums of products V'V are stored as strips of columns down to the diagonal: about half the bytes of the square.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.array_api import (
    astype,
    dtype_of,
    empty,
    functions_of,
    in_numpy,
    inner_products,
    moved,
    on_host,
    rows_of,
)
from bigkpca.numerics.display import brief
from bigkpca.numerics.linalg import row_pieces

_WIDTH = 512  # minimum width of a strip: narrower ones make products slower
_MULTIPLE = 16  # columns that begin at the boundary of a cache line of float32


class OneHot(NamedTuple):
    """The columns of 0 and 1 that a column of categories became: `start`, ..., `stop` - 1."""

    name: str
    start: int
    stop: int

    @property
    def columns(self) -> slice:
        return slice(self.start, self.stop)


def _strips(D: int) -> Iterator[tuple[slice, int, int]]:
    """Columns of each strip, the start of its part above the diagonal block, and that of the diagonal block."""
    count = max(1, D // _WIDTH)
    width = -(-D // (count * _MULTIPLE)) * _MULTIPLE
    at = 0
    for start in range(0, D, width):
        columns = slice(start, min(start + width, D))
        corner = at + start * (columns.stop - start)
        yield columns, at, corner
        at = corner + (columns.stop - start) ** 2


def entries(D: int) -> int:
    """Number of stored values of a sum of products of rows in R^D."""
    return sum(columns.stop * (columns.stop - columns.start) for columns, _, _ in _strips(D))


def empty_sums(D: int) -> Array:
    """The empty sum of products of rows in R^D: zeros (entries,), float64."""
    return np.zeros(entries(D))


def most_of_strip(D: int) -> int:
    """Number of values of the largest strip of a sum of products of rows in R^D."""
    return max(columns.stop * (columns.stop - columns.start) for columns, _, _ in _strips(D))


def work_space(V: Array) -> Array:
    """The work space that `add_products` needs for rows V (b, D)."""
    return empty((most_of_strip(V.shape[1]),), V)


def add_products(sums: Array, V: Array, work: Array) -> None:
    """Add V'V of rows V (b, D) to `sums`; products in the dtype of V and of the `work_space`."""
    xp = functions_of(V)
    for columns, above, corner in _strips(V.shape[1]):
        own, start = V[:, columns], columns.start
        width = own.shape[1]
        if start:
            part = work[: start * width]
            xp.matmul(V[:, :start].T, own, out=xp.reshape(part, (start, width)))
            sums[above:corner] += part
        part = work[: width * width]
        xp.matmul(own.T, own, out=xp.reshape(part, (width, width)))  # BLAS computes only one triangle
        sums[corner : corner + width * width] += part


def of_square(square: Array) -> Array:
    """The sums that `square_of` makes a symmetric square (D, D) of."""
    sums = empty_sums(len(square))
    for columns, above, corner in _strips(len(square)):
        sums[above:corner] = square[: columns.start, columns].ravel()
        sums[corner : corner + (columns.stop - columns.start) ** 2] = square[columns, columns].ravel()
    return sums


def square_of(sums: Array, D: int) -> Array:
    """The sums as a square, (D, D)."""
    found = np.empty((D, D))
    for columns, above, corner in _strips(D):
        start, width = columns.start, columns.stop - columns.start
        strip = sums[above:corner].reshape(start, width)
        found[:start, columns], found[columns, :start] = strip, strip.T
        found[columns, columns] = sums[corner : corner + width * width].reshape(width, width)
    return found


@dataclass(frozen=True)
class Moments:
    """Moments of n feature rows v_i in R^D with weights w_i, which are 1 by default, all in float64."""

    count: int  # of rows with a positive weight
    weight: float  # Σ w_i
    mean: Array  # Σ w_i v_i / weight, (D,)
    scatter: Array  # Σ w_i (v_i - mean)(v_i - mean)', (D, D)
    trace: float  # Σ w_i k(x_i, x_i)

    __repr__ = brief

    def __add__(self, other: Moments) -> Moments:
        """Moments of both sets of rows together (Chan, Golub and LeVeque 1983)."""
        if not self.count or not other.count:
            return self if self.count else other
        weight = self.weight + other.weight
        delta = other.mean - self.mean
        weighted = delta * (self.weight * other.weight / weight)
        scatter = np.empty_like(self.scatter)
        for piece in row_pieces(len(delta)):
            np.add(self.scatter[piece], other.scatter[piece], out=scatter[piece])
            scatter[piece] += np.outer(weighted[piece], delta)
        mean = self.mean + delta * (other.weight / weight)
        return Moments(self.count + other.count, weight, mean, scatter, self.trace + other.trace)

    @property
    def about_zero(self) -> Array:
        """Σ w_i v_i v_i', (D, D)."""
        return self.scatter + self.weight * np.outer(self.mean, self.mean)

    @property
    def squares(self) -> float:
        """Σ w_i |v_i|²."""
        return float(np.trace(self.scatter) + self.weight * self.mean @ self.mean)


@dataclass(frozen=True)
class ColumnMoments:
    """Moments of the columns of rows with weights w_i, which are 1 by default, all in float64."""

    weight: float  # Σ w_i
    mean: Array  # Σ w_i x_i / weight, (d,)
    squares: Array  # Σ w_i (x_i - mean)², (d,)

    @np.errstate(over="ignore", invalid="ignore")
    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        """Moments of both sets of rows together (Chan, Golub and LeVeque 1983)."""
        if not self.weight or not other.weight:
            return self if self.weight else other
        weight = self.weight + other.weight
        delta = other.mean - self.mean
        squares = self.squares + other.squares + delta**2 * (self.weight * other.weight / weight)
        return ColumnMoments(weight, self.mean + delta * (other.weight / weight), squares)

    def scale(self, one_hot: Iterable[slice] = ()) -> Array:
        """Standard deviations (dividing by the weight), and 1 for constant columns, (d,). The columns of each column of
        categories have one scale, the root of the sum of their variances: √(1 - Σ p_c²) for shares p_c."""
        deviations = np.sqrt(self.squares / self.weight)
        # The rounding errors of a constant column must not be scaled up to unit variance.
        deviations[deviations <= 1e-14 * np.abs(self.mean)] = 0.0
        for columns in one_hot:
            deviations[columns] = np.linalg.norm(deviations[columns])
        return np.where(deviations > 0, deviations, 1.0)


@np.errstate(over="ignore", invalid="ignore")  # what overflows is infinite or NaN, which the caller refuses
def column_moments(X: Array, weights: Array | None = None) -> ColumnMoments:
    """Moments of the columns of one tile X (b, d), b >= 1, with these weights (b,)."""
    rows = X.astype(np.float64)
    if weights is None:
        mean = rows.mean(axis=0)
        rows -= mean
        return ColumnMoments(len(rows), mean, np.einsum("ij,ij->j", rows, rows))
    weight = float(weights.sum())
    mean = weights @ rows / (weight or 1)
    rows -= mean
    return ColumnMoments(weight, mean, np.einsum("i,ij,ij->j", weights, rows, rows))


@dataclass(frozen=True)
class Rounding:
    """The rounding of a pass over features in R^D, as `precision` measures it."""

    errors: Array  # of a row over its k(x, x), (D,)
    beta: float  # of the sums of a tile in the dtype of the pass, relative to sums of squares

    __repr__ = brief

    @classmethod
    def unknown(cls, D: int) -> Self:
        """For sums of which nothing is bounded."""
        return cls(np.zeros(D), 0.0)


@dataclass(frozen=True)
class ShiftedSums:
    """Sums of feature rows v_i with weights w_i about a fixed vector c, all in float64, which the blocks of a pass add
    up; count, weight and trace as in `Moments`."""

    about: Array  # c (D,)
    count: int
    weight: float
    total: Array  # Σ w_i (v_i - c), (D,)
    products: Array  # Σ w_i (v_i - c)(v_i - c)', as strips
    trace: float
    errors: Array  # (D,): with coarse (D,), bounds of the rounding of values and of sums, see `precision`
    coarse: Array

    __repr__ = brief

    def __add__(self, other: ShiftedSums) -> ShiftedSums:
        """Sums of both sets of rows together: about the same vector or, if those differ, about their mean."""
        if not np.array_equal(self.about, other.about):
            joined = self.moments + other.moments
            about, total, products = joined.mean, np.zeros(len(self.total)), of_square(joined.scatter)
        else:
            about, total, products = self.about, self.total + other.total, self.products + other.products
        names = ("count", "weight", "trace", "errors", "coarse")
        added: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in names}
        return ShiftedSums(about=about, total=total, products=products, **added)

    @property
    def digest(self) -> str:
        """SHA-256 of weight, trace and total, by which sums of the same rows about the same vector are recognised."""
        return hashlib.sha256(np.append(self.total, [self.weight, self.trace]).tobytes()).hexdigest()

    @property
    def moments(self) -> Moments:
        """The moments of these rows. Little is lost to rounding if c is near their mean."""
        D = len(self.total)
        scatter = square_of(self.products, D)
        if not self.count:
            return Moments(0, 0, np.zeros(D), scatter, self.trace)
        deviation = self.total / self.weight
        for piece in row_pieces(D):
            scatter[piece] -= np.outer(self.total[piece], deviation)
        return Moments(self.count, self.weight, self.about + deviation, scatter, self.trace)


_ADDED_ROWS = 2048
UNDERFLOW = 2.0**-100  # below it, products in float32 may vanish
FAR = 64  # times the mean square of a tile: a row this far makes sums in float32 coarse


def added_pieces(V: Array) -> list[slice]:
    """Slices of the rows of a tile V (b, D) whose products are added up in its dtype: at most 2048 on a device."""
    rows = V.shape[0]
    step = max(rows, 1) if in_numpy(V) else _ADDED_ROWS
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def represented(weights: Array, total: float) -> Array:
    """The part of the `total` weight of all rows that each of some rows stands for, which were drawn by their weights
    (q,): its own if it was drawn for certain, and otherwise an equal share of the rest: max(w, c)."""
    w = np.sort(weights)[::-1]
    shares = (total - np.append(0, np.cumsum(w)[:-1])) / np.arange(len(w), 0, -1)  # of all but the k largest
    share = shares[np.argmax(w <= shares)] if (w <= shares).any() else 0
    return np.maximum(weights, share)


def weighted_tiles(
    tiles: Iterable[tuple[Array, Array]], weights: Iterable[Array] | None
) -> Iterator[tuple[Array, Array, Array | None]]:
    """Each tile (V (b, D), k(x_i, x_i) (b,)) with its weights (b,), without rows of weight 0, which may overflow."""
    for (V, diagonal), w in zip(tiles, repeat(None) if weights is None else weights, strict=False):
        if w is None or w.all():
            yield V, diagonal, w
        else:
            kept = np.flatnonzero(w)
            yield rows_of(V, kept), diagonal[kept], w[kept]


def shifted_sums(
    tiles: Iterable[tuple[Array, Array]], shift: Array, rounding: Rounding, weights: Iterable[Array] | None = None
) -> ShiftedSums:
    """Sums of the rows of one block, one tile (V (b, D), k(x_i, x_i) (b,)) at a time, with the weights (b,) of its rows
    and their `rounding`. Tiles are overwritten.

    `shift` (D,) is a fixed vector near the mean of all rows. For wide kernels every entry of V is close to 1, and V'V
    in float32 loses the whole spectrum, while (V - shift)'(V - shift), added up in float64, keeps it to 1e-6. A tile
    with a row far from the others is added up in float64.
    """
    D = len(shift)
    count, weight, trace = 0, 0.0, 0.0
    total: Array = np.zeros(D)
    products: Array = empty_sums(D)
    squares: Array = np.zeros(D)
    length, coarse_rows = 0.0, 0  # Σ w |k(x, x)|, and rows whose products are added up in float32
    work, shifted = np.empty(0), shift
    for V, diagonal, w in weighted_tiles(tiles, weights):
        rows, dtype = V.shape[0], dtype_of(V)
        if not rows:
            continue
        if not work.shape[0] or dtype_of(shifted) != dtype:
            work, shifted = work_space(V), moved(shift.astype(dtype), V)
            total, products, squares = moved(total, V), moved(products, V), moved(squares, V)
        V -= shifted
        if w is not None:
            roots = moved(np.sqrt(w), V)
            V *= astype(roots, dtype)[:, None]
        count += rows
        weight += rows if w is None else float(w.sum())
        trace += float(diagonal.sum() if w is None else w @ diagonal)
        length += float(np.abs(diagonal).sum() if w is None else w @ np.abs(diagonal))
        pieces = [V[own, :] for own in added_pieces(V)]
        lengths = np.concatenate([on_host(inner_products(piece, piece)) for piece in pieces])
        # Squares of a row that is very far overflow in float32.
        of_all = float(lengths.sum(dtype=np.float64))
        if dtype == np.float32 and (np.isinf(of_all) or rows * float(lengths.max()) > FAR * of_all):
            V = astype(V, np.float64)
            add_products(products, V, work_space(V))
        else:
            for own in added_pieces(V):
                add_products(products, V[own, :], work)
            squares += inner_products(V, V, axis=0)
            coarse_rows += rows
        for own in added_pieces(V):  # in float64, or the mean would round, which no bound of sums holds
            piece, xp = V[own, :], functions_of(V)
            total += xp.sum(piece, axis=0, dtype=xp.float64) if w is None else roots[own] @ astype(piece, np.float64)
    # `shifted` and not `shift`, since the rounded vector was subtracted.
    about = on_host(shifted).astype(np.float64)
    errors, coarse = length * rounding.errors, rounding.beta * (on_host(squares) + coarse_rows * UNDERFLOW)
    return ShiftedSums(about, count, weight, on_host(total), on_host(products), trace, errors, coarse)
