"""Transform, reconstruct and denoise rows, from path to path, block by block."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from bigkpca.data.blocks import Block
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.planning import Plan, plan_reconstruct, plan_transform
from bigkpca.execution.progress import Progress, Silent
from bigkpca.execution.projection import (
    block_denoised,
    block_preimages,
    block_scores,
    block_scores_and_residuals,
    check_columns,
    expansion_of,
)
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion, Preimages
from bigkpca.storage import block_arrays, models, paths
from bigkpca.storage.block_arrays import Stored
from bigkpca.storage.models import AnyModel
from bigkpca.workflows.block_writer import BlockOutput, Path, written
from bigkpca.workflows.scores import open_scores


def transform(
    model: AnyModel,
    data: Any,
    out: Path,
    *,
    residual: bool = False,
    array: str | None = None,
    block_rows: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    progress: Progress = Silent(),
) -> Stored:
    """Write the scores of `data` under a model to a feature store at `out`, and return them as a Zarr array.

    With `residual` the array of that name beside them gets |φ(x) - φ^(x)|² of each row, what its scores leave out:
    novelty. One pass. Each block is one shard, written by one task; the manifest is published last. A transform that
    was stopped goes on with the blocks that are missing; it refuses blocks of another model or input.
    """
    fitted = models.model_of(model)
    rows = open_rows(data, array)
    check_columns(rows, fitted)
    if residual:
        fitted.check_residuals()
    dtype = fitted.features.dtype
    arrays: dict[str, Any] = {"scores": ((fitted.components,), dtype)} | ({"residual": ((), dtype)} if residual else {})

    def plan(threads: int) -> Plan:
        return plan_transform(rows, fitted, block_rows, threads, residual=residual)

    function, prepared = (_scores_and_residuals, expansion_of) if residual else (_scores, None)
    work = BlockOutput("features", rows, fitted, arrays, plan, function, "transforming", path_of(model), prepared)
    return written(work, out, {"residual": residual}, scheduler, workers, memory, overwrite, progress)


def reconstruct(
    model: AnyModel,
    scores: Any,
    out: Path,
    *,
    array: str | None = None,
    block_rows: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    progress: Progress = Silent(),
) -> Stored:
    """Write the rows that scores (n, r) stand for, their pre-images, to `out`, and return them as a Zarr array (n, d).

    Beside x lie, for each row, `converged`, `iterations` and `far` (nothing near the data has such scores: the row is
    the mean). One pass over the scores; blocks, resume and manifest are those of `transform`. Raises SpecError for
    scores of another model, and for kernels without a way back.
    """
    fitted = models.model_of(model)
    rows = open_scores(fitted, scores, array)
    return _back(
        fitted, path_of(model), rows, "scores", out, block_rows, scheduler, workers, memory, overwrite, progress
    )


def denoise(
    model: AnyModel,
    data: Any,
    out: Path,
    *,
    array: str | None = None,
    block_rows: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    progress: Progress = Silent(),
) -> Stored:
    """Write what the model makes of the rows of `data`: `transform` and `reconstruct` in one pass, with iterations that
    start at the rows themselves. Output and guarantees are those of `reconstruct`.
    """
    fitted = models.model_of(model)
    rows = open_rows(data, array)
    check_columns(rows, fitted)
    return _back(fitted, path_of(model), rows, "rows", out, block_rows, scheduler, workers, memory, overwrite, progress)


def _back(
    model: Model,
    model_path: str | None,
    rows: Rows,
    given: Literal["scores", "rows"],
    out: Path,
    block_rows: int | None,
    scheduler: str | None,
    workers: int | None,
    memory: str | int | None,
    overwrite: bool,
    progress: Progress,
) -> Stored:
    model.reconstructing(1)  # which says so where there is no way back
    arrays: dict[str, Any] = {
        "x": ((model.columns,), model.features.dtype),
        "converged": ((), bool),
        "iterations": ((), np.uint32),
        "far": ((), bool),
    }

    def plan(threads: int) -> Plan:
        return plan_reconstruct(rows, model, block_rows, threads)

    function, title = (_preimages, "reconstructing") if given == "scores" else (_denoised, "denoising")
    work = BlockOutput("reconstruction", rows, model, arrays, plan, function, title, model_path)
    x = written(work, out, {"given": given}, scheduler, workers, memory, overwrite, progress)
    if lost := int(np.count_nonzero(block_arrays.values(paths.group_path(out), "far"))):
        progress.note(f"{lost:,} of {x.shape[0]:,} rows are far from all data: they became the mean, see far")
    return x


def path_of(model: AnyModel) -> str | None:
    return os.fspath(model) if isinstance(model, str | os.PathLike) else None


def _scores(rows: Rows, block: Block, model: Model) -> dict[str, Array]:
    return {"scores": block_scores(rows, block, model)}


def _scores_and_residuals(rows: Rows, block: Block, model: Model, given: Expansion) -> dict[str, Array]:
    scores, residual = block_scores_and_residuals(rows, block, model, given)
    return {"scores": scores, "residual": residual}


def _preimages(scores: Rows, block: Block, model: Model) -> dict[str, Array]:
    return _by_name(block_preimages(scores, block, model))


def _denoised(rows: Rows, block: Block, model: Model) -> dict[str, Array]:
    return _by_name(block_denoised(rows, block, model))


def _by_name(found: Preimages) -> dict[str, Array]:
    return {
        "x": found.rows,
        "converged": found.converged,
        "iterations": found.iterations.astype(np.uint32),
        "far": found.far,
    }
