"""Passes over all rows: lists of block tasks, whose results are kept in order or added up over a fixed tree."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import tee
from operator import add
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, fit_block_rows, split, tile_rows
from bigkpca.data.matrix_tiles import Part, pieces
from bigkpca.data.reading import take, tiles
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, SpecError, check_overflow, names_apart
from bigkpca.execution.engine import Engine, Progress, Task, shared, single_threaded_blas
from bigkpca.numerics.aligned import aligned, all_aligned
from bigkpca.numerics.evaluation import Probes, Sums, block_sums
from bigkpca.numerics.exact import add_strip
from bigkpca.numerics.features import Columns, FeatureMap, GivenKernels
from bigkpca.numerics.landmarks.rpcholesky import Factor
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import ColumnMoments, Moments, block_moments, column_moments
from bigkpca.numerics.preimages import Expansion, Preimages, Regression, Training, joined
from bigkpca.numerics.sketch import Action, block_action


def fit_blocks(rows: Rows, block_rows: int | None) -> tuple[Block, ...]:
    """The blocks of a reduction over all rows."""
    n = rows.shape[0]
    return split(n, fit_block_rows(n, rows.grain, block_rows))


def read_rows(rows: Rows, numbers: Array, engine: Engine, progress: Progress) -> Array:
    """Rows of the given ascending numbers, (m, d), in the dtype of the data.

    Reads each storage chunk that holds one of them once.
    """
    tasks = []
    for block in fit_blocks(rows, None):
        inside = numbers[np.searchsorted(numbers, block.start) : np.searchsorted(numbers, block.stop)]
        if len(inside):
            tasks.append(Task(take, (rows.part(block.start, block.stop), inside), len(inside)))
    return np.concatenate(engine.each("sampling rows", tasks, progress))


def columns_of(rows: Rows, block_rows: int | None, engine: Engine, progress: Progress) -> ColumnMoments:
    """Means and deviations of the columns: one pass."""
    tasks = [Task(_column_moments, (rows.part(b.start, b.stop), b), len(b)) for b in fit_blocks(rows, block_rows)]
    found: ColumnMoments = engine.total("standardising", tasks, progress)
    return found


def _column_moments(rows: Rows, block: Block) -> ColumnMoments:
    height = tile_rows(rows.shape[1], rows.shape[1], 8)
    return reduce(add, map(column_moments, tiles(rows, block.start, block.stop, height)))


@dataclass(frozen=True)
class Summary:
    """What a pass leaves: sums over the features, and the SHA-256 of each block's values, in block order."""

    sums: Any  # Moments, or Action
    digests: tuple[str, ...]

    def __add__(self, other: Summary) -> Summary:
        return Summary(self.sums + other.sums, self.digests + other.digests)

    @property
    def content(self) -> str:
        """One digest of all rows."""
        return hashlib.sha256("".join(self.digests).encode()).hexdigest()


def moments_of(
    rows: Rows,
    features: FeatureMap,
    shift: Array,
    block_rows: int | None,
    engine: Engine,
    progress: Progress,
    title: str = "fitting",
) -> tuple[Moments, str]:
    """Moments of the features of all rows, and a digest of the rows: one pass. `shift` (D,) is near their mean."""
    given = shared(features), shared(shift)
    summary = _summed(title, _moments, rows, given, block_rows, engine, progress)
    return summary.sums, summary.content


def action_of(
    rows: Rows,
    features: FeatureMap,
    shift: Array,
    Q: Array,
    block_rows: int | None,
    engine: Engine,
    progress: Progress,
    title: str = "fitting",
) -> tuple[Action, str]:
    """The action of the features' scatter on a block Q (D, b), and a digest of the rows: one pass."""
    given = shared(features), shared(shift), shared(Q)
    summary = _summed(title, _action, rows, given, block_rows, engine, progress)
    return summary.sums, summary.content


def _summed(
    title: str,
    function: Any,
    rows: Rows,
    given: tuple[Any, ...],
    block_rows: int | None,
    engine: Engine,
    progress: Progress,
) -> Summary:
    blocks = fit_blocks(rows, block_rows)
    tasks = [Task(function, (rows.part(b.start, b.stop), b, *given), len(b)) for b in blocks]
    summary: Summary = engine.total(title, tasks, progress)
    return summary


def _moments(rows: Rows, block: Block, features: FeatureMap, shift: Array) -> Summary:
    digest = hashlib.sha256()
    X_tiles, most_rows = block_tiles(rows, block, features, digest)
    with np.errstate(over="ignore", invalid="ignore"):
        moments = block_moments(features.tiles(X_tiles, most_rows), shift)
    check_overflow(moments.scatter, _named(rows, block))
    return Summary(moments, (digest.hexdigest(),))


def _action(rows: Rows, block: Block, features: FeatureMap, shift: Array, Q: Array) -> Summary:
    digest = hashlib.sha256()
    X_tiles, most_rows = block_tiles(rows, block, features, digest)
    with np.errstate(over="ignore", invalid="ignore"):
        action = block_action(features.tiles(X_tiles, most_rows), shift, Q)
    check_overflow(action.products, _named(rows, block))
    return Summary(action, (digest.hexdigest(),))


def block_tiles(rows: Rows, block: Block, features: FeatureMap, digest: Any = None) -> tuple[Iterator[Array], int]:
    """The tiles of a block, and the most rows that one of them has."""
    height = tile_rows(features.columns, features.size, features.dtype.itemsize)
    return tiles(rows, block.start, block.stop, height, digest), min(height, len(block))


def mean_features(features: FeatureMap, X: Array) -> Array:
    """Mean of v over rows X (m, d) in memory, (D,), float64."""
    height = tile_rows(features.columns, features.size, features.dtype.itemsize)
    pieces = (X[start : start + height] for start in range(0, len(X), height))
    return np.add.reduce([V.sum(axis=0, dtype=np.float64) for V, _ in features.tiles(pieces, height)]) / len(X)


@dataclass(frozen=True)
class Draws:
    """Rows of one block drawn in proportion to their residuals, with replacement, shifted as landmarks are."""

    rows: Array  # (c, d)
    residuals: Array  # (c,)
    total: float  # of all residuals in the block
    trace: float  # Σ k(x, x) in the block


def draws_by_residual(
    rows: Rows,
    columns: Columns,
    factor: Factor,
    count: int,
    seed: np.random.SeedSequence,
    block_rows: int | None,
    engine: Engine,
    progress: Progress,
) -> list[Draws]:
    """For each block, `count` rows drawn in proportion to what the landmarks of `factor` leave of them: one pass."""
    blocks, given = fit_blocks(rows, block_rows), (shared(columns), shared(factor))
    seeds = seed.spawn(len(blocks))
    tasks = [
        Task(_draws, (rows.part(b.start, b.stop), b, *given, count, own), len(b))
        for b, own in zip(blocks, seeds, strict=True)
    ]
    return engine.each("refreshing residuals", tasks, progress)


def _draws(
    rows: Rows, block: Block, columns: Columns, factor: Factor, count: int, seed: np.random.SeedSequence
) -> Draws:
    # Each slot is a reservoir of one: a tile takes it over with its share of the residuals seen so far.
    rng = np.random.default_rng(seed)
    drawn, residuals = np.empty((count, rows.shape[1]), columns.dtype), np.zeros(count)
    total, trace = 0.0, 0.0
    height = tile_rows(columns.columns, max(columns.columns, len(factor.landmarks)), 8)
    X_tiles = tiles(rows, block.start, block.stop, height)
    for X, diagonal in columns.tiles(X_tiles, min(height, len(block))):
        left = factor.residual_diagonal(X)
        share = float(left.sum())
        total, trace = total + share, trace + float(diagonal.sum())
        if share > 0:
            slots = np.flatnonzero(rng.random(count) * total < share)
            picks = rng.choice(len(X), len(slots), p=left / share)
            drawn[slots], residuals[slots] = X[picks], left[picks]
    return Draws(drawn, residuals, total, trace)


def sums_with(rows: Rows, model: Model, given: Probes, engine: Engine, progress: Progress) -> Sums:
    """The sums over all rows that an evaluation by these probes needs: one pass."""
    shared_values = shared(model), shared(given)
    tasks = [
        Task(_sums, (rows.part(b.start, b.stop), b, *shared_values), len(b)) for b in fit_blocks(rows, model.block_rows)
    ]
    found: Sums = engine.total("evaluating", tasks, progress)
    return found


def _sums(rows: Rows, block: Block, model: Model, given: Probes) -> Sums:
    X_tiles, most_rows = block_tiles(rows, block, model.features)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = block_sums(X_tiles, model.features, model.solution, given, most_rows)
    check_overflow(sums.KY, _named(rows, block))
    return sums


_STRIP_ROWS = 2048


def gather(rows: Rows, columns: Columns, engine: Engine, progress: Progress) -> Array:
    """All rows, shifted and scaled, in memory (n, d): one pass."""
    X = aligned(np.empty(rows.shape, columns.dtype))  # so that tasks get it itself, and no copy
    # Threads fill it; blocks put together at the end would stay resident beside it, kept by the allocator.
    given = shared(columns), shared(X if engine.client is None else None)
    tasks = [Task(_shifted, (rows.part(b.start, b.stop), b, *given), len(b)) for b in fit_blocks(rows, None)]
    pieces = engine.each("gathering rows", tasks, progress)
    return X if engine.client is None else np.concatenate(pieces, out=X)


def _shifted(rows: Rows, block: Block, columns: Columns, into: Array | None) -> Array | None:
    out = np.empty((len(block), columns.columns), columns.dtype) if into is None else into[block.start : block.stop]
    X_tiles, most_rows = block_tiles(rows, block, columns)
    done = 0
    for V, _ in columns.tiles(X_tiles, most_rows):
        out[done : done + len(V)] = V
        done += len(V)
    return out if into is None else None


def gram_product(rows: Rows, columns: Columns, B: Array, engine: Engine, progress: Progress, title: str) -> Array:
    """K B (n, c), float64, for the kernel and the rows of `columns`, tile by tile: n² / 2 kernels.

    A task takes one strip of tiles from the upper half of K and one from its end, so that all tasks are alike; it reads
    the rows of the strip and of all later ones, a block at a time.
    """
    strips = split(rows.shape[0], _STRIP_ROWS)  # whatever the chunks of the source: in memory there are none
    given = shared(columns), shared(B.astype(columns.dtype))
    tasks = []
    for first in range((len(strips) + 1) // 2):
        own = sorted({first, len(strips) - 1 - first})
        parts = [rows.part(strip.start, strip.stop) for strip in strips[first:]]
        work = sum(len(strips[i]) for i in own)
        tasks.append(Task(_strips, (strips[first:], [i - first for i in own], *given, *parts), work))
    product: Array = engine.total(title, tasks, progress)
    return product


def _strips(strips: tuple[Block, ...], own: list[int], columns: Columns, B: Array, *parts: Rows) -> Array:
    out = np.zeros(B.shape)
    tile = tile_rows(columns.columns, len(strips[0]), columns.dtype.itemsize)

    def loaded(i: int) -> tuple[slice, Array]:
        block = strips[i]
        return slice(block.start, block.stop), columns.shifted(parts[i].block(block.start, block.stop))

    for i in own:
        rows, X = loaded(i)
        add_strip(out, columns.kernel, B, rows, X, map(loaded, range(i + 1, len(strips))), tile)
    return out


def block_scores(rows: Rows, block: Block, model: Model) -> Array:
    """Scores (rows of the block, r) in the dtype of block work."""
    project = _scores_of_kernels if isinstance(model.features, GivenKernels) else _scores
    with np.errstate(over="ignore", invalid="ignore"):
        scores = project(rows, block, model)
    check_overflow(scores, _named(rows, block))
    return scores


def _scores(rows: Rows, block: Block, model: Model) -> Array:
    X_tiles, most_rows = block_tiles(rows, block, model.features)
    scores = np.empty((len(block), model.components), model.features.dtype)
    done = 0
    for tile in model.project(X_tiles, most_rows):
        scores[done : done + len(tile)] = tile
        done += len(tile)
    return scores


def _scores_of_kernels(rows: Rows, block: Block, model: Model) -> Array:
    """Scores of rows as long as the fit had rows: no tile of whole rows is held."""
    dtype, scores = model.features.dtype, np.zeros((len(block), model.components))
    mean, components = model.solution.mean.astype(dtype), model.solution.components.astype(dtype)
    part = Part(slice(block.start, block.stop), slice(0, model.columns))
    for at, K in pieces(rows, part):
        scores[at.within(part)[0]] += (K.astype(dtype, copy=False) - mean[at.columns]) @ components[at.columns]
    return scores.astype(dtype)


def block_scores_and_residuals(rows: Rows, block: Block, model: Model, given: Expansion) -> tuple[Array, Array]:
    """`block_scores` and `block_residuals`, from one reading."""
    X_tiles, most_rows = block_tiles(rows, block, model.features)
    first, second = tee(X_tiles)  # side by side, so that it holds one tile
    with np.errstate(over="ignore", invalid="ignore"):
        pairs = list(zip(model.project(first, most_rows), model.residuals(second, most_rows, given), strict=True))
    scores, left = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    check_overflow(scores, _named(rows, block))
    check_overflow(left, _named(rows, block))
    return scores, left.astype(model.features.dtype)


def block_residuals(rows: Rows, block: Block, model: Model, given: Expansion) -> Array:
    """|φ(x) - φ^(x)|² of the rows of a block, (rows of the block,), in the dtype of block work; `given` is the
    expansion of the model, made once for all blocks."""
    X_tiles, most_rows = block_tiles(rows, block, model.features)
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.concatenate(list(model.residuals(X_tiles, most_rows, given))).astype(model.features.dtype)
    check_overflow(found, _named(rows, block))
    return found


def expansion_of(model: Model) -> Expansion:
    """The expansion of a model, which residuals of all blocks share: the same bits on any number of threads."""
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        return all_aligned(model).expansion()


def sums_for(
    rows: Rows, training: Training, model: Model, block_rows: int | None, engine: Engine, progress: Progress
) -> Regression:
    """The sums over all rows from which a way back is learned: one pass."""
    given = shared(model.features), shared(training)
    tasks = [Task(_regression, (rows.part(b.start, b.stop), b, *given), len(b)) for b in fit_blocks(rows, block_rows)]
    found: Regression = engine.total("learning the way back", tasks, progress)
    return found


def _regression(rows: Rows, block: Block, features: FeatureMap, training: Training) -> Regression:
    X_tiles, most_rows = block_tiles(rows, block, features)
    return training.block(X_tiles, block.start, most_rows)


def block_preimages(scores: Rows, block: Block, model: Model) -> Preimages:
    """Pre-images of a block of scores, which are all that is known of the rows."""
    height = tile_rows(model.columns, model.features.size, 8)
    decode = model.reconstructing(min(height, len(block)))

    def decoded() -> Iterator[Preimages]:
        for Y in tiles(scores, block.start, block.stop, height):
            yield decode(Y, None)

    return joined(decoded())


def block_denoised(rows: Rows, block: Block, model: Model) -> Preimages:
    """Pre-images of the scores of a block of rows, from which iterations start."""
    height = tile_rows(model.columns, model.features.size, 8)
    most_rows = min(height, len(block))
    decode = model.reconstructing(most_rows)

    def decoded() -> Iterator[Preimages]:
        for X in tiles(rows, block.start, block.stop, height):
            (Y,) = model.project([X], most_rows)
            check_overflow(Y, _named(rows, block))
            yield decode(Y, X)

    with np.errstate(over="ignore", invalid="ignore"):
        return joined(decoded())


def residual_rows(rows: Rows, model: Model, engine: Engine, progress: Progress) -> Array:
    """`block_residuals` of all rows, (n,), in memory."""
    fitted, given = shared(model), shared(expansion_of(model))
    tasks = [
        Task(block_residuals, (rows.part(b.start, b.stop), b, fitted, given), len(b))
        for b in fit_blocks(rows, model.block_rows)
    ]
    return np.concatenate(engine.each("comparing", tasks, progress))


def reconstruct_rows(given: Rows, model: Model, function: Any, engine: Engine, progress: Progress) -> Preimages:
    """`function` (`block_preimages` or `block_denoised`) of all rows, or scores, in memory."""
    fitted = shared(model)
    tasks = [
        Task(function, (given.part(b.start, b.stop), b, fitted), len(b)) for b in fit_blocks(given, model.block_rows)
    ]
    return joined(iter(engine.each("reconstructing", tasks, progress)))


def _named(rows: Rows, block: Block) -> str:
    return f"{rows.where}, rows {block.start} to {block.stop - 1}"


def score_rows(rows: Rows, model: Model, engine: Engine, progress: Progress) -> Array:
    """Scores (n, r) of all rows, in memory."""
    check_columns(rows, model)
    fitted = shared(model)
    tasks = [
        Task(block_scores, (rows.part(b.start, b.stop), b, fitted), len(b)) for b in fit_blocks(rows, model.block_rows)
    ]
    return np.concatenate(engine.each("projecting", tasks, progress))


def check_columns(rows: Rows, model: Model) -> None:
    """Raise SpecError unless the rows are as wide as those the model was fitted on, and their columns, where both have
    names of them, have the same names in the same order."""
    if rows.names is not None and model.names is not None:
        if apart := names_apart(rows.names, model.names, "the model"):
            raise SpecError(
                f"{rows.where} {apart}; give it rows with the columns that the model was fitted on, in the same order "
                "(`bigkpca info MODEL --json` lists them)"
            )
        return
    if rows.shape[1] == model.columns:
        return
    if isinstance(model.features, GivenKernels):
        raise SpecError(
            f"{rows.where} has {rows.shape[1]} columns, the model was fitted on the kernels of {model.columns} rows: "
            "each new row must hold its kernels with all of those, in the same order"
        )
    raise SpecError(
        f"{rows.where} has {rows.shape[1]} columns, the model was fitted on {model.columns}: "
        "give it rows with the same columns in the same order"
    )
