"""Transform, reconstruct and denoise rows, from path to path, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Unpack

import numpy as np

from bigkpca.data.blocks import Block, split
from bigkpca.data.opening import open_rows, path_of
from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath
from bigkpca.data.zarr import Stored
from bigkpca.errors import Array, FlaggedShareWarning, warn
from bigkpca.execution.engine import KeptFeatures
from bigkpca.execution.options import DeviceOptions, RunOptions, WritingOptions
from bigkpca.execution.plan import Plan, check_plans, plan_reconstruct, plan_transform
from bigkpca.execution.projection import (
    block_denoised,
    block_preimages,
    block_scores,
    block_scores_and_residuals,
    check_columns,
    expansion_of,
)
from bigkpca.execution.tasks import block_tasks
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion, Preimages
from bigkpca.storage import groups, models, output
from bigkpca.storage.groups import NewArray
from bigkpca.storage.models import AnyModel
from bigkpca.storage.output import Output
from bigkpca.workflows.flags import ARRAYS, check_flag, flagged_rows, flags_of
from bigkpca.workflows.inputs import check_unchanged, open_scores


class TransformOptions(WritingOptions, DeviceOptions, total=False):
    pass


def transform(
    model: AnyModel,
    data: Any,
    out: AnyPath,
    *,
    residual: bool = False,
    flag: float | None = None,
    block_rows: int | None = None,
    **options: Unpack[TransformOptions],
) -> Stored:
    """Write the scores of rows to a feature store, and return them as a Zarr array.

    Scores are (v(x) - mean) @ components. Each block of rows is one chunk, written by one task; the manifest is
    published last. Repeating the call resumes an interrupted one, and does nothing if it was finished.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
    out : path
        Folder of the feature store.
    residual : bool
        Also write |φ(x) - φ^(x)|² of each row, (n,), to the array "residual" beside the scores: the part that the
        scores do not capture, which is large for novel rows.
    flag : float, optional
        Flag unusual rows, by a model with calibration rows: a share such as 0.01, the probability that a row of
        the distribution of the fitted rows is flagged. Also writes "residual" and two arrays (n,): "statistic", the
        combined statistic of `KernelPCADetector`, and "flagged": 0, or 1 if the residual is the rarer one, or 2 if the
        distance from the mean is. Warns (`FlaggedShareWarning`) if more rows are flagged than chance explains.
    block_rows : int, optional
        Rows of one task and one chunk.
    **options
        Options of the run, as in `fit`: scheduler, workers, device, memory, timeout, progress and overwrite.

    Returns
    -------
    zarr.Array
        Scores (n, r), in the dtype of the model's block work.

    Raises
    ------
    SpecError
        Rows of another width or other columns, residuals that the model cannot compute, or other output at `out`; a
        flag for a model without calibration rows, or one smaller than they can show.
    DataError
        NaN or infinity in the rows, or kernel values that overflow.
    MemoryLimitError, LockedError, CorruptionError, IncompleteError
        As in `fit`.

    Notes
    -----
    One pass over the data. Source: `docs/numerics.md`, section 1.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=2)
    >>> bigkpca.transform(model, X, "scores.zarr").shape
    (500, 2)
    """
    run = RunOptions.of(TransformOptions, options)
    fitted = models.model_of(model)
    rows = open_rows(data)
    run = run.on(rows)
    if flag is not None:
        check_flag(flag, fitted)
    residual = residual or flag is not None
    scores = write_scores(fitted, rows, path_of(model), out, run, block_rows, residual=residual, flag=flag)
    found = flagged_rows(output.group_path(out))
    if found and (warning := found.share.warning(fitted.check_calibrated())):
        warn(warning, FlaggedShareWarning)
    return scores


def check_scores_place(rows: Rows, model_path: str | None, out: AnyPath, *, overwrite: bool) -> None:
    """Raise SpecError if scores of these rows must not be written to `out`, whatever the model."""
    fingerprint = rows.fingerprint()
    path = output.group_path(out, fingerprint["path"], model_path)
    record = {"format": "features", "input": fingerprint, "residual": False, "flag": None}
    output.check_place(path, record, overwrite=overwrite)


def write_scores(
    fitted: Model,
    rows: Rows,
    model_path: str | None,
    out: AnyPath,
    run: RunOptions,
    block_rows: int | None,
    *,
    residual: bool = False,
    flag: float | None = None,
    kept: KeptFeatures | None = None,
) -> Stored:
    """Write the scores of rows (see `transform`), from features that their fit `kept`, if any; flags need residuals."""
    check_columns(rows, fitted)
    if residual:
        fitted.check_residuals()
    dtype = fitted.features.dtype
    arrays = {"scores": NewArray(dtype, (fitted.components,), "component")}
    arrays |= {"residual": NewArray(dtype)} if residual else {}
    arrays |= {} if flag is None else ARRAYS

    work = _Work(
        "features",
        {"residual": residual, "flag": flag},
        arrays,
        partial(plan_transform, rows, fitted, block_rows, judged=residual, device=run.device_value),
        "transforming",
        partial(_scores, kept=kept, flag=flag),
        lambda: [fitted, expansion_of(fitted)] if residual else [fitted],
    )
    return _written(work, fitted, rows, model_path, out, run)


def _scores(
    rows: Rows,
    block: Block,
    model: Model,
    expansion: Expansion | None = None,
    *,
    kept: KeptFeatures | None,
    flag: float | None,
) -> dict[str, Array]:
    """The stored scores of a block, with residuals and flags if they are requested, which take an expansion."""
    if expansion is None:
        return {"scores": block_scores(rows, block, model, kept)}
    scores, left = block_scores_and_residuals(rows, block, model, expansion)
    found = {"scores": scores, "residual": left}
    return found if flag is None else found | flags_of(model, scores, left, flag)


@dataclass(frozen=True)
class _Work:
    """What is written, block by block: the kind of the output, its own entries of the request, its arrays, the plan for
    a number of threads, the title of the pass, and function(rows, block, *values), with values that are computed
    once."""

    kind: str
    options: Mapping[str, Any]
    arrays: Mapping[str, NewArray]
    plan: Callable[[int], Plan]
    title: str
    function: Callable[..., dict[str, Array]]
    values: Callable[[], list[Any]]


def _written(work: _Work, fitted: Model, rows: Rows, model_path: str | None, out: AnyPath, run: RunOptions) -> Stored:
    """Write the blocks in one pass, publish the output, and open its main array."""
    fingerprint = rows.fingerprint()
    path = output.group_path(out, fingerprint["path"], model_path)
    with run.engine() as engine:
        remedy = "ask for smaller blocks with --block-rows, or fit a model with fewer landmarks"
        height = check_plans(work.plan, engine, run.memory_limit, remedy).block_rows
        engine.check_paths(fingerprint["path"])
        record = {
            "format": work.kind,
            "model": models.model_digest(fitted),
            "input": fingerprint,
            "block_rows": height,
            **work.options,
        }
        with output.opened(path, record, overwrite=run.overwrite, note=run.progress.note) as place:
            if place.done:
                run.progress.note(f"{path} already exists, from the same model and rows: nothing to do")
                return groups.open_main(path, work.kind)
            n, names = rows.shape[0], sorted(work.arrays)
            blocks = split(n, height)
            place.create(work.arrays, n, height)
            if place.resumed:
                stored = len(blocks) - len(place.missing(blocks, names))
                run.progress.note(f"continuing: {stored} of {len(blocks)} blocks are already written")
            engine.check_paths(place.claim)
            given = [work.function, place, names, *map(engine.placed, work.values())]
            engine.each(work.title, block_tasks(_write_block, rows, blocks, given))
            place.check_written(blocks, names)
            check_unchanged(rows, fingerprint)
            place.publish({"rows": n, "arrays": names})
    return groups.open_main(path, work.kind)


def _write_block(
    rows: Rows, block: Block, function: Callable[..., dict[str, Array]], place: Output, names: list[str], *given: Any
) -> None:
    """Write a block, unless an interrupted run did so; a power failure can leave a file that does not decode."""
    if not (place.resumed and place.read(block, names)):
        place.write(block, function(rows, block, *given))


def reconstruct(
    model: AnyModel, scores: Any, out: AnyPath, *, block_rows: int | None = None, **options: Unpack[WritingOptions]
) -> Stored:
    """Write the pre-images of scores, the rows that they represent, and return them as a Zarr array.

    Resumes as `transform` does. Beside x, the output has, for each row, `converged` and `iterations` of the search for
    its pre-image, and `far`: no row near the data has such scores, so the row is the mean.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    scores : path of a feature store, or NumPy, Dask or Zarr array, (n, r)
    out : path
        Folder of the rows.
    block_rows : int, optional
        Rows of one task and one chunk.
    **options
        Options of the run, as in `fit`: scheduler, workers, memory, timeout, progress and overwrite.

    Returns
    -------
    zarr.Array
        Rows x (n, d), in the units of the data.

    Raises
    ------
    SpecError
        Scores of another width or model, a model without pre-images, or other output at `out`.
    DataError, MemoryLimitError, LockedError, CorruptionError, IncompleteError
        As in `transform`.

    Notes
    -----
    One pass over the scores. Source: `docs/numerics.md`, section 18.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=2)
    >>> scores = bigkpca.transform(model, X, "scores.zarr")
    >>> bigkpca.reconstruct(model, scores, "rows.zarr").shape
    (500, 3)
    """
    run = RunOptions.of(WritingOptions, options)
    fitted = models.model_of(model)
    rows = open_scores(fitted, scores)
    return _write_preimages(rows, fitted, path_of(model), "scores", out, block_rows, run)


def denoise(
    model: AnyModel, data: Any, out: AnyPath, *, block_rows: int | None = None, **options: Unpack[WritingOptions]
) -> Stored:
    """Write denoised rows, the pre-images of the scores of rows, and return them as a Zarr array.

    This is `transform` and `reconstruct` in one pass, with iterations that start at the rows themselves.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
    out, block_rows
        As in `reconstruct`.
    **options
        Options of the run, as in `fit`: scheduler, workers, memory, timeout, progress and overwrite.

    Returns
    -------
    zarr.Array
        Rows x (n, d), in the units of the data; the output has the arrays that `reconstruct` writes.

    Raises
    ------
    SpecError
        Rows of another width or other columns, a model without pre-images, or other output at `out`.
    DataError, MemoryLimitError, LockedError, CorruptionError, IncompleteError
        As in `transform`.

    Notes
    -----
    One pass over the data. Source: `docs/numerics.md`, section 18.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=2)
    >>> bigkpca.denoise(model, X, "clean.zarr").shape
    (500, 3)
    """
    run = RunOptions.of(WritingOptions, options)
    fitted = models.model_of(model)
    rows = open_rows(data)
    check_columns(rows, fitted)
    return _write_preimages(rows, fitted, path_of(model), "rows", out, block_rows, run)


def _write_preimages(
    rows: Rows,
    model: Model,
    model_path: str | None,
    given: Literal["scores", "rows"],
    out: AnyPath,
    block_rows: int | None,
    run: RunOptions,
) -> Stored:
    """Write pre-images of scores or rows."""
    model.check_preimages()
    arrays = {
        "x": NewArray(model.features.dtype, (model.columns,)),
        "converged": NewArray(bool),
        "iterations": NewArray(np.uint32),
        "far": NewArray(bool),
    }

    plan = partial(plan_reconstruct, rows, model, block_rows)
    computed, title = (block_preimages, "reconstructing") if given == "scores" else (block_denoised, "denoising")
    function = partial(_preimages, computed=computed)
    work = _Work("reconstruction", {"given": given}, arrays, plan, title, function, lambda: [model])
    x = _written(work, model, rows, model_path, out, run)
    if lost := int(np.count_nonzero(groups.open_values(output.group_path(out), "far")[:])):
        run.progress.note(
            f"{lost:,} of {x.shape[0]:,} rows are far from all data and were set to the mean: see the array far"
        )
    return x


def _preimages(rows: Rows, block: Block, model: Model, *, computed: Callable[..., Preimages]) -> dict[str, Array]:
    found = computed(rows, block, model)
    return {
        "x": found.rows,
        "converged": found.converged,
        "iterations": found.iterations.astype(np.uint32),
        "far": found.far,
    }
