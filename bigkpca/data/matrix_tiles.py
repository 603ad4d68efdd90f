"""Tiles of large matrices: some columns of some rows at a time, in whole storage chunks, each read once.

Rows of a precomputed kernel matrix have n entries, so not even a strip of rows fits in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from bigkpca.data.blocks import fit_block_rows, split
from bigkpca.data.dask import DaskRows
from bigkpca.data.rows import Rows, check_rows, little_endian
from bigkpca.errors import Array, SpecError

TILE_BYTES = 2**23  # one read, which takes longer than the product with it
PART_BYTES = 2**26  # sent to a task that cannot read the source itself
_STRIP_ROWS = 2048
_TALL = 512  # rows of a tile: with fewer, the vectors would cause more memory traffic than the matrix


@dataclass(frozen=True)
class Part:
    """A range of rows and a range of columns."""

    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    def within(self, outer: Part) -> tuple[slice, slice]:
        """Its rows and columns, counted from the first of `outer`."""
        a, b = outer.rows.start, outer.columns.start
        return slice(self.rows.start - a, self.rows.stop - a), slice(self.columns.start - b, self.columns.stop - b)


def check_square(rows: Rows) -> None:
    """Raise SpecError unless the matrix has as many columns as rows."""
    n, d = rows.shape
    if n != d:
        raise SpecError(
            f"{rows.where} has {n} rows and {d} columns: kernel='precomputed' needs the square matrix of kernels "
            "between all rows; if the rows are vectors, choose another kernel"
        )


def halves(rows: Rows) -> bool:
    """Whether only the upper half of a symmetric matrix can be read: chunks form squares on the diagonal."""
    height, width = rows.grid
    return height % width == 0


def parts(rows: Rows, block_rows: int | None, *, upper: bool) -> list[Part]:
    """The matrix divided into tasks: strips of rows, or parts of strips for sources that send them to tasks. With
    `upper`, the part to the left of the diagonal is left out, except for squares on it."""
    n, d = rows.shape
    height, width = rows.grid
    strips = split(n, fit_block_rows(n, height, block_rows or _STRIP_ROWS))
    found = []
    for strip in strips:
        first = strip.start if upper else 0
        most = max(1, PART_BYTES // (len(strip) * width * rows.dtype.itemsize)) * width
        step = most if isinstance(rows, DaskRows) else d
        found += [
            Part(slice(strip.start, strip.stop), slice(left, min(left + step, d))) for left in range(first, d, step)
        ]
    return found


def matrix_tiles(rows: Rows, part: Part, *, upper: bool = False, digest: Any = None) -> Iterator[tuple[Part, Array]]:
    """The tiles of a part with their values, about 8 MB each, or one chunk if that is larger. With `upper`, the part to
    the left of the diagonal is left out, except for squares on it that are one tile high. Checks every value for NaN
    and infinity, and adds the little-endian values to `digest`."""
    height, width = tile_shape(rows)
    for a in range(part.rows.start, part.rows.stop, height):
        numbers = slice(a, min(a + height, part.rows.stop))
        first = max(a, part.columns.start) if upper else part.columns.start
        for left in range(first, part.columns.stop, width):
            columns = slice(left, min(left + width, part.columns.stop))
            K = rows.block(numbers.start, numbers.stop, columns)
            check_rows(rows, K, a, left)
            if digest is not None:
                digest.update(little_endian(K))
            yield Part(numbers, columns), K


def tile_shape(rows: Rows) -> tuple[int, int]:
    """(rows, columns) of a tile: about 8 MB of whole chunks, at least one, 512 rows high where chunks allow it."""
    (height, width), itemsize = rows.grid, np.result_type(rows.dtype, np.float32).itemsize
    tall = height * max(1, min(_TALL, TILE_BYTES // (width * itemsize)) // height)
    return tall, width * max(1, TILE_BYTES // (tall * width * itemsize))


def read_bytes(rows: Rows) -> int:
    """Bytes of one read: of a tile, or of the whole matrix if that is smaller."""
    height, width = tile_shape(rows)
    n, d = rows.shape
    return min(height, n) * min(width, d) * np.result_type(rows.dtype, np.float32).itemsize


def upper_share(rows: Rows) -> float:
    """The share of a square matrix that is read when its upper half is sufficient."""
    bands = ceil(rows.shape[0] / tile_shape(rows)[0])
    return (bands + 1) / (2 * bands) if halves(rows) else 1.0
