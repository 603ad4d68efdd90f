"""Kernel PCA of a precomputed kernel matrix that fits in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bigkpca.data.matrix_tiles import parts
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.fitting.precomputed_checks import (
    ASYMMETRY,
    BAND,
    check_matrix_diagonal,
    check_symmetry,
    combined_digest,
    entry_dtype,
    entry_scales,
    read_part,
    rounding_noise,
    share_above_noise,
    tasks_by_part,
)
from bigkpca.numerics import gram_solver
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.linalg import Map, rank_tolerance
from bigkpca.spec import ResolvedFit


def read_matrix(rows: Rows, fit: ResolvedFit, engine: Engine, progress: Progress) -> tuple[Array, str]:
    """Read the matrix (n, n), float64, with a digest of it: one pass.

    Raises DataError for NaN and infinity, for a matrix that is not symmetric, and for distances in place of kernels;
    CorruptionError if such entries lie in a chunk that is not stored.
    """
    dtype, cut = fit.dtype, parts(rows, fit.spec.block_rows, upper=False)
    found = engine.each("reading the matrix", tasks_by_part(read_part, rows, cut, dtype), progress)
    K = np.empty(rows.shape)
    for part, (values, _) in zip(cut, found, strict=True):
        K[part.rows, part.columns] = values
    tolerance, found_sizes = ASYMMETRY[entry_dtype(fit).itemsize], entry_scales_of(K)
    check_matrix_diagonal(rows, K.diagonal(), K, float(K.min()), float(K.max()))
    for start in range(0, len(K), BAND):
        numbers = np.arange(start, min(start + BAND, len(K)))
        check_symmetry(rows, numbers, K[numbers], K[:, numbers].T, found_sizes, tolerance)
    _make_symmetric(K)
    return K, combined_digest([digest for _, digest in found])


def _make_symmetric(K: Array) -> None:
    """Replace K by (K + K') / 2 in place, so that rounding does not make solvers see another matrix."""
    for start in range(0, len(K), BAND):
        own = slice(start, start + BAND)
        mean = (K[own, start:] + K[start:, own].T) / 2
        K[own, start:], K[start:, own] = mean, mean.T


def entry_scales_of(K: Array) -> Array:
    """`entry_scales` (n,) of a matrix in memory."""
    return entry_scales(K.diagonal(), np.maximum(K.max(axis=1), -K.min(axis=1)))


def solve_matrix(fit: ResolvedFit, K: Array, components: int | float | None, in_order: Map) -> Solution:
    """Exact solution of the matrix K (n, n), which is overwritten."""
    noise = rounding_noise(float(entry_scales_of(K).sum()), len(K), entry_dtype(fit))
    tolerance = rank_tolerance(fit.dtype)
    found = gram_solver.gram(
        K, components, center=fit.spec.center, tolerance=tolerance, positive=False, noise=noise, in_order=in_order
    )
    largest = found.eigenvalues[0]
    return replace(found, negative=share_above_noise(found.negative * largest, largest, noise))
