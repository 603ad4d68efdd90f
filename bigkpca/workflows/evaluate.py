"""Evaluate a model on rows."""

from __future__ import annotations

from typing import Any, Unpack

from bigkpca.data.opening import open_rows
from bigkpca.evaluating import evaluate_rows
from bigkpca.execution.options import ReadingOptions, RunOptions, takes
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.spec.units import SAMPLED_ROWS
from bigkpca.storage import models
from bigkpca.storage.models import AnyModel


@takes(ReadingOptions)
def evaluate(
    model: AnyModel,
    data: Any,
    *,
    sample: int | None = None,
    seed: int = 0,
    **options: Unpack[ReadingOptions],
) -> Evaluation:
    """Estimate how wrong a model is on rows, those it was fitted on or others, from exact kernels with sampled rows.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
    sample : int, optional
        Rows whose kernels with all rows are taken; by default 500, or all.
    seed : int
        Seed of the sample.
    **options
        Of the run.

    Returns
    -------
    Evaluation
        Estimates with standard errors, and intervals: eigenvalues, residuals, |K - K^|_F and total variance.

    Raises
    ------
    SpecError
        Rows of another width or other columns, a sample larger than the data, a model of a precomputed kernel or one
        that keeps more than 8192 rows: their certificates have the residual of every component.
    DataError, CorruptionError, IncompleteError
        As `fit`.
    MemoryLimitError
        The pass needs more than `memory`, or than a worker has.

    Notes
    -----
    Reads the sampled rows, then makes one pass over the data with `sample` kernels for each row. Source:
    `docs/numerics.md`, section 15.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = bigkpca.fit(X, "model.zarr", components=2)
    >>> found = bigkpca.evaluate(model, X, sample=200)
    >>> found.sampled, found.rows
    (200, 500)
    """
    run = RunOptions.of(ReadingOptions, options)
    fitted = models.model_of(model)
    rows = open_rows(data, run.array)
    with run.engine() as engine:
        sample = min(SAMPLED_ROWS, rows.shape[0]) if sample is None else sample
        return evaluate_rows(fitted, rows, sample, seed, engine, run.progress, run.memory_limit)
