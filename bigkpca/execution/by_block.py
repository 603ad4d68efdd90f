"""Run one function over all blocks of rows: results in order, or added up over a fixed tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from bigkpca.data.blocks import Block, fit_block_rows, split, tile_rows
from bigkpca.data.reading import tiles
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, check_overflow
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.execution.tasks import BlockTasks, named_rows, shared
from bigkpca.numerics.features import FeatureMap

T = TypeVar("T")


def fit_blocks(rows: Rows, block_rows: int | None) -> tuple[Block, ...]:
    """The blocks of a reduction over all rows."""
    n = rows.shape[0]
    return split(n, fit_block_rows(n, rows.grain, block_rows))


def tile_height(features: FeatureMap) -> int:
    """Rows of a tile of a pass with these features."""
    return tile_rows(features.columns, features.size, features.dtype.itemsize)


def block_tiles(rows: Rows, block: Block, features: FeatureMap, digest: Any = None) -> tuple[Iterator[Array], int]:
    """The tiles of a block, and the most rows that one of them has."""
    height = tile_height(features)
    return tiles(rows, block.start, block.stop, height, digest), min(height, len(block))


def by_block(
    title: str,
    function: Callable[..., Any],
    rows: Rows,
    given: Sequence[Any],
    blocks: Sequence[Block],
    engine: Engine,
    progress: Progress,
) -> list[Any]:
    """function(rows, block, *given) of each block, in their order; `title` is what progress calls the pass."""
    return engine.each(title, _tasks(function, rows, given, blocks), progress)


def sum_by_block(
    title: str,
    function: Callable[..., Any],
    rows: Rows,
    given: Sequence[Any],
    blocks: Sequence[Block],
    engine: Engine,
    progress: Progress,
    *tools: Any,
) -> Any:
    """The sum of function(rows, block, *given, *tools) over the blocks: the same bits wherever they are computed.

    The sum does not depend on `tools`.
    """
    tasks = _tasks(function, rows, (*given, *tools), blocks)
    return engine.total(title, tasks, progress, function.__qualname__, blocks[0], given)


def _tasks(function: Callable[..., Any], rows: Rows, given: Sequence[Any], blocks: Sequence[Block]) -> BlockTasks:
    return BlockTasks(function, rows, blocks, [shared(value) for value in given])


def refuse_overflow(of: Callable[[Any], Array]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """For functions of (rows, block, ...): DataError that names the rows where `of` their result is not finite."""

    def decorated(function: Callable[..., T]) -> Callable[..., T]:
        @wraps(function)
        def checked(rows: Rows, block: Block, *given: Any) -> T:
            with np.errstate(over="ignore", invalid="ignore"):
                found = function(rows, block, *given)
            check_overflow(of(found), named_rows(rows, block))
            return found

        return checked

    return decorated
