"""Check a precomputed kernel matrix: symmetry, diagonal, precision of its entries."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from bigkpca.data.matrix_tiles import Part, matrix_tiles
from bigkpca.data.rows import Rows
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import Array, BigKPCAError, CorruptionError, DataError, check_overflow
from bigkpca.execution.tasks import Task
from bigkpca.spec import ResolvedFit

ASYMMETRY = {
    2: 1e-2,
    4: 1e-5,
    8: 1e-8,
}  # tolerance relative to sqrt(s_i s_j), by itemsize: above rounding, below mistakes
FLAT = 1e-6  # diagonal entries below this share of the largest entry count as zero
NEARLY = 1.01  # factor that allows for rounding of entries
BAND = 512  # rows checked at once


def tasks_by_part(function: Any, rows: Rows, cut: list[Part], *given: Any) -> list[Task]:
    """One task for each part; progress counts the rows of a strip once, with its last part."""
    return [
        Task(
            function,
            (rows.part(p.rows.start, p.rows.stop, p.columns), p, *given),
            p.shape[0] if p.columns.stop == rows.shape[1] else 0,
            f"{rows.where}, rows {p.rows.start} to {p.rows.stop - 1}",
        )
        for p in cut
    ]


def read_part(rows: Rows, part: Part, dtype: np.dtype[Any]) -> tuple[Array, str]:
    """The entries of a part, and their digest."""
    values, digest = np.empty(part.shape, dtype), hashlib.sha256()
    with np.errstate(over="ignore"):
        for at, K in matrix_tiles(rows, part, digest=digest):
            values[at.within(part)] = K
    check_overflow(values, rows.where)
    return values, digest.hexdigest()


def combined_digest(digests: list[str]) -> str:
    """One digest of the digests of all parts, in order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def entry_scales(diagonal: Array, largest: Array) -> Array:
    """s (n,) with |K_ij| <= sqrt(s_i s_j), the scale against which rounding of K_ij is small.

    K_ii where the matrix can be one of kernels; else the `largest` |K_ij| of each row, e.g. for -D² / 2 of squared
    distances, whose diagonal is zero.
    """
    may_be = diagonal.min() >= 0 and (largest**2 <= NEARLY * diagonal * diagonal.max()).all()
    return diagonal if may_be else largest


def entry_dtype(fit: ResolvedFit) -> np.dtype[Any]:
    """The dtype to which entries are rounded: that of block work, or the stored one if it is coarser."""
    stored = fit.stored
    return min(stored, fit.dtype, key=lambda dtype: dtype.itemsize) if stored.kind == "f" else fit.dtype


def rounding_noise(total: float, n: int, dtype: np.dtype[Any]) -> float:
    """How negative rounding can make the eigenvalues of a positive semidefinite matrix (n, n).

    `total` is the sum of its `entry_scales`. The bound is a few eps sqrt(n) times their mean, the norm of a matrix of
    random errors.
    """
    return 16 * float(np.finfo(dtype).eps) * total / float(np.sqrt(n))


def share_above_noise(lowest: float, largest: float, noise: float) -> float:
    """The lowest eigenvalue as a share of the largest; 0 if it is within the noise."""
    return lowest / largest if lowest < -noise else 0.0


def check_matrix_diagonal(rows: Rows, diagonal: Array, seen: Array, least: float, largest: float) -> None:
    """Raise an error unless the diagonal (n,) can be that of a kernel matrix.

    It may be positive, or zero where a row is all zeros (squared lengths); zero throughout (-D² / 2); or of either
    sign. Entries lie between `least` and `largest`. A row of the matrix is zero, or equal to another, if the same holds
    for its row of `seen` (n, p).
    """
    flat = np.abs(diagonal).max() <= FLAT * max(largest, -least)
    zero = np.flatnonzero((diagonal == 0) & seen.any(axis=1)).tolist()
    for i in zero:
        if (hole := missing_chunk(rows, (i, i))) and not (flat and _chunk_rows_equal(rows, seen, i)):
            raise hole
    if flat and largest > 0 and least >= -FLAT * largest:
        raise DataError(
            f"{rows.where}: the diagonal is 0 and no entry is negative, as in a matrix of distances D: distances D are "
            "made kernels by exp(-D² / (2 sigma²)), or -D² / 2 for classical scaling"
        )
    if zero and not flat and diagonal.min() >= 0:
        raise DataError(
            f"{rows.where}: entry ({zero[0]}, {zero[0]}) is 0, and others of its row are not (counted from 0): where "
            "k(x, x) = 0, k(x, y) = 0 for all y"
        )


def _chunk_rows_equal(rows: Rows, seen: Array, i: int) -> bool:
    """Whether all rows of the chunk that holds entry (i, i) are equal, i.e. at distance 0 of each other.

    Such a chunk of a distance matrix is all zeros, and need not be stored.
    """
    assert isinstance(rows, ZarrRows)
    chunk = rows.unstored(i, i)
    return chunk is not None and bool(np.ptp(seen[chunk[0]], axis=0).max() <= FLAT * np.abs(seen[i]).max())


def check_symmetry(rows: Rows, numbers: Array, values: Array, mirrored: Array, scales: Array, tolerance: float) -> None:
    """Raise an error unless rows `values` (b, n) of K equal its columns `mirrored` (b, n) up to rounding."""
    roots = np.sqrt(scales)
    apart = np.abs(values - mirrored) - tolerance * np.outer(roots[numbers], roots)
    if (apart > 0).any():
        k, j = divmod(int(apart.argmax()), apart.shape[1])
        i = int(numbers[k])
        raise missing_chunk(rows, (i, j), (j, i)) or DataError(
            f"{rows.where} is not symmetric: entry ({i}, {j}) is {values[k, j]:.9g}, entry ({j}, {i}) is "
            f"{mirrored[k, j]:.9g} (counted from 0): correct what is wrong; where it is rounding alone, store "
            "(K + K.T) / 2"
        )


def missing_chunk(rows: Rows, *entries: tuple[int, int]) -> BigKPCAError | None:
    """The error for the first of these entries that lies in a chunk that is not stored; None if there is none."""
    for row, column in entries:
        if isinstance(rows, ZarrRows) and (hole := rows.unstored(row, column)):
            tall, wide = hole
            return CorruptionError(
                f"{rows.where}: the chunk of rows {tall.start} to {tall.stop - 1}, columns {wide.start} to "
                f"{wide.stop - 1} is not stored, but its mirror image or its rows are not zero; write it again"
            )
    return None
