"""Scores, residuals and pre-images of rows: of a block, of all rows, of a few rows directly, or of a Dask frame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeGuard, TypeVar
from weakref import ref

import numpy as np

from bigkpca.data.blocks import Block, tile_rows
from bigkpca.data.frames import FRAME, frame_dtype
from bigkpca.data.rows import ArrayRows, Rows, tiles
from bigkpca.errors import Array, SpecError, check_overflow, names_apart
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine, KeptFeatures, block_tiles, fit_blocks, tile_height
from bigkpca.execution.tasks import Carried, block_tasks, constant, named_rows
from bigkpca.numerics.linalg import all_aligned
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion, Preimages, joined


@np.errstate(over="ignore", invalid="ignore")
def block_scores(rows: Rows, block: Block, model: Model, kept: KeptFeatures | None = None) -> Array:
    """Scores (rows of the block, r) in the dtype of block work, from kept features, if any."""
    if kept is not None and (V_tiles := kept.take(block.start, block.stop, tile_height(model.features))) is not None:
        project = model.projection()
        scores = np.concatenate([project(V, overwrite=True) for V in V_tiles])
    else:
        scores = tile_scores(*block_tiles(rows, block, model.features), len(block), model)
    check_overflow(scores, named_rows(rows, block))
    return scores


def tile_scores(X_tiles: Iterable[Array], most_rows: int, count: int, model: Model) -> Array:
    """Scores (count, r) of the rows of these tiles, of at most `most_rows` each."""
    scores = np.empty((count, model.components), model.features.dtype)
    done = 0
    for tile in model.project(X_tiles, most_rows):
        scores[done : done + len(tile)] = tile
        done += len(tile)
    return scores


@np.errstate(over="ignore", invalid="ignore")
def block_scores_and_residuals(rows: Rows, block: Block, model: Model, given: Expansion) -> tuple[Array, Array]:
    """`block_scores` and `block_residuals`, from one reading."""
    scores, left = tile_scores_and_residuals(*block_tiles(rows, block, model.features), model, given)
    check_overflow(np.column_stack([scores, left]), named_rows(rows, block))
    return scores, left


def tile_scores_and_residuals(
    X_tiles: Iterable[Array], most_rows: int, model: Model, given: Expansion
) -> tuple[Array, Array]:
    """`tile_scores` (n, r) of the rows of these tiles, and their residuals (n,), in the same dtype."""
    pairs = list(map(model.scoring(most_rows, given), X_tiles))
    scores, left = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return scores, left.astype(scores.dtype)


def block_residuals(rows: Rows, block: Block, model: Model, given: Expansion) -> Array:
    """|φ(x) - φ^(x)|² of the rows of a block; `given` is the expansion of the model, made once for all blocks."""
    return block_scores_and_residuals(rows, block, model, given)[1]


def block_statistics(rows: Rows, block: Block, model: Model, given: Expansion) -> Array:
    """How unusual the rows of a block are, (rows of the block, 3), float64: see `Calibration.statistics`."""
    assert model.calibration is not None
    return model.calibration.statistics(*block_scores_and_residuals(rows, block, model, given)).T


def expansion_of(model: Model) -> Expansion:
    """The expansion of a model, shared by the residuals of all blocks: the same bits on any number of threads."""
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        return all_aligned(model).expansion()


def block_preimages(scores: Rows, block: Block, model: Model) -> Preimages:
    """Pre-images of a block of scores (n, r), or of scores with rows to start from beside them (n, r + d)."""
    height, r = tile_rows(model.columns, model.features.size, 8), model.components
    decode = model.reconstructing(min(height, len(block)))
    Y_tiles = tiles(scores, block.start, block.stop, height)
    return joined(decode(Y[:, :r], Y[:, r:] if Y.shape[1] > r else None) for Y in Y_tiles)


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


def residual_rows(rows: Rows, model: Model, engine: Engine) -> Array:
    """`block_residuals` of all rows, (n,), in memory."""
    return np.concatenate(_compared(rows, model, block_residuals, engine))


def scores_and_residuals_of_rows(rows: Rows, model: Model, engine: Engine) -> tuple[Array, Array]:
    """Scores (n, r) and residuals (n,) of all rows, in memory."""
    scores, left = zip(*_compared(rows, model, block_scores_and_residuals, engine), strict=True)
    return np.concatenate(scores), np.concatenate(left)


def statistics_of_rows(rows: Rows, model: Model, engine: Engine) -> Array:
    """`block_statistics` of all rows, (n, 3), in memory."""
    return np.concatenate(_compared(rows, model, block_statistics, engine))


def _compared(rows: Rows, model: Model, function: Callable[..., Any], engine: Engine) -> list[Any]:
    """The results of a function of rows, block, model and its expansion for all blocks."""
    given = engine.placed(model), engine.placed(expansion_of(model))
    return engine.each("comparing", block_tasks(function, rows, fit_blocks(rows, model.block_rows), given))


def reconstruct_rows(given: Rows, model: Model, function: Any, engine: Engine) -> Preimages:
    """`function` (`block_preimages` or `block_denoised`) of all rows, or scores, in memory."""
    blocks = fit_blocks(given, model.block_rows)
    model.check_preimages()
    return joined(iter(engine.each("reconstructing", block_tasks(function, given, blocks, [model]))))


def restored_rows(rows: Rows, model: Model, engine: Engine) -> Array:
    """The rows (n, d) that the scores of rows represent, in memory. No search starts at the rows themselves: one that
    is far from all others would be found again."""
    scores = ArrayRows(score_rows(rows, model, engine))
    return reconstruct_rows(scores, model, block_preimages, engine).rows


def score_rows(rows: Rows, model: Model, engine: Engine) -> Array:
    """Scores (n, r) of all rows, in memory."""
    check_columns(rows, model)
    blocks = fit_blocks(rows, model.block_rows)
    given = engine.placed(model), engine.kept
    return np.concatenate(engine.each("projecting", block_tasks(block_scores, rows, blocks, given)))


def check_columns(rows: Rows, model: Model) -> None:
    """Raise SpecError unless the rows have the columns, by name if both have names, on which the model was fitted."""
    if rows.names is not None and model.names is not None:
        if apart := names_apart(rows.names, model.names, "the model"):
            raise SpecError(
                f"{rows.where} {apart}; pass rows with the columns on which the model was fitted, in the same order "
                "(`bigkpca info MODEL --json` lists them): bigkpca ingest FILE NEW.zarr --like DATASET makes them from "
                "a file, as in the dataset of the fit"
            )
        return
    if rows.shape[1] == model.columns:
        return
    if model.features.precomputed:
        raise SpecError(
            f"{rows.where} has {rows.shape[1]} columns, but the model was fitted on the kernels of {model.columns} "
            "rows: each new row must contain its kernels with all of those, in the same order"
        )
    raise SpecError(
        f"{rows.where} has {rows.shape[1]} columns, but the model was fitted on {model.columns}: pass rows with the "
        "same columns in the same order"
    )


_MOST_ROWS = 1024  # more rows are worth tasks on several threads


_prepared = threading.local()  # the models that a thread used last, and what was prepared, which has work space

_Result = TypeVar("_Result")


def are_few(rows: Rows, model: Model) -> TypeGuard[ArrayRows]:
    """Whether these rows are scored directly: at most one block, in memory."""
    most = min(_MOST_ROWS, model.block_rows or _MOST_ROWS)
    return isinstance(rows, ArrayRows) and rows.shape[0] <= most


def few_scores(rows: ArrayRows, model: Model) -> Array:
    """Scores (n, r) of few rows, with the same bits as a pass of one block."""
    found = _of_few(rows, model, "scores", lambda used, height: used.projecting(height))
    scores = found[0] if len(found) == 1 else np.concatenate(found)
    check_overflow(scores, named_rows(rows, Block(0, rows.first, rows.first + len(scores))))
    return scores


def few_statistics(rows: ArrayRows, model: Model) -> Array:
    """`statistics_of_rows` of few rows, as `few_scores`."""
    assert model.calibration is not None
    found = _of_few(rows, model, "statistics", lambda used, height: used.scoring(height, used.expansion()))
    scores, left = (np.concatenate(parts) for parts in zip(*found, strict=True))
    left = left.astype(scores.dtype)
    check_overflow(np.column_stack([scores, left]), named_rows(rows, Block(0, rows.first, rows.first + len(scores))))
    return model.calibration.statistics(scores, left).T


def _of_few(
    rows: ArrayRows, model: Model, kind: str, prepare: Callable[[Model, int], Callable[[Array], _Result]]
) -> list[_Result]:
    """What a function computes for each tile; prepared once for a thread and the model that it used last."""
    height = min(tile_height(model.features), _MOST_ROWS)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        known, held = vars(_prepared).get(kind, (lambda: None, []))
        if known() is not model:
            held = [prepare(all_aligned(model), height)]
            setattr(_prepared, kind, (ref(model, lambda _: held.clear()), held))
        (compute,) = held
        return [compute(X) for X in tiles(rows, rows.first, rows.first + rows.shape[0], height)]


View = Callable[[Model, Any], Any]  # from `arrays`: lazy values (n, c) or (n,) of rows, which reject unsuitable input


def header(frame: Any) -> Any:
    """The columns of a Dask frame, as a pandas frame without rows. Raises DataError if it is not a table of numbers."""
    frame_dtype(frame)
    return frame._meta


def in_frame(frame: Any, view: View, model: Model, columns: Sequence[Any]) -> Any:
    """`view` of the rows of a Dask frame, as a lazy frame with these columns and the same index and divisions.
    Partitions are processed one by one, and not counted."""
    dtype = frame_dtype(frame)
    made = view(model, ArrayRows(np.zeros((1, len(frame.columns)), dtype), where=FRAME))  # lazy: only its checks run
    meta = _framed(np.empty((0, len(columns)), made.dtype), header(frame), columns)
    return frame.map_partitions(_of_partition, view, constant(model), list(columns), dtype, made.dtype, meta=meta)


def _of_partition(
    part: Any, view: View, model: Carried, columns: Sequence[Any], dtype: np.dtype[Any], made: np.dtype[Any]
) -> Any:
    values = np.empty((0, len(columns)), made)
    if len(part):
        rows = ArrayRows(part.astype(dtype).to_numpy(), where=f"a partition of {FRAME}")
        values = view(model.value, rows).compute(scheduler="synchronous").reshape(len(part), len(columns))
    return _framed(values, part, columns)


def _framed(values: Array, frame: Any, columns: Sequence[Any]) -> Any:
    return type(frame)(values, index=frame.index, columns=columns)
