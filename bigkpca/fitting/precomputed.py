"""Kernel PCA of a precomputed kernel matrix, which is checked and solved in memory."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block
from bigkpca.data.rows import Rows, check_rows, little_endian
from bigkpca.errors import Array, DataError, check_overflow
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine, fit_blocks
from bigkpca.execution.tasks import block_tasks
from bigkpca.fitting.certify import of_gram
from bigkpca.fitting.solve import chosen_components
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import GivenKernels
from bigkpca.numerics.kernels import Precomputed
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.spec import ResolvedFit

# Tolerance relative to sqrt(s_i s_j), by itemsize: larger than rounding, smaller than mistakes.
ASYMMETRY = {2: 1e-2, 4: 1e-5, 8: 1e-8}
FLAT = 1e-6  # diagonal entries below this share of the largest entry count as zero
NEARLY = 1.01  # factor that allows for rounding of entries
BAND = 512  # rows checked at once


def fit_precomputed(rows: Rows, fit: ResolvedFit, engine: Engine) -> Model:
    """Exact model of a precomputed kernel matrix."""
    n, dtype, spec = fit.n, fit.dtype, fit.spec
    K, digest = read_matrix(rows, fit, engine)
    largest, eps = float(max(K.max(), -K.min())), float(np.finfo(dtype).eps)
    error = eps * largest if dtype.itemsize < fit.stored.itemsize else 0.0
    with single_threaded_blas:
        solution = solve_matrix(fit, K)
        certified = of_gram(solution, largest, error, eps)
    found = chosen_components(spec, solution, certified)
    features = GivenKernels(Precomputed(), np.zeros(n), dtype.name)
    return found.model(features, {"content": digest, "choices": list(found.choices)})


def read_matrix(rows: Rows, fit: ResolvedFit, engine: Engine) -> tuple[Array, str]:
    """Read the matrix (n, n), float64, with its digest, in one pass.

    Raises DataError for NaN and infinity, for a matrix that is not symmetric, and for distances instead of kernels.
    """
    n = fit.n
    blocks, digest, K = fit_blocks(rows, fit.spec.block_rows), hashlib.sha256(), np.empty((n, n))
    found = engine.each("reading the matrix", block_tasks(_strip, rows, blocks, (fit.dtype,)))
    for block, (values, of_block) in zip(blocks, found, strict=True):
        K[block.start : block.stop] = values
        digest.update(of_block.encode())
    tolerance, scales = ASYMMETRY[entry_dtype(fit).itemsize], entry_scales(K)
    check_matrix_diagonal(rows, K)
    for start in range(0, n, BAND):
        numbers = np.arange(start, min(start + BAND, n))
        check_symmetry(rows, numbers, K[numbers], K[:, numbers].T, scales, tolerance)
    for start in range(0, n, BAND):  # symmetric to the bit, so that all solvers see the same matrix
        own = slice(start, start + BAND)
        mean = (K[own, start:] + K[start:, own].T) / 2
        K[own, start:], K[start:, own] = mean, mean.T
    return K, digest.hexdigest()


def _strip(rows: Rows, block: Block, dtype: np.dtype[Any]) -> tuple[Array, str]:
    """The rows of a block, rounded to the dtype of block work, and the digest of their values as stored."""
    stored = rows.block(block.start, block.stop)
    check_rows(rows, stored, block.start)
    with np.errstate(over="ignore"):
        values = stored.astype(dtype)
    check_overflow(values, rows.where)
    return values, hashlib.sha256(little_endian(stored)).hexdigest()


def solve_matrix(fit: ResolvedFit, K: Array) -> Solution:
    """Exact solution of the matrix K (n, n), which is overwritten."""
    noise = rounding_noise(float(entry_scales(K).sum()), len(K), entry_dtype(fit))
    spec, tolerance = fit.spec, rank_tolerance(fit.dtype)
    found = solvers.gram(
        K,
        spec.n_components,
        center=spec.center,
        tolerance=tolerance,
        positive=False,
        noise=noise,
    )
    lowest = found.negative * found.eigenvalues[0]
    return replace(found, negative=found.negative if lowest < -noise else 0.0)


def entry_scales(K: Array) -> Array:
    """s (n,) with |K_ij| <= sqrt(s_i s_j), the scale of rounding: K_ii if the matrix can be a kernel matrix; otherwise
    the largest |K_ij| of each row, e.g. for -D² / 2 of squared distances, whose diagonal is zero."""
    diagonal, largest = K.diagonal(), np.maximum(K.max(axis=1), -K.min(axis=1))
    may_be = diagonal.min() >= 0 and (largest**2 <= NEARLY * diagonal * diagonal.max()).all()
    return diagonal.copy() if may_be else largest


def entry_dtype(fit: ResolvedFit) -> np.dtype[Any]:
    """The dtype to which entries are rounded: the dtype of block work, or the stored one if it is coarser."""
    stored = fit.stored
    return min(stored, fit.dtype, key=lambda dtype: dtype.itemsize) if stored.kind == "f" else fit.dtype


def rounding_noise(total: float, n: int, dtype: np.dtype[Any]) -> float:
    """How negative rounding can make the eigenvalues of a positive semidefinite matrix (n, n): a few eps sqrt(n) times
    the mean of its `entry_scales`, whose sum is `total`: the norm of a matrix of random errors."""
    return 16 * float(np.finfo(dtype).eps) * total / float(np.sqrt(n))


def check_matrix_diagonal(rows: Rows, K: Array) -> None:
    """Raise DataError unless the diagonal of K can be that of a kernel matrix: positive, or zero where a row is all
    zeros (squared lengths); zero throughout (-D² / 2); or of either sign."""
    diagonal, least, largest = K.diagonal(), float(K.min()), float(K.max())
    flat = np.abs(diagonal).max() <= FLAT * max(largest, -least)
    zero = np.flatnonzero((diagonal == 0) & K.any(axis=1)).tolist()
    if flat and largest > 0 and least >= -FLAT * largest:
        raise DataError(
            f"{rows.where}: the diagonal is 0 and no entry is negative, as in a matrix of distances D: convert "
            "distances to kernels with exp(-D² / (2 sigma²)), or with -D² / 2 for classical scaling"
        )
    if zero and not flat and diagonal.min() >= 0:
        raise DataError(
            f"{rows.where}: entry ({zero[0]}, {zero[0]}) is 0, but others in its row are not (counted from 0): if "
            "k(x, x) = 0, then k(x, y) = 0 for all y"
        )


def check_symmetry(rows: Rows, numbers: Array, values: Array, mirrored: Array, scales: Array, tolerance: float) -> None:
    """Raise an error unless rows `values` (b, n) of K equal its columns `mirrored` (b, n) up to rounding."""
    roots = np.sqrt(scales)
    apart = np.abs(values - mirrored) - tolerance * np.outer(roots[numbers], roots)
    if (apart > 0).any():
        k, j = divmod(int(apart.argmax()), apart.shape[1])
        i = int(numbers[k])
        raise DataError(
            f"{rows.where} is not symmetric: entry ({i}, {j}) is {values[k, j]:.9g}, entry ({j}, {i}) is "
            f"{mirrored[k, j]:.9g} (counted from 0): correct the wrong entry; if the difference is only rounding, "
            "store (K + K.T) / 2"
        )
