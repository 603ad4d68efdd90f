"""Scores, residuals and pre-images of a block of rows, or of all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, tile_rows
from bigkpca.data.matrix_tiles import Part, matrix_tiles
from bigkpca.data.reading import tiles
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, SpecError, check_overflow, names_apart
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.by_block import block_tiles, by_block, fit_blocks, refuse_overflow, tile_height
from bigkpca.execution.engine import Engine
from bigkpca.execution.kept_features import KeptFeatures
from bigkpca.execution.progress import Progress
from bigkpca.execution.tasks import named_rows
from bigkpca.numerics.aligned import all_aligned
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion, Preimages, joined


@refuse_overflow(lambda scores: scores)
def block_scores(
    rows: Rows, block: Block, model: Model, kept: KeptFeatures | None = None, precision: Any = None
) -> Array:
    """Scores (rows of the block, r) in the dtype of block work, or a wider `precision`; from features that the fit of
    the model kept, if it did."""
    if model.features.precomputed:
        return _scores_of_kernels(rows, block, model, precision)
    V_tiles = None if kept is None else kept.take(block.start, block.stop, tile_height(model.features))
    if V_tiles is None:
        return tile_scores(*block_tiles(rows, block, model.features), len(block), model, precision)
    project = model.projection(precision)
    return np.concatenate([project(V, overwrite=True) for V in V_tiles])


def tile_scores(X_tiles: Iterable[Array], most_rows: int, count: int, model: Model, precision: Any = None) -> Array:
    """Scores (count, r) of the rows of these tiles, of at most `most_rows` each, in the dtype of block work or a wider
    `precision`."""
    scores = np.empty((count, model.components), precision or model.features.dtype)
    done = 0
    for tile in model.project(X_tiles, most_rows, precision):
        scores[done : done + len(tile)] = tile
        done += len(tile)
    return scores


def _scores_of_kernels(rows: Rows, block: Block, model: Model, precision: Any) -> Array:
    """Scores of precomputed kernels, read in tiles: whole rows are never held."""
    dtype, scores = precision or model.features.dtype, np.zeros((len(block), model.components))
    project = model.projection(dtype)
    part = Part(slice(block.start, block.stop), slice(0, model.columns))
    for at, K in matrix_tiles(rows, part):
        scores[at.within(part)[0]] += project.of(at.columns)(K.astype(dtype, copy=False))
    return scores.astype(dtype)


@refuse_overflow(lambda found: np.column_stack(found))
def block_scores_and_residuals(
    rows: Rows, block: Block, model: Model, given: Expansion, precision: Any = None
) -> tuple[Array, Array]:
    """`block_scores` and `block_residuals`, from one reading."""
    X_tiles, most_rows = block_tiles(rows, block, model.features)
    pairs = list(model.scores_and_residuals(X_tiles, most_rows, given, precision))
    scores, left = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return scores, left.astype(scores.dtype)


@refuse_overflow(lambda found: found)
def block_residuals(rows: Rows, block: Block, model: Model, given: Expansion) -> Array:
    """|φ(x) - φ^(x)|² of the rows of a block, (rows of the block,), in the dtype of block work; `given` is the
    expansion of the model, made once for all blocks."""
    X_tiles, most_rows = block_tiles(rows, block, model.features)
    return np.concatenate(list(model.residuals(X_tiles, most_rows, given))).astype(model.features.dtype)


def expansion_of(model: Model) -> Expansion:
    """The expansion of a model, which residuals of all blocks share: the same bits on any number of threads."""
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        return all_aligned(model).expansion()


def block_preimages(scores: Rows, block: Block, model: Model) -> Preimages:
    """Pre-images of a block of scores."""
    height = tile_rows(model.columns, model.features.size, 8)
    decode = model.reconstructing(min(height, len(block)))

    def decoded() -> Iterator[Preimages]:
        for Y in tiles(scores, block.start, block.stop, height):
            yield decode(Y, None)

    return joined(decoded())


def block_denoised(rows: Rows, block: Block, model: Model) -> Preimages:
    """Pre-images of the scores of a block of rows; iterations start at the rows."""
    height = tile_rows(model.columns, model.features.size, 8)
    most_rows = min(height, len(block))
    decode = model.reconstructing(most_rows)

    def decoded() -> Iterator[Preimages]:
        for X in tiles(rows, block.start, block.stop, height):
            (Y,) = model.project([X], most_rows)
            check_overflow(Y, named_rows(rows, block))
            yield decode(Y, X)

    with np.errstate(over="ignore", invalid="ignore"):
        return joined(decoded())


def residual_rows(rows: Rows, model: Model, engine: Engine, progress: Progress) -> Array:
    """`block_residuals` of all rows, (n,), in memory."""
    given, blocks = (model, expansion_of(model)), fit_blocks(rows, model.block_rows)
    return np.concatenate(by_block("comparing", block_residuals, rows, given, blocks, engine, progress))


def reconstruct_rows(given: Rows, model: Model, function: Any, engine: Engine, progress: Progress) -> Preimages:
    """`function` (`block_preimages` or `block_denoised`) of all rows, or scores, in memory."""
    blocks = fit_blocks(given, model.block_rows)
    return joined(iter(by_block("reconstructing", function, given, [model], blocks, engine, progress)))


def score_rows(rows: Rows, model: Model, engine: Engine, progress: Progress) -> Array:
    """Scores (n, r) of all rows, in memory."""
    check_columns(rows, model)
    blocks = fit_blocks(rows, model.block_rows)
    return np.concatenate(by_block("projecting", block_scores, rows, [model, engine.kept], blocks, engine, progress))


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
    if model.features.precomputed:
        raise SpecError(
            f"{rows.where} has {rows.shape[1]} columns, the model was fitted on the kernels of {model.columns} rows: "
            "each new row must hold its kernels with all of those, in the same order"
        )
    raise SpecError(
        f"{rows.where} has {rows.shape[1]} columns, the model was fitted on {model.columns}: "
        "give it rows with the same columns in the same order"
    )
