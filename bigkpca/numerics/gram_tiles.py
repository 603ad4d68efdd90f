"""Products K B of the Gram matrix with a block of vectors, tile by tile; symmetry saves half of the tiles."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels import Kernel


def add_strip(
    out: Array, kernel: Kernel, B: Array, rows: slice, X: Array, later: Iterable[tuple[slice, Array]], tile_rows: int
) -> None:
    """Add to out (n, c) the contributions to K B of the tiles K_II and K_IJ of rows I and all later rows J.

    K_II B_I and Σ K_IJ B_J go to rows I, K_IJ'B_I to rows J. X (b, d) are the rows I, numbered `rows`; `later` yields
    (numbers, rows) of the others in order. B (n, c) has the dtype of X; tiles have at most `tile_rows` rows, and are
    added up in float64.
    """
    evaluate = kernel.against(X, tile_rows)
    work = np.empty((tile_rows, len(X)), X.dtype)
    for numbers, Y in _with_own(rows, X, later):
        for start in range(0, len(Y), tile_rows):
            piece = Y[start : start + tile_rows]
            K = work[: len(piece)]
            evaluate(piece, K)
            where = slice(numbers.start + start, numbers.start + start + len(piece))
            out[rows] += K.T @ B[where]
            if numbers != rows:
                out[where] += K @ B[rows]


def add_tile(out: Array, B: Array, rows: slice, columns: slice, K: Array, *, mirrored: bool) -> None:
    """Add to out (n, c) the contribution to K B of the tile K at rows I and columns J of a symmetric matrix.

    K B_J goes to rows I. With `mirrored`, the part to the right of the square on the diagonal, i.e. columns from
    rows.stop on, stands for its mirror image too, and K'B_I goes to rows J. B (n, c) has the dtype of K.
    """
    out[rows] += K @ B[columns]
    if mirrored and columns.stop > rows.stop:
        first = max(columns.start, rows.stop)
        out[first : columns.stop] += K[:, first - columns.start :].T @ B[rows]


def _with_own(rows: slice, X: Array, later: Iterable[tuple[slice, Array]]) -> Iterable[tuple[slice, Array]]:
    """The rows of the strip themselves, then the later ones."""
    yield rows, X
    yield from later
