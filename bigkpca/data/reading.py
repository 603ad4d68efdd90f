"""Reading rows: in consecutive tiles, or by row numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES, power_of_two
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.rows import Rows, little_endian
from bigkpca.errors import Array, check_finite
from bigkpca.numerics.aligned import aligned


def take(rows: Rows, numbers: Array) -> Array:
    """Rows of the given ascending numbers, (m, d); each storage chunk that holds one of them is read once.

    Raises DataError naming the first row that holds NaN or infinity.
    """
    if isinstance(rows, ArrayRows):
        found = aligned(rows.values[numbers - rows.first])
    else:
        # One read for adjacent chunks that all hold some of the rows, up to 4 MB.
        chunks = numbers // rows.grain
        pieces = chunks // max(1, READ_BYTES // (rows.shape[1] * rows.dtype.itemsize * rows.grain))
        apart = (np.diff(chunks) > 1) | (np.diff(pieces) > 0)
        groups = np.split(numbers, np.flatnonzero(apart) + 1)
        found = np.concatenate([rows.block(int(g[0]), int(g[-1]) + 1)[g - g[0]] for g in groups])
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        for number, row in zip(numbers, found, strict=True):
            check_finite(row[None], int(number), rows.where, names=rows.names)
    return found


def tiles(rows: Rows, start: int, stop: int, tile_rows: int, digest: Any = None) -> Iterator[Array]:
    """Rows start..stop in tiles of `tile_rows` rows, counted from `start`; the last tile may be shorter.

    Reads as `_pieces`. Checks every row for NaN and infinity, and adds the little-endian values to `digest`.
    """
    rest: Array | None = None
    for a, b, X in _pieces(rows, start, stop):
        check_finite(X, a, rows.where, names=rows.names)
        if digest is not None:
            digest.update(little_endian(X))
        if rest is not None:
            X = np.concatenate([rest, X])
        whole = len(X) if b >= stop else len(X) // tile_rows * tile_rows
        for at in range(0, whole, tile_rows):
            yield X[at : min(at + tile_rows, whole)]
        rest = X[whole:] if whole < len(X) else None


def digest_of_rows(rows: Rows, start: int, stop: int) -> str:
    """SHA-256 of the little-endian values of rows start..stop, as `tiles` adds them to its digest. One reading."""
    digest = hashlib.sha256()
    for _, _, X in _pieces(rows, start, stop):
        digest.update(little_endian(X))
    return digest.hexdigest()


def _pieces(rows: Rows, start: int, stop: int) -> Iterator[tuple[int, int, Array]]:
    """(a, b, rows a..b) of whole storage chunks, at most 4 MB at once (or one chunk, where that is larger), each chunk
    once; `start` is a multiple of `rows.grain`."""
    row_bytes = rows.shape[1] * rows.dtype.itemsize
    # The number of rows is a power of two, so that reads of bigkpca's own datasets end where tiles end.
    step = max(1, power_of_two(READ_BYTES // row_bytes) // rows.grain) * rows.grain
    for a in range(start, stop, step):
        b = min(a + step, stop)
        yield a, b, rows.block(a, b)
