"""Exact eigenpairs by block Krylov iteration: products with the Gram matrix, computed tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.errors import Array
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import computed_in_single, gather, gram_product, read_rows
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.certify import of_products
from bigkpca.numerics import eigenpairs
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import Columns, KernelRows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.precision import farthest, smaller_in_double
from bigkpca.numerics.random_streams import PROBES, SKETCH, random_stream
from bigkpca.numerics.solvers import OVERSAMPLING, Ritz, leading_eigenpairs
from bigkpca.spec import FitSpec

_MAX_PRODUCTS = 20
_MEASURED_ROWS, _FAR_ROWS, _SAFETY = 256, 32, 4
_OF_SUMS = 32  # eps, the relative error of products with equal kernels, see `solvers.add_strip`


def refine_by_products(rows: Rows, start: Model, spec: FitSpec, engine: Engine) -> Model:
    """Refine an approximate model to exact eigenpairs by products with the Gram matrix, of n² / 2 kernels each."""
    columns = start.features.as_columns()
    X = gather(rows, columns, engine)
    # Threads share the rows in memory; workers read their rows from the source, block by block.
    here = (ArrayRows(X), replace(columns, offset=np.zeros(columns.columns), scale=None))
    source, seen = (rows, columns) if engine.client else here

    def product(B: Array) -> Array:
        return gram_product(source, seen, B, engine, "products with the Gram matrix")

    scores = score_rows(rows, start, engine).astype(np.float64)
    diagonal = float(columns.kernel.diagonal(X).sum())
    solution, found = _eigenpairs(product, scores, diagonal, columns.dtype, spec, engine.progress)
    features = KernelRows(columns.kernel, columns.offset, X, scale=columns.scale)
    provenance: Provenance = {**start.provenance, "spec": spec.to_dict(), "products": found.products}
    error = _error_of_kernels(rows, columns, farthest(X, _FAR_ROWS), spec, engine)
    residuals = found.residuals[: len(solution.eigenvalues)]
    certified = of_products(solution, residuals, start.certificate, start.solution.eigenvalues, error)
    return Model(features, solution, certificate=certified, provenance=provenance)


def _error_of_kernels(rows: Rows, columns: Columns, far: Array, spec: FitSpec, engine: Engine) -> float:
    """Norm of the error of K as computed in the dtype of block work: measured against float64 on few rows, those
    numbered `far` and random ones, and scaled to n rows; at least 32 eps |K|, for sums over equal rows."""
    n = rows.shape[0]
    drawn = random_stream(spec.random_state, PROBES).choice(n, min(n, _MEASURED_ROWS), replace=False)
    X = read_rows(rows, np.union1d(far, drawn), engine)
    single = replace(columns, block_dtype=np.dtype(np.float32))
    double = replace(columns, block_dtype=np.dtype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        Y = double.shifted(X)
        K = columns.kernel(Y, Y)
        rounded = KernelRows(columns.kernel, columns.offset, single.shifted(X), scale=columns.scale)
        values = computed_in_single(rounded, X, np.zeros(len(X)), engine).values
        E = values.astype(np.float64) - K
    eps = float(np.finfo(columns.dtype).eps)
    if not np.isfinite(E).all():
        return _OF_SUMS * eps * n * float(np.abs(K).max())
    smaller = 1.0
    if columns.dtype == np.float64:
        smaller = smaller_in_double(columns.kernel, Y, float(np.abs(E).max()))
    off, size = _SAFETY * smaller * float(np.linalg.norm(E, 2)), float(np.linalg.norm(np.abs(K), 2))
    return max(off, _OF_SUMS * eps * size) * n / len(X)


def _eigenpairs(
    product: Callable[[Array], Array],
    block: Array,
    trace: float,
    dtype: np.dtype[Any],
    spec: FitSpec,
    progress: Progress,
) -> tuple[Solution, Ritz]:
    """Exact eigenpairs by products B -> K B from the span of a block (n, b); `trace` is tr(K)."""
    assert isinstance(spec.n_components, int)
    n, row_sums, tolerance = len(block), np.zeros(len(block)), rank_tolerance(dtype)

    def apply(Q: Array) -> Array:
        nonlocal row_sums
        first = not row_sums.any()
        B = np.column_stack([Q - Q.mean(axis=0) if spec.center else Q, *([np.ones(n)] if first else [])])
        image = product(B)
        if first:
            row_sums = image[:, -1].copy()  # a view would keep the product in memory
        image = image[:, : Q.shape[1]]
        return image - image.mean(axis=0) if spec.center else image

    def report_residual(found: Ritz) -> None:
        progress.note(f"product {found.products}: largest relative residual {found.worst(tolerance):.1e}")

    # Always random columns, too: rows that no landmark represents may contribute nothing to the scores, and products
    # from other rows may never reach them.
    width = min(max(spec.n_components - block.shape[1], 0) + OVERSAMPLING, n - block.shape[1])
    if width > 0:
        block = np.hstack([block, random_stream(spec.random_state, SKETCH).standard_normal((n, width))])
    if spec.center:
        block = block - block.mean(axis=0)  # like the eigenvectors
    most, tol = spec.refine or _MAX_PRODUCTS, spec.residual_tol
    with single_threaded_blas:
        found = leading_eigenpairs(
            apply, block, spec.n_components, most=most, tol=tol, floor=tolerance, on_iteration=report_residual
        )
    eigenpairs.check_some_positive(float(found.values[0]), found.lowest, 0.0)
    solution = eigenpairs.of_eigenvectors(
        found.values, found.vectors, row_sums / n, trace, center=spec.center, tolerance=tolerance
    )
    return solution, found
