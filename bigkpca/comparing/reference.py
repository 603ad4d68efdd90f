"""What the others are measured against: exact kernel PCA where it fits, else the best approximation at hand."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from bigkpca.comparing.process import peak_mb
from bigkpca.data.blocks import sample_rows, tile_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.evaluating.error import evaluate_rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import largest_size_that_fits, plan_fit
from bigkpca.execution.progress import Silent
from bigkpca.execution.reductions import read_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.sample import sample_lengths
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec, resolve

COMPARED_ROWS = 4096
"""Rows at which scores are compared, fewer where they are very wide: sampling them moves an error by a hundredth."""

_MAX_WORK = 4e12
"""n² d up to which products with the Gram matrix are made: about a minute on two cores."""

_EVALUATED_ROWS = 500
_MAX_LANDMARKS = 4000


@dataclass(frozen=True)
class Reference:
    """Eigenvalues (r,), and sampled rows (m, d) with their scores (m, r).

    `about` says in words where they come from and how wrong they are. `sigma` is the median length where the
    spec left it to the sample, `seconds` and `peak_mb` are what the exact fit took; None where there was none.
    """

    eigenvalues: Array
    scores: Array
    rows: Array
    about: str
    sigma: float | None
    seconds: float | None
    peak_mb: float | None

    def with_same_sigma(self, spec: FitSpec) -> FitSpec:
        """The spec with this length, so that all seeds have the same kernel."""
        return _with(spec, self.sigma)


def why_not_exact(rows: Rows, spec: FitSpec, limit: int | None, threads: int) -> str | None:
    """None where an exact fit is within reach, else why it is not."""
    (n, d), exact = rows.shape, spec.model_copy(update={"method": "exact"})
    if n > EXACT_MOST_ROWS and n * n * d > _MAX_WORK:
        return f"products with the Gram matrix of {n:,} rows would take hours"
    needed = plan_fit(rows, exact, threads).peak_bytes
    if limit is not None and needed > limit:
        return f"an exact fit needs {needed / 1e6:.0f} MB, {limit / 1e6:.0f} MB are allowed"
    return None


def compared_row_numbers(rows: Rows) -> Array:
    """Numbers (m,) of the rows at which scores are compared, the same for all."""
    n, d = rows.shape
    m = min(COMPARED_ROWS, sample_rows(n, d, 0))
    return np.sort(random_stream(0, PROBES).choice(n, m, replace=False))


def exact_reference(rows: Rows, spec: FitSpec) -> Reference:
    """Exact kernel PCA, timed."""
    engine, sigma = Engine(), _median(rows, spec)
    spec, started = _with(spec, sigma), perf_counter()
    model = fit_rows(rows, spec.model_copy(update={"method": "exact"}), engine, Silent())
    seconds, peak = perf_counter() - started, peak_mb()
    residuals = model.certificate.residuals
    how = "the whole Gram matrix" if residuals is None else f"by products, residuals at most {residuals.max():.1g}"
    numbers, eigenvalues = compared_row_numbers(rows), model.solution.eigenvalues
    # Scores of fitted rows are sqrt(lambda) u, components u / sqrt(lambda): no kernels, nor memory for them.
    scores, X = model.solution.components[numbers] * eigenvalues, read_rows(rows, numbers, engine, Silent())
    about = f"exact kernel PCA of {rows.shape[0]:,} rows ({how})"
    return Reference(eigenvalues, scores, X, about, sigma, seconds, peak)


def sampled_size(rows: Rows, spec: FitSpec, largest: int, limit: int | None, threads: int) -> int:
    """Landmarks of a sampled reference: twice as many as any that is tried, or as many as memory allows."""
    size = min(2 * largest, _MAX_LANDMARKS, rows.shape[0])
    if limit is None or plan_fit(rows, spec.at(size), threads).peak_bytes <= limit:
        return size
    return largest_size_that_fits(rows, resolve(spec, rows), threads, limit) or largest


def sampled_reference(rows: Rows, spec: FitSpec, size: int) -> Reference:
    """The best approximation at hand, its eigenvalues freed of their bias."""
    engine, n, sigma = Engine(), rows.shape[0], _median(rows, spec)
    model = fit_rows(rows, _with(spec, sigma).at(size), engine, Silent())
    found = evaluate_rows(model, rows, min(_EVALUATED_ROWS, n), 0, engine, Silent())
    X = read_rows(rows, compared_row_numbers(rows), engine, Silent())
    about = (
        f"a sampled reference, since no exact one fits: Nyström with {size:,} landmarks, its eigenvalues corrected by "
        f"{found.sampled} exact rows; its own components have residuals of {np.median(found.residuals):.2g} (median) "
        f"to {found.residuals.max():.2g}, and errors below those tell nothing"
    )
    return Reference(found.eigenvalues, scores_in_memory(model, X), X, about, sigma, None, None)


def _with(spec: FitSpec, sigma: float | None) -> FitSpec:
    return spec if sigma is None else spec.model_copy(update={"sigma": sigma})


def _median(rows: Rows, spec: FitSpec) -> float | None:
    """The median length, where the spec leaves it to the sample."""
    return sample_lengths(rows, spec, Engine(), Silent())["median"].sigma if spec.needs_median else None


def scores_in_memory(model: Model, X: Array) -> Array:
    """Scores (m, r) of rows in memory, float64."""
    step = min(len(X), tile_rows(model.columns, model.features.size, model.features.dtype.itemsize))
    tiles = (X[start : start + step] for start in range(0, len(X), step))
    return np.concatenate(list(model.project(tiles, step))).astype(np.float64)
