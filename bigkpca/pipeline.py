"""The stories, told in order: fit and transform, from rows to models and from models to features."""

from __future__ import annotations

import os
from time import monotonic
from typing import Any

import numpy as np

from bigkpca import store, store_features, store_model
from bigkpca.blocks import Block, split
from bigkpca.choose import PROBES, random_stream
from bigkpca.engine import (
    Engine,
    Progress,
    Silent,
    Task,
    open_engine,
    parse_bytes,
    parse_seconds,
    shared,
    single_threaded_blas,
)
from bigkpca.errors import SpecError
from bigkpca.fitting import fit_within
from bigkpca.numerics import evaluation
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.numerics.features import GivenKernels, KernelRows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.passes import block_scores, check_columns, read_rows, sums_with
from bigkpca.plan import plan_transform
from bigkpca.sources import Rows, open_rows
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec

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
    sample and one more. Raises SpecError, DataError, MemoryLimitError, LockedError, CorruptionError.
    """
    spec = FitSpec.checked(**options)
    deadline = None if time_budget is None else monotonic() + parse_seconds(time_budget)
    if deadline is not None and spec.tol is None:
        raise SpecError("a time budget ends the growth of the size: give a tolerance, tol, with it")
    if not isinstance(spec.kernel, str):
        store_model.check_savable(spec.kernel)
    rows = open_rows(data, array)
    fingerprint = rows.fingerprint()
    out = os.fspath(out)
    record = {"format": "model", "spec": spec.to_dict(), "identity": fingerprint}
    with store.lock(out), store.room_on_disk(out):
        place = store.destination(out, record, overwrite=overwrite, scratch=True)
        if place.state == "done":
            progress.note(f"{out} is there already, fitted from the same rows and options: nothing to do")
            return store_model.load_model(out)
        with open_engine(scheduler, workers) as engine:
            limit = None if memory is None else parse_bytes(memory)
            model = fit_within(rows, spec, engine, limit, progress, fingerprint, deadline)
        _check_unchanged(rows, fingerprint)
        store_model.save_model(model, place.work)
        place.put_in_place()
    return model


def save(model: Model, path: Path) -> None:
    """Save a model at a new path; SpecError if something is there, or the kernel is a function."""
    out = os.fspath(path)
    with store.lock(out), store.room_on_disk(out):
        place = store.destination(out, {"format": "model", "digest": ""}, overwrite=False, scratch=True)
        store_model.save_model(model, place.work)
        place.put_in_place()


def transform(
    model: Path | Model,
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
) -> store_features.Scores:
    """Write the scores of `data` under a model to a feature store at `out`, and return them as a Zarr array.

    One pass. Each block is one shard, written by one task; the manifest is published last. A transform that
    was stopped goes on with the blocks that are missing; it refuses blocks of another model or input.
    """
    fitted = model if isinstance(model, Model) else store_model.load_model(os.fspath(model))
    rows = open_rows(data, array)
    check_columns(rows, fitted)
    out = os.fspath(out)
    with store.lock(out), store.room_on_disk(out), open_engine(scheduler, workers) as engine:
        plan = plan_transform(rows, fitted, block_rows, engine.threads)
        limit = None if memory is None else parse_bytes(memory)
        plan.check(limit, "ask for smaller blocks with --block-rows, or fit a model with fewer landmarks")
        engine.check_memory(lambda threads: plan_transform(rows, fitted, block_rows, threads).peak_bytes)
        fingerprint = rows.fingerprint()
        record = {
            "format": "features",
            "model": store_model.model_digest(fitted),
            "input": fingerprint,
            "block_rows": plan.block_rows,
        }
        place = store.destination(out, record, overwrite=overwrite)
        if place.state == "done":
            progress.note(f"{out} is there already, from the same model and rows: nothing to do")
            return store_features.open_scores(out)
        blocks = split(rows.shape[0], plan.block_rows)
        if place.state == "new":
            shape = (rows.shape[0], fitted.components)
            store_features.create_features(place.work, record, shape, fitted.features.dtype)
        digests = _write_missing(rows, fitted, place.work, blocks, engine, progress)
        _check_unchanged(rows, fingerprint)
        store_features.publish(place.work, record, blocks, digests)
        place.put_in_place()
    return store_features.open_scores(out)


def evaluate(
    model: Path | Model,
    data: Any,
    *,
    sample: int = 500,
    seed: int = 0,
    array: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Progress = Silent(),
) -> Evaluation:
    """Estimate how wrong a model is on `data`, those it was fitted on or others, from exact kernels with `sample` rows.

    Reads the sampled rows, and makes one pass: `sample` kernels a row. Raises SpecError for rows of the wrong width and
    a sample larger than the data.
    """
    fitted = model if isinstance(model, Model) else store_model.load_model(os.fspath(model))
    rows = open_rows(data, array)
    check_columns(rows, fitted)
    if isinstance(fitted.features, GivenKernels):
        raise SpecError(
            f"evaluate computes kernels of rows, and {rows.where} is a matrix of them: the certificate of this model "
            "has the residual of every component"
        )
    n = rows.shape[0]
    if not 1 < sample <= n:
        raise SpecError(f"a sample of {sample} rows: {rows.where} has {n}, of which at least 2 are needed")
    numbers = np.sort(random_stream(seed, PROBES).choice(n, sample, replace=False))
    features, tolerance = fitted.features, rank_tolerance(fitted.features.dtype)
    spec = FitSpec.of(fitted)
    if isinstance(features, KernelRows) and features.size > EXACT_MOST_ROWS:
        raise SpecError(
            f"evaluate holds the Gram matrix of the landmarks, at most {EXACT_MOST_ROWS}, and this model keeps "
            f"{features.size} rows; its certificate has the residual of every component"
        )
    with open_engine(scheduler, workers) as engine:
        X = read_rows(rows, numbers, engine, progress)
        with single_threaded_blas:
            P = FitSpec.factor(fitted, tolerance)
            given = evaluation.probes(features, fitted.solution, X, P)
        sums = sums_with(rows, fitted, given, engine, progress)
    return evaluation.evaluation(sums, given, P, center=spec.center)


def _write_missing(
    rows: Rows, model: Model, path: str, blocks: tuple[Block, ...], engine: Engine, progress: Progress
) -> list[str]:
    """Write the blocks that are not stored whole; the digests of all, in order."""
    stored = store_features.stored_blocks(path, blocks)
    checks = [Task(store_features.block_digest, (path, block), len(block)) for block in stored]
    found = engine.each("checking finished blocks", checks, progress) if stored else []
    digests = {block.number: digest for block, digest in zip(stored, found, strict=True) if digest is not None}
    missing = [block for block in blocks if block.number not in digests]
    if digests:
        progress.note(f"going on: {len(blocks) - len(missing)} of {len(blocks)} blocks were written before")
    fitted = shared(model)
    tasks = [Task(_write_scores, (rows.part(b.start, b.stop), b, fitted, path), len(b)) for b in missing]
    written = engine.each("transforming", tasks, progress)
    digests |= {block.number: digest for block, digest in zip(missing, written, strict=True)}
    return [digests[block.number] for block in blocks]


def _write_scores(rows: Rows, block: Block, model: Model, path: str) -> str:
    return store_features.write_block(path, block, block_scores(rows, block, model))


def _check_unchanged(rows: Rows, before: dict[str, Any]) -> None:
    # Stores remember what they listed, so the rows are opened afresh.
    path = before["path"]
    if path is not None and open_rows(path, rows.name).fingerprint() != before:
        raise SpecError(f"{rows.where} changed while it was read: run again once it is at rest")
