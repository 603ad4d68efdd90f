"""Kernel PCA of a precomputed kernel matrix, which is checked and solved in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block
from bigkpca.data.rows import Rows, check_rows
from bigkpca.errors import Array, DataError, check_overflow
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine, fit_blocks
from bigkpca.execution.tasks import block_tasks
from bigkpca.fitting.certify import of_gram
from bigkpca.fitting.solve import components_choice
from bigkpca.numerics import solvers
from bigkpca.numerics.features import GivenKernels
from bigkpca.numerics.kernels import Precomputed
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model, Provenance
from bigkpca.spec import ResolvedFit

# Tolerance relative to sqrt(s_i s_j), by itemsize: larger than rounding, smaller than mistakes.
_ASYMMETRY = {2: 1e-2, 4: 1e-5, 8: 1e-8}
_FLAT = 1e-6  # diagonal entries below this share of the largest entry count as zero
_NEARLY = 1.01  # factor that allows for rounding of entries
_BAND = 512  # rows checked at once


def fit_precomputed(rows: Rows, fit: ResolvedFit, engine: Engine) -> Model:
    """Exact model of a precomputed kernel matrix.

    Raises DataError for NaN and infinity, for a matrix that is not symmetric, and for distances instead of kernels.
    """
    n, dtype, spec = fit.n, fit.dtype, fit.spec
    K = _read(rows, fit, engine)
    # Entries are rounded to the dtype of block work, or to the stored one if it is coarser.
    coarser = fit.stored.kind == "f" and fit.stored.itemsize < dtype.itemsize
    rounded_to = fit.stored if coarser else dtype
    _check_diagonal(rows, K)
    _symmetrise(rows, K, _ASYMMETRY[rounded_to.itemsize])
    largest, eps = float(max(K.max(), -K.min())), float(np.finfo(dtype).eps)
    error = eps * largest if dtype.itemsize < fit.stored.itemsize else 0.0
    # How negative rounding can make eigenvalues: the norm of a matrix of random errors.
    noise = 16 * float(np.finfo(rounded_to).eps) * float(_entry_scales(K).sum()) / float(np.sqrt(n))
    tolerance = rank_tolerance(dtype)
    with single_threaded_blas:
        solution = solvers.gram(
            K, spec.n_components, center=spec.center, tolerance=tolerance, positive=False, noise=noise
        )
        if solution.negative * solution.eigenvalues[0] >= -noise:
            solution = replace(solution, negative=0.0)
        certificate = of_gram(solution, largest, error, eps)
    features = GivenKernels(Precomputed(), np.zeros(n), dtype.name)
    provenance: Provenance = {"choices": components_choice(spec, solution)}
    return Model(features, solution, certificate=certificate, provenance=provenance)


def _read(rows: Rows, fit: ResolvedFit, engine: Engine) -> Array:
    """The matrix (n, n), float64, in one pass."""
    blocks, K = fit_blocks(rows, fit.spec.block_rows), np.empty((fit.n, fit.n))
    found = engine.each("reading the matrix", block_tasks(_strip, rows, blocks, (fit.dtype,)))
    for block, values in zip(blocks, found, strict=True):
        K[block.start : block.stop] = values
    return K


def _strip(rows: Rows, block: Block, dtype: np.dtype[Any]) -> Array:
    """The rows of a block, rounded to the dtype of block work."""
    stored = rows.block(block.start, block.stop)
    check_rows(rows, stored, block.start)
    with np.errstate(over="ignore"):
        values: Array = stored.astype(dtype)
    check_overflow(values, rows.where)
    return values


def _entry_scales(K: Array) -> Array:
    """s (n,) with |K_ij| <= sqrt(s_i s_j), the scale of rounding: K_ii if the matrix can be a kernel matrix; otherwise
    the largest |K_ij| of each row, e.g. for -D² / 2 of squared distances, whose diagonal is zero."""
    diagonal, largest = K.diagonal(), np.maximum(K.max(axis=1), -K.min(axis=1))
    may_be = diagonal.min() >= 0 and (largest**2 <= _NEARLY * diagonal * diagonal.max()).all()
    return diagonal.copy() if may_be else largest


def _check_diagonal(rows: Rows, K: Array) -> None:
    """Raise DataError unless the diagonal of K can be that of a kernel matrix: positive, or zero where a row is all
    zeros (squared lengths); zero throughout (-D² / 2); or of either sign."""
    diagonal, least, largest = K.diagonal(), float(K.min()), float(K.max())
    flat = np.abs(diagonal).max() <= _FLAT * max(largest, -least)
    zero = np.flatnonzero((diagonal == 0) & K.any(axis=1)).tolist()
    if flat and largest > 0 and least >= -_FLAT * largest:
        raise DataError(
            f"{rows.where}: the diagonal is 0 and no entry is negative, as in a matrix of distances D: convert "
            "distances to kernels with exp(-D² / (2 sigma²)), or with -D² / 2 for classical scaling"
        )
    if zero and not flat and diagonal.min() >= 0:
        raise DataError(
            f"{rows.where}: entry ({zero[0]}, {zero[0]}) is 0, but others in its row are not (counted from 0): if "
            "k(x, x) = 0, then k(x, y) = 0 for all y"
        )


def _symmetrise(rows: Rows, K: Array, tolerance: float) -> None:
    """Make K symmetric to the bit, so that all solvers see the same matrix. Raises DataError unless it is symmetric up
    to rounding."""
    roots = np.sqrt(_entry_scales(K))
    for start in range(0, len(K), _BAND):
        own = slice(start, start + _BAND)
        across, down = K[own, start:], K[start:, own].T
        excess = np.abs(across - down) - tolerance * np.outer(roots[own], roots[start:])
        if (excess > 0).any():
            i, j = (start + each for each in np.unravel_index(excess.argmax(), excess.shape))
            raise DataError(
                f"{rows.where} is not symmetric: entry ({i}, {j}) is {K[i, j]:.9g}, entry ({j}, {i}) is {K[j, i]:.9g} "
                "(counted from 0): correct the wrong entry; if the difference is only rounding, store (K + K.T) / 2"
            )
        mean = (across + down) / 2
        K[own, start:], K[start:, own] = mean, mean.T
