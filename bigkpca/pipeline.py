"""The stories, told in order: fit and transform, from rows to models and from models to features."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

import numpy as np

from bigkpca.data.blocks import Block, split
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, IncompleteError, SpecError
from bigkpca.evaluating.error import evaluate_rows
from bigkpca.execution.engine import Engine, Progress, Silent, Task, open_engine, parse_bytes, parse_seconds, shared
from bigkpca.execution.passes import (
    block_denoised,
    block_preimages,
    block_scores,
    block_scores_and_residuals,
    check_columns,
    expansion_of,
)
from bigkpca.execution.planning import Plan, plan_reconstruct, plan_transform
from bigkpca.fitting.fit import fit_within
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion, Preimages, check_width
from bigkpca.spec import FitSpec
from bigkpca.storage import block_arrays, destination, durable, groups, locks, models, paths
from bigkpca.storage.block_arrays import Stored
from bigkpca.storage.models import AnyModel

Path = str | os.PathLike[str]


def fit(
    data: Any,
    out: Path,
    *,
    array: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    time_budget: str | float | None = None,
    overwrite: bool = False,
    progress: Progress = Silent(),
    **options: Any,
) -> Model:
    """Fit `data` (a path, or anything that KernelPCA.fit takes) and save the model at `out`.

    options are the fields of FitSpec: components, kernel, sigma, method, size, seed, ... The same call on a
    finished `out` does nothing. With `tol`, `memory` and `time_budget` ("10 min", or seconds) end the growth of the
    size; the model records the size reached, and that size gives the same bits. Passes over the data: the bounded
    sample and one more, and both again in float64 where the rounding of float32 would count.
    Raises SpecError, DataError, MemoryLimitError, LockedError, CorruptionError.

    Rows that share a sentinel are far from all others, and told from each other all the same:

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 5)).astype("f4")
    >>> X[rng.random(3000) < 0.05, 2] = -9999
    >>> model = bigkpca.fit(X, "model.zarr", components=2, size=300)
    >>> model.solution.eigenvalues.round(0), model.certificate.trust
    (array([199., 195.]), ('solid', 'solid'))
    >>> [choice["option"] for choice in model.provenance["choices"]]
    ['sigma', 'landmarks', 'directions']

    Here 117 of the 295 directions that the landmarks span are left out, which may be mostly rounding in float32.
    """
    spec = FitSpec.checked(**options)
    deadline = None if time_budget is None else monotonic() + parse_seconds(time_budget)
    if deadline is not None and spec.tol is None:
        raise SpecError("a time budget ends the growth of the size: give a tolerance, tol, with it")
    if not isinstance(spec.kernel, str):
        models.check_savable(spec.kernel)
    rows = open_rows(data, array)
    fingerprint = rows.fingerprint()
    out = paths.group_path(out, fingerprint["path"])
    record = {"format": "model", "spec": spec.to_dict(), "identity": fingerprint}
    with locks.lock(out), durable.room_on_disk(out):
        if rows.names is not None and "column_names" in (groups.describe(out) or {}):  # models of before have none
            record["column_names"] = list(rows.names)
        place = destination.open_destination(out, record, overwrite=overwrite, whole=True)
        if place.state == "done":
            progress.note(f"{out} is there already, fitted from the same rows and options: nothing to do")
            there = models.load_model(out)
            if rows.names is not None and there.names is None:
                progress.note(f"{out} knows no names of columns: remove it and fit again to have later rows compared")
            return there
        with open_engine(scheduler, workers) as engine:
            limit = None if memory is None else parse_bytes(memory)
            model = fit_within(rows, spec, engine, limit, progress, fingerprint, deadline)
        _check_unchanged(rows, fingerprint)
        _save(model, place)
    return model


def save(model: Model, path: Path) -> None:
    """Save a model at a new path; SpecError if something is there, or the kernel is a function."""
    out = paths.group_path(path)
    with locks.lock(out), durable.room_on_disk(out):
        _save(model, destination.open_destination(out, {"format": "model", "digest": ""}, overwrite=False, whole=True))


def _save(model: Model, place: destination.Destination) -> None:
    with place.made() as scratch:
        models.save_model(model, scratch)
    place.put_in_place()


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
    fitted = _loaded(model)
    rows = open_rows(data, array)
    check_columns(rows, fitted)
    if residual:
        fitted.check_residuals()
    dtype = fitted.features.dtype
    arrays: dict[str, Any] = {"scores": ((fitted.components,), dtype)} | ({"residual": ((), dtype)} if residual else {})

    def plan(threads: int) -> Plan:
        return plan_transform(rows, fitted, block_rows, threads, residual=residual)

    function, prepared = (_scores_and_residuals, expansion_of) if residual else (_scores, None)
    work = _Work("features", rows, fitted, arrays, plan, function, "transforming", _path_of(model), prepared)
    return _written(work, out, {"residual": residual}, scheduler, workers, memory, overwrite, progress)


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
    fitted = _loaded(model)
    rows = open_scores(fitted, scores, array)
    return _back(
        fitted, _path_of(model), rows, "scores", out, block_rows, scheduler, workers, memory, overwrite, progress
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
    fitted = _loaded(model)
    rows = open_rows(data, array)
    check_columns(rows, fitted)
    return _back(
        fitted, _path_of(model), rows, "rows", out, block_rows, scheduler, workers, memory, overwrite, progress
    )


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
    work = _Work("reconstruction", rows, model, arrays, plan, function, title, model_path)
    x = _written(work, out, {"given": given}, scheduler, workers, memory, overwrite, progress)
    if lost := int(np.count_nonzero(block_arrays.values(paths.group_path(out), "far"))):
        progress.note(f"{lost:,} of {x.shape[0]:,} rows are far from all data: they became the mean, see far")
    return x


def open_scores(model: Model, scores: Any, array: str | None = None) -> Rows:
    """Scores of a model, wherever they are. Raises SpecError for those of another width, or of another model where a
    feature store tells."""
    _check_maker(model, scores)
    rows = open_rows(scores, array)
    check_width(rows.shape, model.components, rows.where)
    return rows


def _check_maker(model: Model, scores: Any) -> None:
    """Raise SpecError for scores in a feature store of another model, IncompleteError for one that is not finished."""
    path = feature_store(scores)
    if path is None:
        return
    manifest = block_arrays.read_manifest(path)
    if manifest is None:
        raise IncompleteError(f"{path} is not finished: run the same bigkpca transform command again")
    own = models.model_digest(model)
    if manifest["model"] != own:
        raise SpecError(
            f"{path} holds scores of the model {manifest['model'][:12]}, this is the model {own[:12]} (digests): "
            "scores mean nothing to another model; take the one that made them, or transform again"
        )


def feature_store(scores: Any) -> str | None:
    """Where the feature store is that holds these scores, given as a path to it or to its array, or as that array."""
    root = getattr(getattr(scores, "store", None), "root", None)
    if isinstance(scores, str | os.PathLike):
        place = os.fspath(scores)
    elif root is not None:
        place = os.path.join(root, scores.path)
    else:
        return None
    place = os.path.realpath(os.path.expanduser(place))
    places = place, os.path.dirname(place)
    return next((place for place in places if (groups.describe(place) or {}).get("format") == "features"), None)


def _path_of(model: AnyModel) -> str | None:
    return os.fspath(model) if isinstance(model, str | os.PathLike) else None


def _loaded(model: AnyModel) -> Model:
    return models.model_of(model)


@dataclass(frozen=True)
class _Work:
    """What is written block by block: arrays of the model's making, from rows."""

    kind: block_arrays.Kind
    rows: Rows
    model: Model
    arrays: Mapping[str, tuple[tuple[int, ...], Any]]
    plan: Callable[[int], Plan]  # from threads
    function: Callable[..., dict[str, Array]]  # of rows, a block, the model, and what is prepared
    title: str
    model_path: str | None
    prepared: Callable[[Model], Any] | None = None  # from the model, once for all blocks


def _written(
    work: _Work,
    out: Path,
    options: Mapping[str, Any],
    scheduler: str | None,
    workers: int | None,
    memory: str | int | None,
    overwrite: bool,
    progress: Progress,
) -> Stored:
    """Write the blocks that are missing, publish the manifest, and open what is there."""
    fingerprint = work.rows.fingerprint()
    out = paths.group_path(out, fingerprint["path"], work.model_path)
    with locks.lock(out), durable.room_on_disk(out), open_engine(scheduler, workers) as engine:
        plan = work.plan(engine.threads)
        limit = None if memory is None else parse_bytes(memory)
        plan.check(limit, "ask for smaller blocks with --block-rows, or fit a model with fewer landmarks")
        engine.check_memory(lambda threads: work.plan(threads).peak_bytes)
        record = {
            "format": work.kind,
            "model": models.model_digest(work.model),
            "input": fingerprint,
            "block_rows": plan.block_rows,
            **options,
        }
        place = destination.open_destination(out, record, overwrite=overwrite)
        if place.state == "done":
            progress.note(f"{out} is there already, from the same model and rows: nothing to do")
            return block_arrays.open_main(out, work.kind)
        blocks = split(work.rows.shape[0], plan.block_rows)
        if place.state == "new":
            with place.made() as scratch:
                block_arrays.create(scratch, record, work.rows.shape[0], work.arrays)
        digests = _write_missing(work, os.path.abspath(place.work), blocks, engine, progress)
        _check_unchanged(work.rows, fingerprint)
        block_arrays.publish(place.work, record, blocks, digests)
        place.put_in_place()
    return block_arrays.open_main(out, work.kind)


def evaluate(
    model: AnyModel,
    data: Any,
    *,
    sample: int = 500,
    seed: int = 0,
    array: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    progress: Progress = Silent(),
) -> Evaluation:
    """Estimate how wrong a model is on `data`, those it was fitted on or others, from exact kernels with `sample` rows.

    Reads the sampled rows, and makes one pass: `sample` kernels a row. Raises SpecError for rows of the wrong width and
    a sample larger than the data, MemoryLimitError where `memory`, or a worker, allows less than the plan needs.
    """
    fitted = _loaded(model)
    rows = open_rows(data, array)
    limit = None if memory is None else parse_bytes(memory)
    with open_engine(scheduler, workers) as engine:
        return evaluate_rows(fitted, rows, sample, seed, engine, progress, limit)


def _write_missing(
    work: _Work, path: str, blocks: tuple[Block, ...], engine: Engine, progress: Progress
) -> list[dict[str, str]]:
    """Write the blocks that are not stored whole; the digests of all, in order."""
    stored = block_arrays.stored_blocks(path, blocks)
    checks = [Task(block_arrays.block_digests, (path, block), len(block)) for block in stored]
    found = engine.each("checking finished blocks", checks, progress) if stored else []
    digests = {block.number: digest for block, digest in zip(stored, found, strict=True) if digest is not None}
    missing = [block for block in blocks if block.number not in digests]
    if digests:
        progress.note(f"going on: {len(blocks) - len(missing)} of {len(blocks)} blocks were written before")
    given, rows = [shared(work.model)], work.rows
    if work.prepared and missing:
        given.append(shared(work.prepared(work.model)))
    tasks = [Task(_write, (work.function, path, rows.part(b.start, b.stop), b, *given), len(b)) for b in missing]
    written = engine.each(work.title, tasks, progress)
    digests |= {block.number: digest for block, digest in zip(missing, written, strict=True)}
    return [digests[block.number] for block in blocks]


def _write(
    function: Callable[..., dict[str, Array]], path: str, rows: Rows, block: Block, *given: Any
) -> dict[str, str]:
    return block_arrays.write_block(path, block, function(rows, block, *given))


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


def _check_unchanged(rows: Rows, before: dict[str, Any]) -> None:
    # Stores remember what they listed, so the rows are opened afresh.
    path = before["path"]
    if path is not None and open_rows(path, rows.name).fingerprint() != before:
        raise SpecError(f"{rows.where} changed while it was read: run again once it is at rest")
