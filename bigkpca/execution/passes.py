"""Passes that add up moments, sums of evaluations and regressions, and passes that draw rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, tile_rows
from bigkpca.data.reading import take, tiles
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.by_block import block_tiles, by_block, fit_blocks, refuse_overflow, sum_by_block, tile_height
from bigkpca.execution.engine import Engine
from bigkpca.execution.kept_features import KeptFeatures
from bigkpca.execution.progress import Progress
from bigkpca.execution.tasks import Task, named_rows
from bigkpca.numerics.evaluation import Probes, Sums, block_sums
from bigkpca.numerics.far_rows import FarRows, Farthest
from bigkpca.numerics.features import Columns, FeatureMap
from bigkpca.numerics.landmarks.rpcholesky import Factor
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import ColumnMoments, column_moments, shifted_sums
from bigkpca.numerics.preimages import Regression, Training
from bigkpca.numerics.sketch import Action, block_action


def read_rows(rows: Rows, numbers: Array, engine: Engine, progress: Progress) -> Array:
    """Rows of the given ascending numbers, (m, d), in the dtype of the data.

    Reads each storage chunk that holds one of them once.
    """
    tasks = []
    for block in fit_blocks(rows, None):
        inside = numbers[np.searchsorted(numbers, block.start) : np.searchsorted(numbers, block.stop)]
        if len(inside):
            tasks.append(Task(take, (rows.part(block.start, block.stop), inside), len(inside), named_rows(rows, block)))
    return np.concatenate(engine.each("sampling rows", tasks, progress))


def columns_of(rows: Rows, block_rows: int | None, engine: Engine, progress: Progress) -> ColumnMoments:
    """Means and deviations of the columns: one pass."""
    blocks = fit_blocks(rows, block_rows)
    found: ColumnMoments = sum_by_block("standardising", _column_moments, rows, (), blocks, engine, progress)
    return found


def _column_moments(rows: Rows, block: Block) -> ColumnMoments:
    height = tile_rows(rows.shape[1], rows.shape[1], 8)
    return reduce(add, map(column_moments, tiles(rows, block.start, block.stop, height)))


@dataclass(frozen=True)
class BlockSums:
    """Sums over the features, the SHA-256 of each block's values, in block order, and the farthest rows of a fit."""

    sums: Any  # ShiftedSums, or Action
    digests: tuple[str, ...]
    far: FarRows | None = None

    def __add__(self, other: BlockSums) -> BlockSums:
        far = None if self.far is None or other.far is None else self.far + other.far
        return BlockSums(self.sums + other.sums, self.digests + other.digests, far)

    @property
    def content(self) -> str:
        """One digest of all rows."""
        return hashlib.sha256("".join(self.digests).encode()).hexdigest()


def sums_of(
    rows: Rows,
    features: FeatureMap,
    shift: Array,
    block_rows: int | None,
    engine: Engine,
    progress: Progress,
    title: str = "fitting",
    kept: KeptFeatures | None = None,
) -> BlockSums:
    """Sums of the features of all rows, a digest of the rows, and the farthest ones: one pass. `shift` (D,) is near
    their mean.

    Features are also put into `kept`, as far as there is room.
    """
    blocks = fit_blocks(rows, block_rows)
    if kept is not None:
        kept.begin()
    summary: BlockSums = sum_by_block(title, _block_sums, rows, (features, shift), blocks, engine, progress, kept)
    return summary


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
    blocks = fit_blocks(rows, block_rows)
    summary: BlockSums = sum_by_block(title, _action, rows, (features, shift, Q), blocks, engine, progress)
    return summary.sums, summary.content


@refuse_overflow(lambda summary: summary.sums.products)
def _block_sums(
    rows: Rows, block: Block, features: FeatureMap, shift: Array, kept: KeptFeatures | None = None
) -> BlockSums:
    digest = hashlib.sha256()
    X_tiles, most_rows = block_tiles(rows, block, features, digest)
    farthest = Farthest()
    V_tiles = features.tiles(X_tiles, most_rows, farthest.see)
    sums = shifted_sums(V_tiles if kept is None else kept.keeping(block.start, V_tiles), shift)
    return BlockSums(sums, (digest.hexdigest(),), farthest.found)


@refuse_overflow(lambda summary: summary.sums.products)
def _action(rows: Rows, block: Block, features: FeatureMap, shift: Array, Q: Array) -> BlockSums:
    digest = hashlib.sha256()
    X_tiles, most_rows = block_tiles(rows, block, features, digest)
    action = block_action(features.tiles(X_tiles, most_rows), shift, Q)
    return BlockSums(action, (digest.hexdigest(),))


def mean_features(features: FeatureMap, X: Array) -> Array:
    """Mean of v over rows X (m, d) in memory, (D,), float64."""
    height = tile_height(features)
    pieces = (X[start : start + height] for start in range(0, len(X), height))
    return np.add.reduce([V.sum(axis=0, dtype=np.float64) for V, _ in features.tiles(pieces, height)]) / len(X)


@dataclass(frozen=True)
class ResidualDraws:
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
) -> list[ResidualDraws]:
    """For each block, `count` rows drawn in proportion to their residuals with the landmarks of `factor`: one pass."""
    blocks = fit_blocks(rows, block_rows)
    given = columns, factor, count, seed.spawn(len(blocks))
    return by_block("refreshing residuals", _draws, rows, given, blocks, engine, progress)


def _draws(
    rows: Rows, block: Block, columns: Columns, factor: Factor, count: int, seeds: list[np.random.SeedSequence]
) -> ResidualDraws:
    # Each slot is a reservoir of one: a tile takes it over with its share of the residuals seen so far.
    rng = np.random.default_rng(seeds[block.number])
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
    return ResidualDraws(drawn, residuals, total, trace)


def sums_with(rows: Rows, model: Model, given: Probes, engine: Engine, progress: Progress) -> Sums:
    """The sums over all rows that an evaluation by these probes needs: one pass."""
    blocks = fit_blocks(rows, model.block_rows)
    found: Sums = sum_by_block("evaluating", _sums, rows, (model, given), blocks, engine, progress)
    return found


@refuse_overflow(lambda sums: sums.KY)
def _sums(rows: Rows, block: Block, model: Model, given: Probes) -> Sums:
    X_tiles, most_rows = block_tiles(rows, block, model.features)
    return block_sums(X_tiles, model.features, model.solution, given, most_rows)


def sums_for(
    rows: Rows, training: Training, model: Model, block_rows: int | None, engine: Engine, progress: Progress
) -> Regression:
    """The sums over all rows that train a pre-image: one pass."""
    given, blocks = (model.features, training), fit_blocks(rows, block_rows)
    found: Regression = sum_by_block("training pre-images", _regression, rows, given, blocks, engine, progress)
    return found


def _regression(rows: Rows, block: Block, features: FeatureMap, training: Training) -> Regression:
    X_tiles, most_rows = block_tiles(rows, block, features)
    return training.block(X_tiles, block.start, most_rows)
