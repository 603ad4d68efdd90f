"""The stories, told in order: fit and transform, from rows to models and from models to features."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigkpca import similarities, store, store_features, store_model
from bigkpca.blocks import Block, split
from bigkpca.choose import PROBES, SKETCH, choose, random_stream
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
from bigkpca.errors import Array, IndefiniteKernelWarning, NarrowKernelWarning, SpecError
from bigkpca.numerics import certificate, evaluation, solvers
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.numerics.features import FeatureMap, GivenKernels, KernelRows, PrincipalFourierRows
from bigkpca.numerics.kernels import Kernel, Precomputed
from bigkpca.numerics.landmarks import Uniform
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.sketch import OVERSAMPLING, Action, Ritz, leading_eigenpairs, starting_block
from bigkpca.numerics.solvers import Solution
from bigkpca.passes import (
    action_of,
    block_scores,
    check_columns,
    gather,
    gram_product,
    moments_of,
    read_rows,
    score_rows,
    sums_with,
)
from bigkpca.pieces import check_square
from bigkpca.plan import largest_size_that_fits, plan_fit, plan_transform
from bigkpca.sources import ArrayRows, Rows, anonymous, open_rows
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec

Path = str | os.PathLike[str]

_NOTICEABLY_NEGATIVE = -1e-8  # rounding alone leaves eigenvalues of about -1e-15 of the largest
_MOSTLY_UNEXPLAINED = 0.5
_MOST_PRODUCTS = 20


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
    if spec.precomputed:
        plan.check(limit, "store the matrix in smaller chunks, ask for fewer components, or allow more")
    elif limit is not None and plan.peak_bytes > limit:
        size = largest_size_that_fits(rows, spec, engine.threads, limit)
        what = "nystroem" if spec.exact else spec.method_value.name
        plan.check(limit, f"{what} with a size of {size} would fit" if size else "not even a size of 10 would fit")
    engine.check_memory(lambda threads: plan_fit(rows, spec, threads).peak_bytes)
    return fit_rows(rows, spec, engine, progress, identity)


def fit_rows(
    rows: Rows, spec: FitSpec, engine: Engine, progress: Progress, identity: dict[str, Any] | None = None
) -> Model:
    """Fit rows wherever they are: one bounded sample, one pass, one small eigenproblem.

    `standardize` and rff-pca make one pass more each, the randomized solver as many as `sketch.PASSES` in all, and
    RPCholesky over all rows those that it tells of. `identity` is the fingerprint of the rows, where a model on disk
    must know them again. Raises DataError for NaN, infinity (row and column named) and constant data. Warns
    IndefiniteKernelWarning when the kernel has negative eigenvalues, which are dropped, NarrowKernelWarning when the
    Gram matrix is close to the identity.
    """
    if spec.precomputed:
        return _of_similarities(rows, spec, engine, progress, identity)
    if spec.matrix_free(rows.shape[0]):
        start = fit_rows(rows, spec.start(rows.shape[0]), engine, progress, identity)
        return _by_products(rows, start, spec, engine, progress)
    _note_lowered(spec, rows.shape[0], progress)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # the pass names rows that overflow
        chosen = choose(rows, spec, engine, progress)
        solution, moments, digest = _solve(rows, chosen.features, chosen.near_mean, spec, engine, progress)
    _warn_if_indefinite(solution)
    _warn_if_narrow(chosen.features.kernel, chosen.unexplained, solution.unexplained)
    provenance = {"spec": spec.to_dict(), "identity": identity or anonymous(rows), "content": digest}
    with single_threaded_blas:
        certified = certify(moments, chosen.features, solution, spec)
    return Model(chosen.features, solution, moments, certified, provenance)


def _by_products(rows: Rows, start: Model, spec: FitSpec, engine: Engine, progress: Progress) -> Model:
    """Exact eigenpairs by products with the Gram matrix, of n² / 2 kernels, from an approximate model's scores."""
    columns = start.features.as_columns()
    X = gather(rows, columns, engine, progress)
    # Threads share the rows in memory; workers read theirs from the source, block by block.
    here = (ArrayRows(X), replace(columns, offset=np.zeros(columns.columns), scale=None))
    source, seen = (rows, columns) if engine.client else here

    def product(B: Array) -> Array:
        return gram_product(source, seen, B, engine, progress, "products with the Gram matrix")

    scores = score_rows(rows, start, engine, progress).astype(np.float64)
    diagonal = float(columns.kernel.diagonal(X).sum())
    solution, found = _eigenpairs(product, scores, diagonal, columns.dtype, spec, progress)
    features = KernelRows(columns.kernel, columns.offset, X, scale=columns.scale)
    provenance = {**start.provenance, "spec": spec.to_dict(), "products": found.products}
    certified = certificate.of_products(solution, found.residuals[: len(solution.eigenvalues)])
    return Model(features, solution, None, certified, provenance)


def _of_similarities(
    rows: Rows, spec: FitSpec, engine: Engine, progress: Progress, identity: dict[str, Any] | None
) -> Model:
    """The exact model of a given Gram matrix: held up to 8192 rows, above read for each product."""
    check_square(rows)
    n, dtype = rows.shape[0], spec.block_dtype(rows.dtype)
    _note_lowered(spec, n, progress)
    provenance: dict[str, Any] = {"spec": spec.to_dict(), "identity": identity or anonymous(rows)}
    with single_threaded_blas:
        if spec.matrix_free(n):
            start = similarities.started(rows, spec, engine, progress)
            product = partial(similarities.product, rows, spec, engine, progress)
            solution, found = _eigenpairs(product, start.block, start.trace, dtype, spec, progress)
            noise = similarities.rounding(start.trace, n, similarities.precision(rows, spec))
            lowest = min(start.negative, similarities.noticed(found.lowest, found.values[0], noise))
            solution = replace(solution, negative=lowest)
            certified = certificate.of_products(solution, found.residuals[: len(solution.eigenvalues)])
            provenance |= {"content": start.digest, "products": found.products}
        else:
            K, provenance["content"] = similarities.whole(rows, spec, engine, progress)
            solution = similarities.solved(rows, K, spec)
            certified = certificate.of_gram(solution)
    _warn_if_indefinite(solution)
    return Model(GivenKernels(Precomputed(), np.zeros(n), dtype.name), solution, None, certified, provenance)


def _eigenpairs(
    product: Callable[[Array], Array],
    block: Array,
    trace: float,
    dtype: np.dtype[Any],
    spec: FitSpec,
    progress: Progress,
) -> tuple[Solution, Ritz]:
    """Exact eigenpairs by products B -> K B with the Gram matrix, of trace `trace`, from the span of a block (n, b)."""
    assert isinstance(spec.components, int)
    n, row_sums, tolerance = len(block), np.zeros(len(block)), rank_tolerance(dtype)

    def apply(Q: Array) -> Array:
        nonlocal row_sums
        first = not row_sums.any()
        B = np.column_stack([Q - Q.mean(axis=0) if spec.center else Q, *([np.ones(n)] if first else [])])
        image = product(B)
        if first:
            row_sums = image[:, -1].copy()  # not a view, which would keep the product
        image = image[:, : Q.shape[1]]
        return image - image.mean(axis=0) if spec.center else image

    def told(found: Ritz) -> None:
        progress.note(f"product {found.products}: largest relative residual {found.worst(tolerance):.1e}")

    missing = min(spec.components + OVERSAMPLING, n) - block.shape[1]
    if missing > 0:  # the approximate model had not enough landmarks: random directions beside its scores
        block = np.hstack([block, random_stream(spec.seed, SKETCH).standard_normal((n, missing))])
    most = spec.refine or _MOST_PRODUCTS
    with single_threaded_blas:
        found = leading_eigenpairs(
            apply, block, spec.components, most=most, tol=spec.residual_tol, floor=tolerance, told=told
        )
    solution = solvers.of_eigenvectors(
        found.values, found.vectors, row_sums / n, trace, center=spec.center, tolerance=tolerance
    )
    return solution, found


def _solve(
    rows: Rows, features: FeatureMap, near_mean: Array, spec: FitSpec, engine: Engine, progress: Progress
) -> tuple[Solution, Moments | None, str]:
    if spec.exact:
        assert isinstance(features, KernelRows)
        digest = hashlib.sha256(features.landmarks.tobytes()).hexdigest()  # they are the rows
        return solve(None, features, spec), None, digest
    if spec.randomized(features.size):
        solution, digest = _solve_by_sketch(rows, features, near_mean, spec, engine, progress)
        return solution, None, digest
    moments, digest = moments_of(rows, features, near_mean, spec.block_rows, engine, progress)
    return solve(moments, features, spec), moments, digest


def solve(moments: Moments | None, features: FeatureMap, spec: FitSpec) -> Solution:
    """The solution of the method of `spec`; moments are None for the exact one alone."""
    tolerance = rank_tolerance(features.dtype)
    found: Solution = spec.method_value.solve(moments, features, spec.components, spec.center, tolerance)  # type: ignore[arg-type]
    return found


def certify(moments: Moments | None, features: FeatureMap, solution: Solution, spec: FitSpec) -> Certificate:
    """What the moments prove and suggest about the error; nothing for the randomized solver, which leaves none."""
    method, tolerance = spec.method_value, rank_tolerance(features.dtype)
    if spec.exact:
        return certificate.of_gram(solution)
    if moments is None:
        return Certificate()
    if isinstance(features, KernelRows):
        uniform = isinstance(spec.landmark_rule(), Uniform)
        return certificate.of_landmarks(
            method, moments, features, solution, center=spec.center, tolerance=tolerance, uniform=uniform
        )
    return certificate.of_random_features(method, moments, features, solution, center=spec.center, tolerance=tolerance)


def _solve_by_sketch(
    rows: Rows, features: FeatureMap, near_mean: Array, spec: FitSpec, engine: Engine, progress: Progress
) -> tuple[Solution, str]:
    """Leading eigenpairs of the features' scatter from `sketch.PASSES` passes, never holding D x D."""
    assert isinstance(spec.components, int)  # the spec checks
    actions: list[tuple[Action, str]] = []

    def apply(Q: Array) -> Array:
        actions[:] = [action_of(rows, features, near_mean, Q, spec.block_rows, engine, progress)]
        return actions[0][0].applied(Q, near_mean, spec.center)

    D, count = features.size, min(spec.components, features.size)
    start = starting_block(D, min(D, count + OVERSAMPLING), random_stream(spec.seed, SKETCH))
    found = leading_eigenpairs(apply, start, count)
    ((action, digest),) = actions
    unexplained = 0.0
    if isinstance(features, PrincipalFourierRows):
        unexplained = features.unexplained(action.squares_about_zero(near_mean), action.count)
    mean = action.mean(near_mean) if spec.center else np.zeros(features.size)
    tolerance = rank_tolerance(features.dtype)
    solution = solvers.spectrum(
        found.values, found.vectors, mean, action.count, action.trace, spec.components, unexplained, tolerance
    )
    return solution, digest


def extend(model: Model, rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> Model:
    """The model of the rows it was fitted on and these: one pass over these, moments added, solved again.

    Kernel, landmarks, frequencies, offset and scale stay; signs follow the old model's. Raises SpecError for models
    without moments: exact ones, and those of the randomized solver.
    """
    if model.moments is None:
        raise SpecError(
            "a model of the exact method or of the randomized solver cannot take more rows: fit it again on all of "
            "them, or use nystroem"
        )
    check_columns(rows, model)
    features = model.features
    more, content = moments_of(rows, features, model.moments.mean, model.block_rows, engine, progress)
    moments = model.moments + more
    with single_threaded_blas:
        W = features.gram() if isinstance(features, KernelRows) else None
        solution = solvers.aligned(solve(moments, features, spec), model.solution, W)
        certified = certify(moments, features, solution, spec)
    added = [*model.provenance.get("added", []), anonymous(rows) | {"sha256": content}]
    return Model(features, solution, moments, certified, {**model.provenance, "added": added})


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


def _note_lowered(spec: FitSpec, n: int, progress: Progress) -> None:
    size = spec.feature_count(n)
    if not spec.exact and spec.size != "auto" and size < spec.size:
        progress.note(f"size lowered from {spec.size} to {size}: there are no more rows")
    if isinstance(spec.components, int) and spec.components > size:
        what = "landmarks" if spec.method_value.landmarks else "features"
        progress.note(f"components lowered from {spec.components} to at most {size}: there are no more {what}")


def _warn_if_indefinite(solution: Solution) -> None:
    if solution.negative < _NOTICEABLY_NEGATIVE:
        warnings.warn(
            f"the kernel is indefinite on these rows: its most negative eigenvalue is {solution.negative:.2g} "
            "of the largest; the negative part was dropped",
            IndefiniteKernelWarning,
            stacklevel=3,
        )


def _warn_if_narrow(kernel: Kernel, by_sample: float | None, by_landmarks: float | None) -> None:
    """Warn where K is close to the identity: neither 512 sampled landmarks nor those of the fit explain half of it."""
    shares = [share for share in (by_sample, by_landmarks) if share is not None]
    if kernel.stationary and min(shares) > _MOSTLY_UNEXPLAINED:
        warnings.warn(
            f"{kernel} is narrow for these rows: landmarks leave {min(shares):.0%} of Σ k(x, x) unexplained, and above "
            "50 % the Gram matrix is close to the identity, which nothing can compress; `bigkpca sigma` prints "
            "lengths that suit the data",
            NarrowKernelWarning,
            stacklevel=3,
        )
