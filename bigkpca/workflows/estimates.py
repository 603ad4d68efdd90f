"""Estimates, which write nothing: the cost of a fit, the length sigma, and the error of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from bigkpca import evaluating
from bigkpca.data.opening import open_rows
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.options import DeviceOptions, ReadingOptions, RunOptions, of_fit
from bigkpca.execution.plan import Plan, check_arrays, plan_resolved, sample_bytes
from bigkpca.fitting.memory_limits import check_fits
from bigkpca.fitting.sample import sample_lengths
from bigkpca.numerics.bandwidth import Lengths
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.spec import FitOptions, FitSpec, resolve
from bigkpca.spec.units import SAMPLED_ROWS
from bigkpca.storage.models import AnyModel, model_of
from bigkpca.workflows.inputs import unchanged


class _PlanOptions(FitOptions, ReadingOptions, DeviceOptions, total=False):
    pass


def plan(data: Any, **options: Unpack[_PlanOptions]) -> Plan:
    """Estimate the cost of a fit: passes, bytes read and peak memory of a process.

    Parameters
    ----------
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
        Rows to fit.
    **options
        What to fit, as in `KernelPCA`, but with a number as random_state: n_components, kernel, sigma, gamma, degree,
        coef0, method, size, tol, landmarks, n_directions, center, standardize, column_weights, dtype, solver, refine,
        residual_tol, preimage, noise, calibration_rows, calibration, random_state and block_rows. And options of the
        run, as in `fit`: scheduler, workers, device, memory, timeout and progress.

    Returns
    -------
    Plan
        `peak_bytes` and others. `refused` is the reason why the fit would be refused, if it needs more than `memory`,
        than a worker has, or than is free on the device.

    Raises
    ------
    SpecError
        Options that conflict with each other or with the data.

    Notes
    -----
    Reads no rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(5000, 3))
    >>> found = bigkpca.plan(X, n_components=2, size=100)
    >>> found.rows, found.size, found.passes
    (5000, 100, 1)
    """
    given, others = of_fit(options)
    run, spec = RunOptions.of(_PlanOptions, others), FitSpec.checked(**given)
    rows = open_rows(data)
    with run.on(rows).engine() as engine:
        fit = resolve(spec, rows)
        found = plan_resolved(rows, fit, engine.threads, engine.device)
        try:
            check_fits(rows, fit, engine, run.memory_limit)
        except MemoryLimitError as error:
            return replace(found, refused=str(error))
    return found


def sigma(
    data: Any,
    *,
    kernel: str = "gaussian",
    random_state: int = 0,
    standardize: bool = False,
    column_weights: Any = None,
    **options: Unpack[ReadingOptions],
) -> Lengths:
    """Candidate lengths sigma of a kernel, from distances between sampled pairs of rows.

    Parameters
    ----------
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
    kernel : str
        A kernel with a length, e.g. gaussian, laplacian or matern.
    random_state : int
        Seed of the sample.
    standardize : bool
        Scale columns to mean 0 and deviation 1 first.
    column_weights : mapping or array of shape (d,), optional
        As in `KernelPCA`.
    **options
        Options of the run, as in `fit`: scheduler, workers, memory, timeout and progress.

    Returns
    -------
    Lengths
        A dict of `Length` with keys "median", "sigest_low", "sigest_middle", "sigest_high" and "mean". Each value has
        `sigma`, in the units of the columns, and its `standard_error` from sampling pairs.

    Raises
    ------
    SpecError
        A kernel without a length.
    DataError, MemoryLimitError, CorruptionError, IncompleteError
        As in `fit`.

    Notes
    -----
    Reads a bounded sample, and makes one more pass with `standardize`. Source: `docs/numerics.md`, section 8.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(5000, 3))
    >>> round(bigkpca.sigma(X)["median"].sigma, 1)
    1.5
    """
    run = RunOptions.of(ReadingOptions, options)
    spec = FitSpec.checked(
        kernel=kernel, random_state=random_state, standardize=standardize, column_weights=column_weights
    )
    rows = open_rows(data)
    with run.engine() as engine:
        fit = resolve(spec, rows)
        remedy = "allow more with --memory (memory= in Python)"
        check_arrays(lambda threads: sample_bytes(rows, fit, threads), engine, run.memory_limit, remedy)
        return sample_lengths(rows, fit, engine)


def evaluate(
    model: AnyModel,
    data: Any,
    *,
    sample: int | None = None,
    random_state: int = 0,
    **options: Unpack[ReadingOptions],
) -> Evaluation:
    """Estimate the error of a model on fitted or other rows, from exact kernels with sampled rows.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
    sample : int, optional
        Number of rows between which exact kernels are computed; by default 2000, or all.
    random_state : int
        Seed of the sample.
    **options
        Options of the run, as in `fit`: scheduler, workers, memory, timeout and progress.

    Returns
    -------
    Evaluation
        The shares of the variance that scores hold and that the features miss, the error of the kernel, and what scores
        capture of the columns.

    Raises
    ------
    SpecError
        Rows of another width or other columns, a sample larger than the data, or a model of a precomputed kernel or
        with more than 8192 kept rows, whose certificate has the residual of every component.
    DataError, MemoryLimitError, CorruptionError, IncompleteError
        As in `fit`.

    Notes
    -----
    Reads the sampled rows. Source: `docs/numerics.md`, section 15.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=2)
    >>> found = bigkpca.evaluate(model, X, sample=200)
    >>> found.sampled, found.rows
    (200, 500)
    """
    run = RunOptions.of(ReadingOptions, options)
    fitted = model_of(model)
    rows = open_rows(data)
    with run.on(rows).engine() as engine:
        sample = min(SAMPLED_ROWS, rows.shape[0]) if sample is None else sample
        with unchanged(rows):
            return evaluating.evaluate_rows(fitted, rows, sample, random_state, engine, run.memory_limit)
