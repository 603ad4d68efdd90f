"""Plan the use of a model: transform, reconstruct, evaluate."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from bigkpca.data.blocks import fit_block_rows, output_block_rows, tile_rows
from bigkpca.data.rows import Rows
from bigkpca.execution.planning.base import (
    Plan,
    Work,
    graph_bytes,
    reading_bytes,
    resident,
    streaming_bytes,
    tile_bytes,
)
from bigkpca.numerics.features import has_landmarks
from bigkpca.numerics.model import Model

_EXPANSION_SQUARES = 7  # of D x D float64: W, its decomposition, and products with the moments


def plan_transform(
    rows: Rows, model: Model, block_rows: int | None, threads: int, *, residual: bool = False, dtype: Any = None
) -> Plan:
    """The cost of writing the scores of all rows, and residuals beside them: one pass, one shard for each block."""
    n, d = rows.shape
    itemsize = model.features.dtype.itemsize
    stored = np.dtype(dtype or model.features.dtype).itemsize
    row_bytes, widest = model.components * stored, max(itemsize, stored)
    block = output_block_rows(n, rows.grain, row_bytes, block_rows)
    D, fixed = model.features.size, _model_bytes(model)
    if model.features.precomputed:  # rows are read in tiles, and multiplied by components
        reading = tile_bytes(rows) + D * model.components * widest
    else:
        reading = streaming_bytes(rows, _work(model), block)
        if widest > itemsize:  # the features of a tile in the wider precision, and the components
            reading += (tile_rows(d, D, itemsize) + model.components) * D * widest
    one = reading + 4 * block * model.components * widest + graph_bytes(rows, block)
    peak = fixed + threads * one
    if residual:
        expansion = 2 * 8 * D * (model.components + 1)
        known = model.decoder is not None and model.decoder.expansion(model.solution) is not None
        solved = model.sums is not None and has_landmarks(model.features) and not known
        preparing = _EXPANSION_SQUARES * 8 * D * D if solved else 0
        # The features of a tile in float64, twice, and what is computed of these.
        tile = min(block, tile_rows(d, D, itemsize)) * 8 * (2 * D + 3 * model.components)
        peak = fixed + expansion + max(preparing, threads * (one + tile))
    return Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=ceil(n / block),
        passes=1,
        bytes_read=rows.dtype.itemsize * d * n,
        peak_bytes=resident(peak),
        result_bytes=n * (row_bytes + (stored if residual else 0)),
    )


def plan_reconstruct(
    rows: Rows, model: Model, block_rows: int | None, threads: int, *, denoising: bool = False
) -> Plan:
    """The cost of writing pre-images of all scores or, `denoising`, of all rows: one pass, one shard for each block.

    Iterations depend on the data and are not counted.
    """
    n, given = rows.shape
    d, D, itemsize = model.columns, model.features.size, model.features.dtype.itemsize
    row_bytes = d * itemsize
    block = output_block_rows(n, rows.grain, row_bytes, block_rows)
    assert model.decoder is not None
    decoder = sum(array.nbytes for array in model.decoder.arrays().values())
    height = min(block, tile_rows(d, D, 8))
    reading = streaming_bytes(rows, _work(model), block) if denoising else reading_bytes(rows, height, block)
    # The pre-images of a block are kept in float64 until its last tile.
    one = reading + model.decoder.working_bytes(model.features, height) + 8 * block * d
    return Plan(
        rows=n,
        columns=given,
        size=D,
        block_rows=block,
        tasks=ceil(n / block),
        passes=1,
        bytes_read=rows.dtype.itemsize * given * n,
        peak_bytes=resident(_model_bytes(model) + decoder + threads * (one + graph_bytes(rows, block))),
        result_bytes=n * row_bytes,
    )


def plan_evaluate(rows: Rows, model: Model, sample: int, pooled: int, threads: int) -> Plan:
    """The cost of an evaluation by `sample` exact rows, chosen from `pooled` that are read: these, and one pass."""
    n, d = rows.shape
    D, r, itemsize = model.features.size, model.components, model.features.dtype.itemsize
    fixed = _model_bytes(model)
    pool = 2 * pooled * d * rows.dtype.itemsize
    factor = 8 * D * D if has_landmarks(model.features) else 0
    probes = 8 * sample * (2 * D + d + r)
    height = tile_rows(d, D, itemsize)
    block = min(n, fit_block_rows(n, rows.grain, model.block_rows))
    # For each thread: landmarks, probes and their coordinates in the dtype of block work; features of a tile once more
    # for its scores, and its kernels and errors.
    one = streaming_bytes(rows, _work(model), block) + itemsize * (sample * (D + 2 * d) + height * (D + 3 * sample))
    one += 3 * 8 * r * (sample + D + r)
    choosing = pool + 5 * factor + tile_rows(d, D, 8) * 8 * (3 * D + 2 * d)
    return Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=2 * ceil(n / block) - 1,
        passes=1,
        bytes_read=rows.dtype.itemsize * d * (n + min(n, pooled * rows.grain)),
        peak_bytes=resident(fixed + max(choosing, pool + factor + probes + threads * one)),
        result_bytes=8 * 5 * r,
    )


def _work(model: Model) -> Work:
    features, of_map = model.features, _map_bytes(model)
    landmarks, scaled = has_landmarks(features), features.scale is not None
    return Work(features.size, of_map, features.dtype.itemsize, features.kernel, landmarks, scaled)


def _map_bytes(model: Model) -> int:
    """Bytes of the arrays of the feature map."""
    return sum(array.nbytes for array in model.features.arrays().values())


def _model_bytes(model: Model) -> int:
    """Bytes of a model and of a copy of its feature map, which every process holds."""
    scatter = 8 * model.features.size**2 if model.sums else 0
    return 2 * _map_bytes(model) + model.solution.components.nbytes + scatter
