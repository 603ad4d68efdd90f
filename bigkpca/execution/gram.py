"""Products with the Gram matrix of all rows, tile by tile, which is never held."""

from __future__ import annotations

import numpy as np

from bigkpca.data.blocks import Block, split, tile_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.by_block import block_tiles, by_block, fit_blocks
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.execution.tasks import Task, shared
from bigkpca.numerics.aligned import aligned
from bigkpca.numerics.features import Columns
from bigkpca.numerics.gram_tiles import add_strip

_STRIP_ROWS = 2048


def strip_bytes(d: int, itemsize: int) -> int:
    """Work space of one thread that multiplies strips of kernels of rows in R^d."""
    tile = tile_rows(d, _STRIP_ROWS, itemsize)
    return itemsize * (tile * (_STRIP_ROWS + d + 2) + 4 * _STRIP_ROWS * (d + 2))


def gather(rows: Rows, columns: Columns, engine: Engine, progress: Progress) -> Array:
    """All rows, shifted and scaled, in memory (n, d): one pass."""
    X = aligned(np.empty(rows.shape, columns.dtype))  # so that tasks get it itself, and no copy
    # Threads fill it; blocks put together at the end would stay resident beside it, kept by the allocator.
    given = columns, X if engine.client is None else None
    pieces = by_block("gathering rows", _shifted, rows, given, fit_blocks(rows, None), engine, progress)
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
        first_rows = f"{strips[first].start} to {strips[first].stop - 1}"
        name = f"products with the kernels of rows {first_rows} and of as many others"
        tasks.append(Task(_strips, (strips[first:], [i - first for i in own], *given, *parts), work, name))
    product: Array = engine.total(title, tasks, progress, columns.kernel, B)
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
