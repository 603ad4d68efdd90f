"""Rows drawn in the pass, by which every fit is judged: each independently, with a known probability in proportion to
what a part of the landmarks leaves of a row, or to k(x, x). Source: `docs/numerics.md`, section 14."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.array_api import columns_of, inner_products, moved, on_host, rows_of
from bigkpca.numerics.display import brief
from bigkpca.numerics.random_streams import DRAWN

DRAWN_ROWS = 2048  # expected number: the bound is at least 3 / 2048 of all residuals, and the work grows with m²
_PART = 4  # rows are drawn by what a quarter of the landmarks leaves: 1/16 of the work for all of them
_LEAST = 2.0**-8  # of k(x, x): the least residual
_ROUNDING = _LEAST / 2  # of k(x, x): the largest rounding error of |P'v|² that is allowed
_HELD = 4  # times the expected number of rows: a block that has drawn more thins them
_CHECKED = 8  # a checksum is of every 8th row of a tile


@dataclass(frozen=True)
class DrawnRows:
    """Rows X (m, d) drawn independently from `count`, in the units and dtype of the data, with weights (m,).

    Row i is drawn if u_i < r_i / threshold, for a random number u_i of its own that is uniform on [0, 1), and a measure
    r_i. So its probability is min(1, r_i / threshold), and 1 with a threshold of 0. About `most` rows are drawn, all if
    there are no more; `total` is Σ r_i over all rows. `landmarks` (q,) are the numbers of those in the measure, by
    which later rows are drawn, too. The threshold does not depend on the random numbers, since rows that are drawn for
    certain are known: so each row is drawn independently of all others.
    """

    X: Array
    weights: Array
    measures: Array  # r (m,)
    uniform: Array  # u (m,)
    landmarks: Array  # (q,)
    count: int
    total: float
    threshold: float
    most: int

    shapes: ClassVar[dict[str, tuple[str, ...]]] = {
        "X": ("u", "d"),
        "weights": ("u",),
        "measures": ("u",),
        "uniform": ("u",),
        "landmarks": ("q",),
    }

    __repr__ = brief

    def __post_init__(self) -> None:
        numbers = self.measures >= 0, self.uniform >= 0, self.uniform < 1, self.weights > 0
        sizes = len(self.X) <= self.count and self.total >= 0 and self.threshold >= 0 and self.most > 0
        if not (sizes and all(each.all() for each in numbers)):
            raise SpecError("the rows that were drawn have numbers that no fit makes")

    def __add__(self, other: DrawnRows) -> Self:
        return _joined([self, other]).thinned()

    def thinned(self) -> Self:
        """The sample with the threshold that its number of rows and its total need."""
        needed = threshold_of(self.measures, self.total, self.most) if self.count > self.most else 0.0
        threshold = max(self.threshold, needed)
        kept = self.uniform * threshold < self.measures
        parts = {name: getattr(self, name)[kept] for name in _OF_ROWS}
        return replace(self, **parts, threshold=threshold)

    @property
    def probabilities(self) -> Array:
        """The probability with which each row was drawn, (m,)."""
        if not self.threshold:
            return np.ones(len(self.X))
        return np.minimum(1, self.measures / self.threshold)


_OF_ROWS = ("X", "weights", "measures", "uniform")


def _joined(parts: list[Any]) -> Any:
    """The rows of all samples, as one with the largest of their thresholds."""
    arrays = {name: np.concatenate([getattr(each, name) for each in parts]) for name in _OF_ROWS}
    counts = {name: sum(getattr(each, name) for each in parts) for name in ("count", "total")}
    return replace(parts[0], **arrays, **counts, threshold=max(each.threshold for each in parts))


def threshold_of(measures: Array, total: float, most: int) -> float:
    """The t with Σ min(1, r / t) = most, over measures r of the sum `total`; all r >= t are among `measures`."""
    r = np.append(np.sort(measures)[::-1], 0.0)[:most]
    rest = np.maximum(total - (np.cumsum(r) - r), 0)  # without the k largest
    found = rest / (most - np.arange(len(r)))
    return float(found[np.argmax(r < found)] if (r < found).any() else found[-1])


def least_threshold(measures: Array, shares: Array, most: int) -> float:
    """A t that is rarely larger than `threshold_of` all rows, from a sample of which each row stands for `shares` (q,):
    the largest one with Σ min(r, t) >= most t, by the estimate of that sum less three standard errors."""
    order = np.argsort(measures)
    r, c = measures[order], shares[order]
    below = np.minimum(r, r[:, None])
    enough = (below @ c - 3 * np.sqrt(below**2 @ c**2)) / most
    if not np.isfinite(enough).all():
        return 0.0
    return float(enough[-1]) if enough[-1] >= r[-1] else float(r[enough >= r].max(initial=0.0))


def quarter(count: int) -> int:
    """How many of so many landmarks decide which rows are drawn."""
    return -(-count // _PART)


@dataclass(frozen=True)
class Measure:
    """r(x) = k(x, x) - |P'v(x)|² for leading directions P'v(x) of some landmarks, at least 1/256 of k(x, x); without
    landmarks, k(x, x). So no span that contains these directions leaves more of a row."""

    numbers: Array  # of the landmarks (l',)
    P: Array  # (l', q), in the dtype of block work: few enough directions that rounding stays below that part

    __repr__ = brief

    @classmethod
    def of_rows(cls) -> Self:
        """k(x, x)."""
        return cls(np.empty(0, np.intp), np.empty((0, 0)))

    @classmethod
    def of_landmarks(cls, W: Array, numbers: Array, dtype: np.dtype[Any]) -> Self:
        """What these landmarks leave of a row, or as many of them as rounding allows."""
        U, _ = scipy.linalg.lapack.dpotrf(W[np.ix_(numbers, numbers)])
        P = np.triu(scipy.linalg.lapack.dtrtri(U)[0])
        # |P'v| is at most k(x, x)^(1/2), and |v| at most (l' k(x, x))^(1/2) times the largest k(s, s)^(1/2).
        squares = len(numbers) * float(np.diag(W).max()) * np.cumsum(np.sum(P**2, axis=0))
        count = int(np.count_nonzero(2 * np.finfo(dtype).eps * np.sqrt(squares) <= _ROUNDING))
        return cls(numbers[:count], np.ascontiguousarray(P[:count, :count].astype(dtype)))

    def __call__(self, V: Array, diagonal: Array) -> Array:
        """r (b,), float64, of features V (b, D) and k(x, x) (b,)."""
        k = np.abs(diagonal.astype(np.float64))
        if not len(self.numbers):
            return k
        B = columns_of(V, self.numbers) @ moved(self.P, V)
        return np.maximum(k - on_host(inner_products(B, B, np.float64)), 0) + _LEAST * k


@dataclass(frozen=True)
class Draw:
    """How a pass draws its rows."""

    measure: Measure
    most: int  # about the number of rows
    least: float  # threshold, so that a block keeps few more than its share
    seed: int
    before: int = 0  # rows of earlier passes: where the random numbers start


class Sampler:
    """Draws rows from the tiles of a block that begins with row `start`."""

    def __init__(self, draw: Draw, start: int) -> None:
        self._draw, self._at, self._tile = draw, draw.before + start, np.empty(0)
        self._parts: list[DrawnRows] = []
        self._held = 0  # rows drawn so far

    def see(self, X: Array) -> None:
        """Take note of the rows X (b, d) of the tile whose features come next."""
        self._tile = X

    def drawing(
        self, tiles: Iterable[tuple[Array, Array]], weights: Iterable[Array] | None = None
    ) -> Iterator[tuple[Array, Array]]:
        """The tiles (V, k(x, x)), after rows of each were drawn, with the weights (b,) of the rows of each."""
        draw = self._draw
        for (V, diagonal), given in zip(tiles, repeat(None) if weights is None else weights, strict=False):
            count = len(diagonal)
            w = np.ones(count) if given is None else given
            # Kernels of rows of weight 0 may overflow; a pass refuses other rows whose features do.
            measures = w * np.nan_to_num(np.where(w > 0, draw.measure(V, diagonal), 0), nan=0)
            # With rows of the tile, so that models of different rows, which may be merged, have different numbers.
            some = on_host(self._tile[::_CHECKED, :])
            # Equal values of one type have the same bytes: -0.0 + 0.0 = 0.0.
            stored = (some + some.dtype.type(0)).astype(some.dtype.newbyteorder("<")).tobytes()
            entropy = (draw.seed, DRAWN, self._at, zlib.crc32(stored))
            uniform = np.random.default_rng(entropy).random(count)
            kept = np.flatnonzero((uniform * draw.least < measures) & (w > 0))
            found = DrawnRows(
                on_host(rows_of(self._tile, kept)),
                w[kept],
                measures[kept],
                uniform[kept],
                draw.measure.numbers,
                count,
                float(measures.sum()),
                draw.least,
                draw.most,
            )
            self._parts.append(found)
            self._held += len(found.X)
            if self._held > _HELD * draw.most:
                self._parts = [self.found]
                self._held = len(self._parts[0].X)
            self._at += count
            yield V, diagonal

    @property
    def found(self) -> DrawnRows:
        """The rows drawn from all tiles seen."""
        found: DrawnRows = _joined(self._parts).thinned()
        return found
