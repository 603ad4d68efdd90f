"""Feature maps v(x): what a row becomes before anything is added up.

A map turns tiles of rows into tiles of features. It prepares its work space once for a stream of tiles and
reuses it, so that a pass allocates nothing per tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels import Kernel


def shifted_rows(X: Array, offset: Array, out: Array) -> None:
    """out = X - offset, subtracted in the precision of X before it is rounded to the dtype of out.

    Data far from the origin (longitudes, time stamps) would otherwise lose their variation to rounding.
    """
    precision = np.result_type(X.dtype, out.dtype)
    np.subtract(X, offset.astype(precision), out=out, dtype=precision, casting="same_kind")


def shifted(X: Array, offset: Array, dtype: np.dtype[Any]) -> Array:
    """X - offset in the given dtype, (b, d)."""
    out = np.empty(X.shape, dtype)
    shifted_rows(X, offset, out)
    return out


@dataclass(frozen=True)
class KernelRows:
    """v(x) = (k(x, s_1), ..., k(x, s_l)) for landmarks S.

    landmarks (l, d) are stored relative to `offset` (d,), in the dtype of block work; the offset is
    subtracted from every row first, and is zero for kernels that are not functions of x - y.
    """

    name: ClassVar[str] = "kernel-rows"
    kernel: Kernel
    landmarks: Array  # (l, d)
    offset: Array  # (d,) float64

    @property
    def size(self) -> int:
        """D, the length of v(x)."""
        return len(self.landmarks)

    @property
    def columns(self) -> int:
        """d, the number of input columns."""
        return self.landmarks.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of block work."""
        return self.landmarks.dtype

    def tiles(self, X_tiles: Iterable[Array], most_rows: int) -> Iterator[tuple[Array, float]]:
        """For each tile X (b, d): (V (b, D), Σ k(x_i, x_i)).

        V lives in a work space that the next tile overwrites; the caller may overwrite it too.
        """
        evaluate = self.kernel.against(self.landmarks, most_rows)
        rows = np.empty((most_rows, self.columns), self.dtype)
        values = np.empty((most_rows, self.size), self.dtype)
        for X in X_tiles:
            tile, V = rows[: len(X)], values[: len(X)]
            shifted_rows(X, self.offset, tile)
            evaluate(tile, V)
            yield V, float(self.kernel.diagonal(tile).sum())

    def gram(self) -> Array:
        """W = k(S, S) in float64, from the landmarks as they are stored, (l, l), exactly symmetric."""
        S = self.landmarks.astype(np.float64)
        W = self.kernel(S, S)
        W += W.T  # elementwise from here on: rounding differs between the triangles
        W *= 0.5
        np.fill_diagonal(W, self.kernel.diagonal(S))
        return W

    def landmarks_in_user_units(self) -> Array:
        """The landmarks as rows like those of the data, (l, d), float64."""
        return self.landmarks.astype(np.float64) + self.offset
