"""The reference of a comparison: exact kernel PCA if feasible, otherwise a large Nyström model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.comparing.timed import Opener, timed_fit
from bigkpca.data.blocks import sample_rows, tile_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.evaluating.error import evaluate_rows
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import read_rows
from bigkpca.execution.planning import largest_size_that_fits, plan_fit
from bigkpca.execution.progress import Silent
from bigkpca.fitting.sample import sample_lengths
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec, resolve

COMPARED_ROWS = 4096
"""Rows at which scores are compared, fewer if rows are very wide; sampling changes an error by about 1 %."""

_MAX_WORK = 4e12
"""n² d up to which the reference is exact by products with the Gram matrix: about a minute on two cores."""

_EVALUATED_ROWS = 500
_MAX_LANDMARKS = 4000


@dataclass(frozen=True)
class Reference:
    """Eigenvalues (r,) and sampled rows (m, d) with their scores (m, r), which errors are measured against.

    `description` says how they were computed and how accurate they are. `sigma` is the median length, None if the spec
    gives one. `seconds` and `peak_mb` are the cost of the exact fit, None if the reference is sampled.
    """

    eigenvalues: Array
    scores: Array
    rows: Array
    description: str
    sigma: float | None
    seconds: float | None
    peak_mb: float | None

    def with_same_sigma(self, spec: FitSpec) -> FitSpec:
        """The spec with the sigma of the reference, so that all seeds have the same kernel."""
        return _with_sigma(spec, self.sigma)


def why_not_exact(rows: Rows, spec: FitSpec, limit: int | None, threads: int) -> str | None:
    """The reason why an exact fit is not feasible; None if it is."""
    (n, d), exact = rows.shape, spec.model_copy(update={"method": "exact"})
    if n > EXACT_MOST_ROWS and n * n * d > _MAX_WORK:
        return f"products with the Gram matrix of {n:,} rows would take hours"
    needed = plan_fit(rows, exact, threads).peak_bytes
    if limit is not None and needed > limit:
        return f"an exact fit needs {needed / 1e6:.0f} MB, {limit / 1e6:.0f} MB are allowed"
    return None


def compared_row_numbers(rows: Rows) -> Array:
    """Numbers (m,) of the rows at which scores are compared, the same for all fits."""
    n, d = rows.shape
    m = min(COMPARED_ROWS, sample_rows(n, d, 0))
    return np.sort(random_stream(0, PROBES).choice(n, m, replace=False))


def exact_reference(rows: Rows, spec: FitSpec, opened: Opener = open_engine) -> Reference:
    """Fit exact kernel PCA where `opened` runs it, and measure its time and memory."""
    sigma = _median_sigma(rows, spec)
    with opened() as engine:
        exact = _with_sigma(spec, sigma).model_copy(update={"method": "exact"})
        model, seconds, peak = timed_fit(rows, exact, engine)
    residuals = model.certificate.residuals
    how = "the whole Gram matrix" if residuals is None else f"by products, residuals at most {residuals.max():.1g}"
    numbers, eigenvalues = compared_row_numbers(rows), model.solution.eigenvalues
    # Scores of fitted rows are sqrt(lambda) u, components u / sqrt(lambda): no kernels need be computed.
    scores, X = model.solution.components[numbers] * eigenvalues, read_rows(rows, numbers, Engine(), Silent())
    description = f"exact kernel PCA of {rows.shape[0]:,} rows ({how})"
    return Reference(eigenvalues, scores, X, description, sigma, seconds, peak)


def sampled_size(rows: Rows, spec: FitSpec, largest: int, limit: int | None, threads: int) -> int:
    """Size of a sampled reference: twice the largest size in the grid, or the largest that memory allows."""
    size = min(2 * largest, _MAX_LANDMARKS, rows.shape[0])
    if limit is None or plan_fit(rows, spec.at(size), threads).peak_bytes <= limit:
        return size
    return largest_size_that_fits(rows, resolve(spec, rows), threads, limit) or largest


def sampled_reference(rows: Rows, spec: FitSpec, size: int, opened: Opener = open_engine) -> Reference:
    """Fit a Nyström model of this size; its eigenvalues are corrected for their bias."""
    n, sigma = rows.shape[0], _median_sigma(rows, spec)
    with opened() as engine:
        model = timed_fit(rows, _with_sigma(spec, sigma).at(size), engine).model
        found = evaluate_rows(model, rows, min(_EVALUATED_ROWS, n), 0, engine, Silent())
    X = read_rows(rows, compared_row_numbers(rows), Engine(), Silent())
    description = (
        f"a sampled reference, since no exact one fits: Nyström with {size:,} landmarks, its eigenvalues corrected by "
        f"{found.sampled} exact rows; its own components have residuals of {np.median(found.residuals):.2g} (median) "
        f"to {found.residuals.max():.2g}, and errors below those tell nothing"
    )
    return Reference(found.eigenvalues, scores_in_memory(model, X), X, description, sigma, None, None)


def _with_sigma(spec: FitSpec, sigma: float | None) -> FitSpec:
    """The spec with this sigma, or as it is if None."""
    return spec if sigma is None else spec.model_copy(update={"sigma": sigma})


def _median_sigma(rows: Rows, spec: FitSpec) -> float | None:
    """The median length, if the spec asks for it; otherwise None."""
    return sample_lengths(rows, spec, Engine(), Silent())["median"].sigma if spec.needs_median else None


def scores_in_memory(model: Model, X: Array) -> Array:
    """Scores (m, r), float64, of rows X (m, d) in memory."""
    step = min(len(X), tile_rows(model.columns, model.features.size, model.features.dtype.itemsize))
    tiles = (X[start : start + step] for start in range(0, len(X), step))
    return np.concatenate(list(model.project(tiles, step))).astype(np.float64)
