"""The leading principal subspace, in which landmarks may lie: how many axes it needs, and which they are.

Landmarks in the span of p of d axes cost p (d + l) operations for a row instead of d l. They lose what the other axes
contribute to kernels, at most n g v of each eigenvalue for the largest variance v along an axis that is left out. The
rule asks that this be no more than landmarks miss anyway. Source: `docs/numerics.md`, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.features import Columns
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.linalg import eigh_descending, in_parts
from bigkpca.numerics.solvers import starting_block

LEADING = 48  # axes that decide: centres are compared on these, and they are found from all rows
MEASURED_ROWS, _TAIL = 512, 100
_KNOWN = 64  # eigenvalues of the Gram matrix of the measured rows that are estimated; those beyond continue their decay
_AXES_ROWS = 4000
_MULTIPLE = 8  # of axes
_MOST = 512  # axes
_SPARE = 4  # for so many axes, one more is searched, to find them well
_LOST = 0.4  # of the number of variances in a sample, for each of its rows
_FAR = 32  # lengths
_TYPICAL = 128  # axes that are searched
_MISSED = 96.0  # landmarks for which those missed are about as large as eigenvalue 32: smaller ones keep more axes
_PARTS, _TILE_ROWS = 2, 1024  # of sums over sampled rows, and at a time


def rate(kernel: Kernel, X: Array) -> float:
    """g: how much k(x, y) grows with the inner product of what is orthogonal to the rest of both rows X (m, d): k'(0)
    for kernels of |x - y|² / -2, and f'(|x|²) for kernels f(<x, y>)."""
    size = float(np.mean(np.einsum("ij,ij->i", X, X, dtype=np.float64)))
    step = 1e-3 * np.sqrt(size)
    ends = np.array([[np.sqrt(size), step], [np.sqrt(size), -step]])
    (same, apart) = kernel(ends, ends)[0]
    return float((same - apart) / (2 * step**2)) if size else 0.0


def spectrum(kernel: Kernel, X: Array) -> Array:
    """The leading eigenvalues (64,), for each row, of the centred Gram matrix of all rows, from some of them, X (m, d):
    those of a sample are too large by about the mean of the small ones. Empty if kernels overflow."""
    K = kernel(X, X)
    if not np.isfinite(K).all():
        return np.empty(0)
    means = K.mean(axis=0)
    values = np.linalg.eigvalsh(K - means - means[:, None] + means.mean())[::-1] / len(K)
    return np.asarray(values[:_KNOWN] - values[_TAIL:].sum() / len(K))


def missed(values: Array, components: int, size: int) -> float:
    """What landmarks may leave of an eigenvalue, for each row: at most the last one that is wanted, and about the 32nd
    for 96 landmarks, from where it decays with their number as eigenvalues do."""
    if len(values) < _KNOWN or values[47] <= 0:
        return 0.0
    decay = max(1.0, float(np.log(values[11] / values[47]) / np.log(4)))
    wanted = float(values[min(components, 48) - 1]) * (48 / max(components, 48)) ** decay
    return min(wanted, float(values[31]) * (_MISSED / size) ** decay)


def most_axes(n: int, sampled: int, d: int, size: int) -> int:
    """The most axes for which a fit of n rows, `sampled` of them for the landmarks, and the scores of these rows take
    no more operations than with landmarks (size, d): at most half of the columns and 512, and 0 for fewer than 48,
    which save little."""
    found = LEADING * d * 2 * n + _AXES_ROWS * d * 4 * _TYPICAL - sampled * d * 2 * LEADING
    p = (2 * n * d * size - found) // (2 * n * (d + size) + 3 * sampled * d)
    most = min(p, d // 2, _MOST) // _MULTIPLE * _MULTIPLE
    return most if most >= LEADING else 0


def working_bytes(sampled: int, d: int, most: int, itemsize: int) -> int:
    """Bytes at work while axes are found, and the coordinates of sampled rows on them, beside those rows."""
    finder = itemsize * _AXES_ROWS * d + 8 * d * 5 * min(d, _wider(2 * most))
    return max(finder, itemsize * 2 * sampled * most)


def leading_axes(
    columns: Columns, X: Array, measured: Array, enough: float, most: int, rng: np.random.Generator
) -> Array | None:
    """The leading axes (d, p) of rows X (m, d) about the offset, orthonormal and descending, as few as leave no axis
    with a variance above `enough`: a multiple of 8. None if these are more than `most`, or none, if rows are far from
    all others, and if their products overflow. A few `measured` rows, shifted, tell about how many there will be.

    A range finder with one power step on 4000 rows (Halko, Martinsson and Tropp 2011, *SIAM Review* 53). The axes
    beyond the first 48 are then refined by one product over all rows.
    """
    products = measured @ measured.T
    if not np.isfinite(products).all():
        return None
    about = int(np.count_nonzero(np.linalg.eigvalsh(products) > enough * len(measured)))
    if not 0 < about <= most:
        return None
    some = columns.shifted(X[np.sort(rng.choice(len(X), min(len(X), _AXES_ROWS), replace=False))])
    if has_far(columns.kernel, some, measured):
        return None
    widest = min(columns.columns, _wider(most))
    # The smaller variances of a sample are too small, more so the nearer their number is to that of its rows.
    width = min(_wider(int(about / (1 - _LOST * about / len(measured)))), widest)
    while True:
        Q = np.linalg.qr(_scatter(some, starting_block(columns.columns, width, rng)))[0]
        image = _scatter(some, Q)
        if not np.isfinite(image).all():
            return None
        squares, S = eigh_descending(image.T @ image)
        p = -(-int(np.count_nonzero(squares > (enough * len(some)) ** 2)) // _MULTIPLE) * _MULTIPLE
        if not 0 < p <= most:
            return None
        if _wider(p) <= width or width == widest:  # the last of the values are too small
            return _refined(columns, X, np.linalg.qr(image @ S[:, :p])[0])  # orthonormal whatever the rank
        width = min(_wider(p) + width // _SPARE, widest)


def has_far(kernel: Kernel, X: Array, others: Array) -> bool:
    """Whether some of the rows X (m, d) are more than 32 lengths of the kernel from the offset, the length at `others`:
    there the rounding of |x|² - |V'x|² is as large as distances between neighbours."""
    return bool((rate(kernel, others) * squared_norms(X) > _FAR**2 * np.abs(kernel.diagonal(X))).any())


def _wider(axes: int) -> int:
    return axes + axes // _SPARE + 2 * _MULTIPLE


def _scatter(X: Array, Q: Array) -> Array:
    """X'(X Q) (d, q), float64, of shifted rows X."""
    Q = Q.astype(X.dtype)
    return _summed(lambda own: X[own].T @ (X[own] @ Q), len(X))


def _refined(columns: Columns, X: Array, axes: Array) -> Array:
    """Axes of which those beyond the first 48 are multiplied by the scatter of rows X (m, d)."""
    others = axes[:, LEADING:].astype(columns.dtype)

    def of_tile(own: slice) -> Array:
        rows = columns.shifted(X[own])
        return rows.T @ (rows @ others)

    return np.linalg.qr(np.hstack([axes[:, :LEADING], _summed(of_tile, len(X))]))[0] if others.size else axes


def _summed(of_tile: Callable[[slice], Array], count: int) -> Array:
    """The sum over tiles of so many rows, float64: the same bits for any number of threads."""
    step = -(-count // (_PARTS * _TILE_ROWS)) * _TILE_ROWS

    def of_part(start: int) -> Array:
        stop = min(start + step, count)
        tiles = (slice(first, min(first + _TILE_ROWS, stop)) for first in range(start, stop, _TILE_ROWS))
        return np.asarray(sum(of_tile(own).astype(np.float64) for own in tiles))

    return np.asarray(sum(in_parts(of_part, range(0, count, step))))


def coordinates(columns: Columns, X: Array, axes: Array) -> Array:
    """Coordinates (m, p) of rows X (m, d) on axes (d, p), in the dtype of block work."""
    tiles = in_parts(lambda start: columns.shifted(X[start : start + _TILE_ROWS]) @ axes, range(0, len(X), _TILE_ROWS))
    return np.concatenate(tiles)


def contracted(axes: Array, dtype: np.dtype[Any]) -> Array:
    """Orthonormal axes (d, p) in a dtype, so much shorter that rounding makes none of their combinations longer."""
    return np.ascontiguousarray((axes * (1 - 16 * np.finfo(dtype).eps)).astype(dtype))
