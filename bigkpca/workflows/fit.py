"""Fit a model and save it, and merge models of different rows, from path to path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Unpack

from bigkpca.data.opening import open_rows, path_of
from bigkpca.data.rows import Rows, identity_of
from bigkpca.data.sample_weights import weighted
from bigkpca.data.stores import AnyPath, is_path
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine, KeptFeatures
from bigkpca.execution.options import DeviceOptions, RunOptions, WritingOptions, of_fit
from bigkpca.fitting import merge as merging
from bigkpca.fitting.fit import columns_recorded, fit_rows
from bigkpca.numerics.model import Model
from bigkpca.spec import FitOptions, FitSpec
from bigkpca.storage import models, output
from bigkpca.storage.models import AnyModel
from bigkpca.workflows.checkpoints import saved_in
from bigkpca.workflows.inputs import check_unchanged
from bigkpca.workflows.transform import check_scores_place, write_scores


class FitCallOptions(FitOptions, WritingOptions, DeviceOptions, total=False):
    pass


def fit(
    data: Any,
    out: AnyPath,
    *,
    transform: AnyPath | None = None,
    like: AnyModel | None = None,
    sample_weight: Any = None,
    **options: Unpack[FitCallOptions],
) -> Model:
    """Fit a model and save it. Repeating the call on a finished `out` does nothing.

    Parameters
    ----------
    data : path, NumPy, Dask or Zarr array, frame of pandas, polars or Dask, or DataArray, (n, d)
        Rows to fit. A path can be a dataset made by `bigkpca ingest`, a .npy file, a Zarr array, or a Zarr group with
        one array or an array "x".
    out : path
        Folder of the model.
    transform : path, optional
        Also write the scores of the rows to a feature store at this path, with the bits of `bigkpca.transform`. A fit
        on threads reuses features of its pass as far as memory allows.
    like : model, optional
        Fit with the features of this model: its kernel, landmarks or frequencies, offset, scale and precision. Other
        options are those of its fit unless they are set; only `noise` can differ. See `bigkpca.merge`.
    sample_weight : array (n,), or path, optional
        Weights of the rows, finite numbers of at least 0: components are those of the weighted mean and scatter. Whole
        numbers have the effect of repeated rows. A path is that of a .npy file or of a Zarr array, or the name of an
        array in the Zarr group of `data`. Not for method="exact", `refine` and precomputed kernels.
    **options
        What to fit, as in `KernelPCA`, but with a number as random_state: n_components, kernel, sigma, gamma, degree,
        coef0, method, size, tol, landmarks, n_directions, center, standardize, column_weights, dtype, solver, refine,
        residual_tol, preimage, noise, calibration_rows, calibration, random_state and block_rows. And where and how to
        run:
    scheduler : str, optional
        Address of the Dask cluster to run on, e.g. "tcp://10.0.0.1:8786"; by default that of Dask's configuration
        (`DASK_SCHEDULER_ADDRESS`), if any, unless there is a current Dask client.
    workers : int, optional
        Number of local processes to run on; by default threads of this process, or a current Dask client.
    device : str, optional
        Device that computes the passes: "cuda", "cuda:1" or "xpu" (PyTorch), "cupy:cuda:0" (CuPy), or "cpu"; default:
        the device that holds the rows, or "cpu". The last digits of results depend on it. Experimental.
    memory : str or int, optional
        Memory that a process may use, with what it already holds, e.g. "2 GB", or a number of bytes.
    timeout : str or float, default="10 min"
        Time without a finished block after which the run ends with IncompleteError, e.g. "30 min", or seconds.
    progress : bool or Progress, default=False
        True shows bars, or lines without a terminal; a Progress receives titles and rows of each pass, and notes.
    overwrite : bool, default=False
        Make output anew that exists, and replace output of the same kind: on a local disk once the new one is finished,
        in an object store before it is begun.

    Returns
    -------
    Model
        The saved model: `solution` with eigenvalues (r,) and components, `certificate`, `provenance`.

    Raises
    ------
    SpecError
        Options that conflict with each other, with the data, or with what is at `out`.
    DataError
        NaN, infinity, or constant data.
    MemoryLimitError
        The fit needs more than `memory`, or than a worker has; nothing was read.
    LockedError
        Another run is writing `out`.
    CorruptionError
        Stored rows cannot be read.
    IncompleteError
        `data` is not finished, the disk is full, the scheduler is gone, or nothing finishes within `timeout`: repeat
        the call to resume.

    Notes
    -----
    A bounded sample and one pass over the data; see `KernelPCA` for options that need more. Both are repeated in
    float64 if rounding in float32 would matter. Source: `docs/numerics.md`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(3000, 5))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=2, size=300)
    >>> model.certificate.trust
    ('solid', 'solid')
    """
    given, others = of_fit(options)
    run, spec = RunOptions.of(FitCallOptions, others), FitSpec.checked(**given)
    before = None if like is None else models.model_of(like)
    if before is not None:
        spec = merging.spec_like(before, given)
    if not isinstance(spec.kernel, str):
        models.check_savable(spec.kernel)
    rows = weighted(open_rows(data), sample_weight)
    run = run.on(rows)
    if transform is not None:
        check_scores_place(rows, path_of(out), transform, overwrite=run.overwrite)  # before the fit
    kept = None if transform is None else KeptFeatures()
    model = fit_and_save(rows, spec, out, run, kept, before)
    if transform is not None:
        write_scores(model, rows, path_of(out), transform, run, spec.block_rows, kept=kept)
    return model


def fit_and_save(
    rows: Rows,
    spec: FitSpec,
    out: AnyPath,
    run: RunOptions,
    kept: KeptFeatures | None = None,
    like: Model | None = None,
) -> Model:
    """Fit `spec` to the rows, with the features of `like` if set, and save the model at `out`, unless it already
    exists. The pass stores features in `kept`, and its sums are saved beside `out`."""
    fingerprint = rows.fingerprint()
    path = output.group_path(out, fingerprint["path"])
    # A model to which partial_fit or merge added rows is a different one.
    identity = identity_of(rows)
    record: dict[str, Any] = {"format": "model", "spec": spec.to_dict(), "identity": identity, **columns_recorded(rows)}
    record |= {"like": None if like is None else models.model_digest(like), "added": None}
    with output.opened(path, record, overwrite=run.overwrite, note=run.progress.note) as place:
        if place.done:
            run.progress.note(f"{path} already exists, fitted from the same rows and options: nothing to do")
            return models.load_model(path)
        with run.engine() as engine:
            engine.check_paths(fingerprint["path"])
            checkpoint = saved_in(f"{place.partial}/sums", engine.core_types(), run.progress)
            model = fit_model(rows, spec, replace(engine, checkpoint=checkpoint, kept=kept), run, like, identity)
        check_unchanged(rows, fingerprint)
        place.publish(models.write_arrays(model, place.folder))
    return model


def fit_model(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    run: RunOptions,
    like: Model | None = None,
    identity: dict[str, Any] | None = None,
) -> Model:
    """Fit `spec` to the rows within the limits of a run, with the features of `like` if set, for which `spec` comes
    from `spec_like`."""
    limit = run.memory_limit
    if like is None:
        return fit_rows(rows, spec, engine, identity, limit)
    model = merging.fit_like(rows, like, spec, engine, limit, identity)
    return replace(model, provenance={**model.provenance, "like": models.model_digest(like)})


def save(model: Model, path: AnyPath, *, overwrite: bool = False) -> None:
    """Save a model, unless it is already saved there. Raises SpecError if the kernel is a function, or if something
    else is at `path`; `overwrite` replaces a model."""
    models.check_savable(model.features.kernel)
    out = output.group_path(path)
    record = {"format": "model", "digest": models.model_digest(model)}
    with output.opened(out, record, overwrite=overwrite) as place:
        if not place.done:
            place.publish(models.write_arrays(model, place.folder))


def merge(parts: Iterable[AnyModel], out: AnyPath | None = None, *, overwrite: bool = False) -> Model:
    """Merge models of different rows, fitted with the same features: parallel fits without a cluster.

    Fit one part of the rows, then fit the others with `like=` that model, anywhere and in any order, and merge. Sums
    over rows add up, and a small eigenproblem is solved again:

        Σ over all rows (v_i - c)(v_i - c)' = Σ over parts Σ over their rows (v_i - c)(v_i - c)'

    Parameters
    ----------
    parts : models
        Two or more paths, Models or fitted KernelPCA, each of different rows.
    out : path, optional
        Folder of the merged model; by default it is not saved.
    overwrite : bool
        Replace a model at `out`.

    Returns
    -------
    Model
        The model of all rows, with the features, options, column names, pre-image and signs of the first part.

    Raises
    ------
    SpecError
        Fewer than two models; models with different features, of the same rows, of the exact method or the randomized
        solver; something else at `out`.
    CorruptionError
        A damaged model.
    LockedError
        Another run is writing `out`.

    Notes
    -----
    No pass over the data. Of k models, read one at a time, at most log2(k) sums are held, of at most 8 D² bytes each
    for D landmarks or random features. The sums equal those of a fit of all rows with the same features: to the bit if
    every part but the last has the same number of blocks, a power of two, and blocks have the same number of rows;
    otherwise up to rounding. Bounds of the certificate hold for all rows; those with 95 % confidence come from rows
    that each fit had set aside. There is no reference for the drift of later rows. Source: `docs/numerics.md`, section
    2.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(3000, 5))
    >>> first = bigkpca.fit(X[:1500], "first.zarr", n_components=2, size=100)
    >>> second = bigkpca.fit(X[1500:], "second.zarr", like=first)
    >>> bigkpca.merge([first, "second.zarr"], "merged.zarr").sums.count
    3000
    """
    if is_path(parts):
        raise SpecError(f"pass the models as a list, e.g. merge([{str(parts)!r}, ...]), followed by the output")
    with RunOptions().engine() as engine:
        merged = merging.merge(map(models.model_of, parts), engine)
    if out is not None:
        save(merged, out, overwrite=overwrite)
    return merged
