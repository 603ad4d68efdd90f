"""The rows from which the error of landmarks is bounded and estimated: drawn in the pass itself, each with a
probability in proportion to what a part of the landmarks leaves unexplained of it.

Source: `docs/numerics.md`, section 14.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import repeat
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.array_api import columns_of, inner_products, moved, on_host, rows_of
from bigkpca.numerics.display import brief
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.random_streams import UNSEEN
from bigkpca.numerics.span import Basis, Span, nested, part_size

SAMPLED_ROWS = 2048  # expected number: the bound is at least 3 / 2048 of all residuals, and the work grows with m²
_STEP = 4  # residuals are those of every 4th landmark: 1/16 of the work for all of them
_LEAST = 2.0**-8  # of k(x, x): the least residual
_ROUNDING = _LEAST / 2  # of k(x, x): the largest rounding error of |P'v|² that is allowed
_HELD = 4  # times the expected number of rows: a block that has drawn more thins them
_CHECKED = 8  # a checksum is of every 8th row of a tile


_Sample = TypeVar("_Sample", bound="ResidualSample")


@dataclass(frozen=True)
class ResidualSample:
    """Rows X (m, d) drawn independently from `count`, in the units and dtype of the data.

    Row i is drawn if u_i < r_i / threshold, for a random number u_i of its own that is uniform on [0, 1), and its
    residual r_i, which is at least what the landmarks leave unexplained of w_i k(x_i, x_i), with its weight w_i. So its
    probability is min(1, r_i / threshold), and 1 with a threshold of 0. About `most` rows are drawn, all if there are
    no more. The threshold does not depend on the random numbers, since rows that are drawn for certain are known: so
    each row is drawn independently of all others.
    """

    X: Array
    residuals: Array  # r (m,)
    uniform: Array  # u (m,)
    count: int
    total: float  # Σ r_i over all rows
    threshold: float
    most: int
    weights: Array | None = field(default=None, kw_only=True)  # w (m,); 1 if there are none

    __repr__ = brief

    def __add__(self, other: ResidualSample) -> Self:
        """The sample of both sets of rows together."""
        found: Self = _joined(self, other).thinned()
        return found

    def thinned(self) -> Self:
        """The sample with the threshold that its number of rows and its total need."""
        needed = threshold_of(self.residuals, self.total, self.most) if self.count > self.most else 0.0
        threshold = max(self.threshold, needed)
        kept = self.uniform * threshold < self.residuals
        return replace(_part(self, kept), threshold=threshold)

    @property
    def own_weights(self) -> Array:
        """The weight of each row, (m,)."""
        return np.ones(len(self.X)) if self.weights is None else self.weights

    @property
    def probabilities(self) -> Array:
        """The probability with which each row was drawn, (m,)."""
        if not self.threshold:
            return np.ones(len(self.X))
        return np.minimum(1, self.residuals / self.threshold)


def _part(sample: _Sample, kept: Array) -> _Sample:
    """Some rows of a sample (m,), which is of the same kind."""
    if kept.all():
        return sample
    parts = {name: getattr(sample, name)[kept] for name in ("X", "residuals", "uniform")}
    return replace(sample, weights=None if sample.weights is None else sample.weights[kept], **parts)


def _joined(*parts: Any) -> Any:
    """The rows of all samples, as a sample of the kind of the first, with the largest of their thresholds."""
    joined = {name: np.concatenate([getattr(each, name) for each in parts]) for name in ("X", "residuals", "uniform")}
    weighted = any(each.weights is not None for each in parts)
    return replace(
        parts[0],
        count=sum(each.count for each in parts),
        total=sum(each.total for each in parts),
        threshold=max(each.threshold for each in parts),
        weights=np.concatenate([each.own_weights for each in parts]) if weighted else None,
        **joined,
    )


@dataclass(frozen=True)
class DrawnRows(ResidualSample):
    """The rows that a model keeps of those that its passes drew, and in which directions.

    directions: number of directions from which residuals are known. kept: number of directions of the span that exceed
    rounding. cholesky, eigenvectors: whether the former are of Cholesky's factor of W, and whether any of the latter
    are eigenvectors. Raises SpecError for numbers that no pass makes.
    """

    directions: int
    kept: int
    cholesky: bool
    eigenvectors: bool

    shapes: ClassVar[dict[str, tuple[str, ...]]] = {
        "X": ("u", "d"),
        "residuals": ("u",),
        "uniform": ("u",),
        "weights": ("u",),
    }

    def __post_init__(self) -> None:
        numbers = self.residuals >= 0, self.uniform >= 0, self.uniform < 1, self.own_weights > 0
        sizes = len(self.X) <= self.count and self.total >= 0 and self.threshold >= 0 and self.most > 0
        if not (sizes and 0 <= self.directions <= self.kept and all(each.all() for each in numbers)):
            raise SpecError("the rows that were drawn have numbers that no fit makes")

    @classmethod
    def of(cls, sample: ResidualSample, residuals: Residuals, span: Span) -> Self:
        """The sample, with directions of this span."""
        given = {part.name: getattr(sample, part.name) for part in fields(ResidualSample)}
        return cls(
            **given,
            directions=residuals.P.shape[1],
            kept=len(span.basis.signs),
            cholesky=span.basis.triangular or span.basis.leading > 0,
            eigenvectors=not span.basis.triangular,
        )


def threshold_of(residuals: Array, total: float, most: int) -> float:
    """The t with Σ min(1, r / t) = most, over residuals r of the sum `total`; all r >= t are among `residuals`."""
    r = np.append(np.sort(residuals)[::-1], 0.0)[:most]
    rest = np.maximum(total - (np.cumsum(r) - r), 0)  # without the k largest
    found = rest / (most - np.arange(len(r)))
    return float(found[np.argmax(r < found)] if (r < found).any() else found[-1])


def least_threshold(residuals: Array, shares: Array, most: int) -> float:
    """A t that is rarely larger than `threshold_of` all rows, from those of a random sample (q,), each of which stands
    for `shares` (q,) of them: the largest one for which Σ min(r, t) >= most t, by the estimate of that sum less three
    standard errors."""
    order = np.argsort(residuals)
    r, c = residuals[order], shares[order]
    below = np.minimum(r, r[:, None])
    enough = (below @ c - 3 * np.sqrt(below**2 @ c**2)) / most
    if not np.isfinite(enough).all():
        return 0.0
    return float(enough[-1]) if enough[-1] >= r[-1] else float(r[enough >= r].max(initial=0.0))


@dataclass(frozen=True)
class Residuals:
    """r(x) = k(x, x) - |P'v(x)|² for some coordinates P'v(x) in the span of landmarks, at least 1/256 of k(x, x).

    numbers (l',) are those of the landmarks, P (l', q) leading columns of a `Basis`, in the dtype of block work: few
    enough that rounding stays below that part. So no part of the span that contains these q directions leaves more.
    """

    numbers: Array
    P: Array

    __repr__ = brief

    @classmethod
    def of(cls, basis: Basis, dtype: np.dtype[Any], count: int | None = None) -> Self:
        """Those of every 4th landmark; for eigenvectors, of a sixteenth of them. Of `count` directions, or as many as
        rounding allows."""
        l, of_part = len(basis.W), part_size(len(basis.W), _STEP)  # noqa: E741
        if basis.triangular:
            numbers, P = nested(l)[:of_part], basis.P[nested(l)[:of_part], :of_part]
        else:
            numbers, P = np.arange(l), basis.P[:, : part_size(l, _STEP**2)]
        # |P'v| is at most k(x, x)^(1/2), and |v| at most (l' k(x, x))^(1/2) times the largest k(s, s)^(1/2).
        if count is None:
            squares = len(numbers) * float(np.diag(basis.W).max()) * np.cumsum(np.sum(P**2, axis=0))
            count = int(np.count_nonzero(2 * np.finfo(dtype).eps * np.sqrt(squares) <= _ROUNDING))
        return cls(numbers, np.ascontiguousarray(P[:, :count].astype(dtype)))

    def hold(self, features: KernelRows, X: Array) -> bool:
        """Whether no r of rows X (b, d) is too small by rounding in the dtype of block work."""
        few = replace(features, landmarks=features.landmarks[self.numbers])
        own = replace(self, numbers=np.arange(few.size))
        with np.errstate(over="ignore", invalid="ignore"):
            ((V, diagonal),) = few.tiles([X], len(X))
            ((exact, values),) = few.in_precision(np.dtype(np.float64)).tiles([X], len(X))
            B = exact @ self.P
            return bool((own(V, diagonal) >= values - np.einsum("ij,ij->i", B, B)).all())

    def __call__(self, V: Array, diagonal: Array) -> Array:
        """r (b,), float64, of features V (b, l) and k(x, x) (b,)."""
        B = columns_of(V, self.numbers) @ moved(self.P, V)
        left = diagonal.astype(np.float64) - on_host(inner_products(B, B, np.float64))
        return np.maximum(left, 0) + _LEAST * np.abs(diagonal)


@dataclass(frozen=True)
class Draw:
    """How a pass draws its rows: about `most`, by these residuals; not with a threshold below `least`, so that a block
    keeps few more than its share. seed and `before`, the number of rows of earlier passes, start the random numbers."""

    residuals: Residuals
    most: int
    least: float
    seed: int
    before: int = 0


def _as_stored_anywhere(X: Array) -> bytes:
    """The bytes of X, the same for equal values of one type."""
    return (X + X.dtype.type(0)).astype(X.dtype.newbyteorder("<")).tobytes()  # -0.0 + 0.0 = 0.0


class Sampler:
    """Draws rows from the tiles of a block that begins with row `start`."""

    def __init__(self, draw: Draw, start: int) -> None:
        self._draw, self._at, self._tile = draw, draw.before + start, np.empty(0)
        self._parts: list[ResidualSample] = []
        self._held = 0  # rows drawn so far

    def see(self, X: Array) -> None:
        """Remember the rows X (b, d) of the tile whose features come next."""
        self._tile = X

    def drawing(
        self, tiles: Iterable[tuple[Array, Array]], weights: Iterable[Array] | None = None
    ) -> Iterator[tuple[Array, Array]]:
        """The tiles (V, k(x, x)), after rows of each were drawn, with the weights (b,) of the rows of each."""
        draw = self._draw
        for (V, diagonal), w in zip(tiles, repeat(None) if weights is None else weights, strict=False):
            residuals, count = draw.residuals(V, diagonal), len(diagonal)
            if w is not None:
                residuals[w == 0] = 0  # which may be infinite
                residuals *= w
            # With rows of the tile, so that models of different rows, which may be merged, have different numbers.
            some = on_host(self._tile[::_CHECKED, :])
            entropy = (draw.seed, UNSEEN, self._at, zlib.crc32(_as_stored_anywhere(some)))
            uniform = np.random.default_rng(entropy).random(count)
            kept = np.flatnonzero(uniform * draw.least < residuals)
            found = ResidualSample(
                on_host(rows_of(self._tile, kept)),
                residuals[kept],
                uniform[kept],
                count,
                float(residuals.sum()),
                draw.least,
                draw.most,
                weights=None if w is None else w[kept],
            )
            self._parts.append(found)
            self._held += len(found.X)
            if self._held > _HELD * draw.most:
                self._parts = [self.found]
                self._held = len(self._parts[0].X)
            self._at += count
            yield V, diagonal

    @property
    def found(self) -> ResidualSample:
        """The rows drawn from all tiles seen."""
        found: ResidualSample = _joined(*self._parts).thinned()
        return found
