"""The stories, told in order: fit and transform, from rows to models and from models to features."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca import store, store_features, store_model
from bigkpca.blocks import Block, fit_block_rows, sample_rows, split, tile_rows
from bigkpca.engine import (
    Engine,
    Progress,
    Silent,
    Task,
    open_engine,
    parse_bytes,
    shared,
    single_threaded_blas,
)
from bigkpca.errors import Array, DataError, IndefiniteKernelWarning, SpecError
from bigkpca.numerics import bandwidth, solvers
from bigkpca.numerics.bandwidth import Length
from bigkpca.numerics.features import KernelRows, shifted
from bigkpca.numerics.linalg import Map, rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import Moments, block_moments
from bigkpca.numerics.solvers import Solution
from bigkpca.plan import largest_size_that_fits, plan_fit, plan_transform
from bigkpca.sources import Rows, anonymous, open_rows, take, tiles
from bigkpca.spec import FitSpec

Path = str | os.PathLike[str]

# What randomness is for: each purpose has a stream of its own, so that one more draw here changes nothing there.
_SAMPLE, _PAIRS, _LANDMARKS = range(3)
_SHIFT_ROWS = 1024  # give a mean kernel row near enough to the mean of all; the whole sample would cost 0.3 s
_NOTICEABLY_NEGATIVE = -1e-8  # rounding alone leaves eigenvalues of about -1e-15 of the largest


def fit(
    data: Any,
    out: Path,
    *,
    array: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    progress: Progress = Silent(),
    **options: Any,
) -> Model:
    """Fit `data` (a path, or anything that KernelPCA.fit takes) and save the model at `out`.

    options are the fields of FitSpec: components, kernel, sigma, method, size, seed, ... The same call on a
    finished `out` does nothing. Passes over the data: the bounded sample and one more. Raises SpecError,
    DataError, MemoryLimitError, LockedError, CorruptionError.
    """
    spec = FitSpec.checked(**options)
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
            model = fit_within(rows, spec, engine, limit, progress, fingerprint)
        _check_unchanged(rows, fingerprint)
        store_model.save_model(model, place.work)
        place.put_in_place()
    return model


def fit_within(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    limit: int | None,
    progress: Progress,
    identity: dict[str, Any] | None = None,
) -> Model:
    """`fit_rows`, unless its plan needs more than `limit` bytes in a process, or than workers may use.

    Raises MemoryLimitError before anything is read.
    """
    plan = plan_fit(rows, spec, engine.threads)
    if limit is not None and plan.peak_bytes > limit:
        size = largest_size_that_fits(rows, spec, engine.threads, limit)
        plan.check(limit, f"nystroem with a size of {size} would fit" if size else "not even 10 landmarks would fit")
    engine.check_memory(lambda threads: plan_fit(rows, spec, threads).peak_bytes)
    return fit_rows(rows, spec, engine, progress, identity)


def fit_rows(
    rows: Rows, spec: FitSpec, engine: Engine, progress: Progress, identity: dict[str, Any] | None = None
) -> Model:
    """Fit rows wherever they are: one bounded sample, one pass, one small eigenproblem.

    `identity` is the fingerprint of the rows, where a model on disk must know them again. Raises DataError for
    NaN, infinity (row and column named) and constant data. Warns IndefiniteKernelWarning when the kernel has
    negative eigenvalues, which are dropped.
    """
    _note_lowered(spec, rows.shape[0], progress)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # the pass names rows that overflow
        features, near_mean = _choose(rows, spec, engine, progress)
        solve = _solve_exactly if spec.method == "exact" else _solve_by_landmarks
        solution, moments, digest = solve(rows, features, near_mean, spec, engine, progress)
    _warn_if_indefinite(solution)
    provenance = {"spec": spec.to_dict(), "identity": identity or anonymous(rows), "content": digest}
    return Model(features, solution, moments, provenance)


def _choose(rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> tuple[KernelRows, Array]:
    """The feature map, and a vector near the mean of v over all rows. The sample is let go before the pass."""
    sample = draw_sample(rows, spec.seed, spec.landmark_count(rows.shape[0]), engine, progress)
    features = choose_features(sample, spec, engine.in_order)
    return features, mean_features(features, sample[:: max(1, len(sample) // _SHIFT_ROWS)])


def _solve_by_landmarks(
    rows: Rows, features: KernelRows, near_mean: Array, spec: FitSpec, engine: Engine, progress: Progress
) -> tuple[Solution, Moments, str]:
    tolerance = rank_tolerance(features.dtype)
    summary = pass_over(rows, features, near_mean, spec.block_rows, engine, progress)
    solution = solvers.nystroem(
        summary.moments, features.gram(), spec.components, center=spec.center, tolerance=tolerance
    )
    return solution, summary.moments, summary.content


def _solve_exactly(
    rows: Rows, features: KernelRows, near_mean: Array, spec: FitSpec, engine: Engine, progress: Progress
) -> tuple[Solution, None, str]:
    solution = solvers.gram(
        features.gram(),
        spec.components,
        center=spec.center,
        tolerance=rank_tolerance(features.dtype),
        positive=features.kernel.positive,
    )
    return solution, None, hashlib.sha256(features.landmarks.tobytes()).hexdigest()  # they are the rows


def extend(model: Model, rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> Model:
    """The model of the rows it was fitted on and these: one pass over these, moments added, solved again.

    Kernel, landmarks and offset stay; signs follow the old model's. Raises SpecError for exact models.
    """
    if model.moments is None:
        raise SpecError("an exact model cannot take more rows: fit it again on all of them, or use nystroem")
    check_columns(rows, model)
    features = model.features
    summary = pass_over(rows, features, model.moments.mean, model.block_rows, engine, progress)
    moments = model.moments + summary.moments
    with single_threaded_blas:
        W = features.gram()
        solution = solvers.nystroem(
            moments, W, spec.components, center=spec.center, tolerance=rank_tolerance(features.dtype)
        )
        solution = solvers.aligned(solution, model.solution, W)
    added = [*model.provenance.get("added", []), anonymous(rows) | {"sha256": summary.content}]
    return Model(features, solution, moments, {**model.provenance, "added": added})


def save(model: Model, path: Path) -> None:
    """Save a model at a new path; SpecError if something is there, or the kernel is a function."""
    out = os.fspath(path)
    with store.lock(out), store.room_on_disk(out):
        place = store.destination(out, {"format": "model", "digest": ""}, overwrite=False, scratch=True)
        store_model.save_model(model, place.work)
        place.put_in_place()


def draw_sample(rows: Rows, seed: int, size: int, engine: Engine, progress: Progress) -> Array:
    """The one bounded sample of a fit, in the order and dtype of the data: uniform without replacement.

    Reads each storage chunk that holds a sampled row once. Raises DataError if all sampled rows are equal.
    """
    n, d = rows.shape
    m = sample_rows(n, d, size)
    numbers = np.sort(random_stream(seed, _SAMPLE).choice(n, m, replace=False))
    tasks = []
    for block in split(n, fit_block_rows(n, rows.grain)):
        inside = numbers[np.searchsorted(numbers, block.start) : np.searchsorted(numbers, block.stop)]
        if len(inside):
            tasks.append(Task(take, (rows.part(block.start, block.stop), inside), len(inside)))
    sample = np.concatenate(engine.each("sampling rows", tasks, progress))
    if (sample[-1] == sample[0]).all() and (sample == sample[0]).all():  # the first alone tells most data apart
        raise DataError(
            f"{rows.where}: all {m} sampled rows are equal: constant data have no kernel principal components"
        )
    return sample


def random_stream(seed: int, purpose: int) -> np.random.Generator:
    """The random numbers of one purpose, the same on every machine and for every number of workers."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose,)))


def choose_features(sample: Array, spec: FitSpec, in_order: Map = map) -> KernelRows:
    """The feature map that a sample (m, d) determines: offset, sigma, landmarks."""
    dtype = spec.block_dtype(sample.dtype)
    offset = _offset(sample, spec)
    median = _median(sample, spec, in_order) if spec.needs_median else None
    kernel = spec.kernel_value(sample.shape[1], median)
    if spec.method == "exact":
        return KernelRows(kernel, shifted(sample, offset, dtype), offset)
    rule, rng = spec.landmark_rule(), random_stream(spec.seed, _LANDMARKS)
    size = min(spec.landmark_count(len(sample)), len(sample))
    candidates = np.sort(rng.choice(len(sample), min(rule.most_rows(size), len(sample)), replace=False))
    return KernelRows(kernel, rule.choose(shifted(sample[candidates], offset, dtype), size, rng, in_order), offset)


def _offset(sample: Array, spec: FitSpec) -> Array:
    """The mean of the sample where the kernel allows a shift, else zero.

    Rounded to the precision of the data, so that every row has it subtracted without a rounding of its own.
    """
    if not spec.stationary:
        return np.zeros(sample.shape[1])
    precision = np.result_type(sample.dtype, np.float32)
    return sample.mean(axis=0, dtype=np.float64).astype(precision).astype(np.float64)


def _distances(sample: Array, spec: FitSpec, in_order: Map) -> Array:
    return bandwidth.pair_distances(sample, spec.distance, random_stream(spec.seed, _PAIRS), in_order)


def _median(sample: Array, spec: FitSpec, in_order: Map) -> float:
    return bandwidth.median_sigma(_distances(sample, spec, in_order), spec.distance)


def sample_lengths(rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> dict[str, Length]:
    """Candidate lengths sigma of the kernel, from the same sample and pairs as a fit with this spec would draw."""
    size = spec.landmark_count(rows.shape[0])
    sample = draw_sample(rows, spec.seed, size, engine, progress)
    return bandwidth.candidate_lengths(_distances(sample, spec, engine.in_order), spec.distance)


@dataclass(frozen=True)
class Summary:
    """What a pass leaves: moments of the features, and the SHA-256 of each block's values, in block order."""

    moments: Moments
    digests: tuple[str, ...]

    def __add__(self, other: Summary) -> Summary:
        return Summary(self.moments + other.moments, self.digests + other.digests)

    @property
    def content(self) -> str:
        """One digest of all rows."""
        return hashlib.sha256("".join(self.digests).encode()).hexdigest()


def pass_over(
    rows: Rows,
    features: KernelRows,
    shift: Array,
    block_rows: int | None,
    engine: Engine,
    progress: Progress,
) -> Summary:
    n = rows.shape[0]
    blocks = split(n, fit_block_rows(n, rows.grain, block_rows))
    given = shared(features), shared(shift)
    tasks = [Task(_summarise, (rows.part(b.start, b.stop), b, *given), len(b)) for b in blocks]
    summary: Summary = engine.total("fitting", tasks, progress)
    return summary


def _summarise(rows: Rows, block: Block, features: KernelRows, shift: Array) -> Summary:
    digest = hashlib.sha256()
    X_tiles, most_rows = _block_tiles(rows, block, features, digest)
    with np.errstate(over="ignore", invalid="ignore"):
        moments = block_moments(features.tiles(X_tiles, most_rows), shift)
    _check_overflow(moments.scatter, rows, block)
    return Summary(moments, (digest.hexdigest(),))


def _block_tiles(rows: Rows, block: Block, features: KernelRows, digest: Any = None) -> tuple[Iterator[Array], int]:
    """The tiles of a block, and the most rows that one of them has."""
    height = tile_rows(features.columns, features.size, features.dtype.itemsize)
    return tiles(rows, block.start, block.stop, height, digest), min(height, len(block))


def mean_features(features: KernelRows, X: Array) -> Array:
    """Mean of v over rows X (m, d), (D,), float64."""
    rows = shifted(X, features.offset, features.dtype)
    return features.kernel(rows, features.landmarks).mean(axis=0, dtype=np.float64)


def block_scores(rows: Rows, block: Block, model: Model) -> Array:
    """Scores (rows of the block, r) in the dtype of block work."""
    X_tiles, most_rows = _block_tiles(rows, block, model.features)
    scores = np.empty((len(block), model.components), model.features.dtype)
    done = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for tile in model.project(X_tiles, most_rows):
            scores[done : done + len(tile)] = tile
            done += len(tile)
    _check_overflow(scores, rows, block)
    return scores


def _check_overflow(values: Array, rows: Rows, block: Block) -> None:
    """Raise DataError where finite rows gave kernel values that the dtype of block work cannot hold."""
    if not np.isfinite(values).all():
        raise DataError(
            f"{rows.where}: kernel values of rows {block.start} to {block.stop - 1} overflow: some row is far larger "
            "than the rest; remove it, scale the columns, or fit with dtype float64"
        )


def score_rows(rows: Rows, model: Model, engine: Engine, progress: Progress) -> Array:
    """Scores (n, r) of all rows, in memory."""
    check_columns(rows, model)
    n = rows.shape[0]
    blocks = split(n, fit_block_rows(n, rows.grain, model.block_rows))
    fitted = shared(model)
    tasks = [Task(block_scores, (rows.part(b.start, b.stop), b, fitted), len(b)) for b in blocks]
    return np.concatenate(engine.each("projecting", tasks, progress))


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


def check_columns(rows: Rows, model: Model) -> None:
    """Raise SpecError unless the rows are as wide as those the model was fitted on."""
    if rows.shape[1] != model.columns:
        raise SpecError(
            f"{rows.where} has {rows.shape[1]} columns, the model was fitted on {model.columns}: "
            "give it rows with the same columns in the same order"
        )


def _check_unchanged(rows: Rows, before: dict[str, Any]) -> None:
    # Stores remember what they listed, so the rows are opened afresh.
    path = before["path"]
    if path is not None and open_rows(path, rows.name).fingerprint() != before:
        raise SpecError(f"{rows.where} changed while it was read: run again once it is at rest")


def _note_lowered(spec: FitSpec, n: int, progress: Progress) -> None:
    size = spec.landmark_count(n)
    if spec.method != "exact" and spec.size != "auto" and size < spec.size:
        progress.note(f"size lowered from {spec.size} to {size}: there are no more rows")
    if isinstance(spec.components, int) and spec.components > size:
        progress.note(f"components lowered from {spec.components} to at most {size}: there are no more landmarks")


def _warn_if_indefinite(solution: Solution) -> None:
    if solution.negative < _NOTICEABLY_NEGATIVE:
        warnings.warn(
            f"the kernel is indefinite on these rows: its most negative eigenvalue is {solution.negative:.2g} "
            "of the largest; the negative part was dropped",
            IndefiniteKernelWarning,
            stacklevel=3,
        )
