"""Lazy Dask views, for people who build their own graphs."""

from __future__ import annotations

import dask.array as da
from dask.delayed import delayed

from bigkpca.blocks import Block, fit_block_rows, split
from bigkpca.engine import shared, single_threaded_blas
from bigkpca.errors import Array
from bigkpca.numerics.model import Model
from bigkpca.pipeline import block_scores, check_columns
from bigkpca.sources import Rows


def scores(model: Model, rows: Rows) -> da.Array:
    """Scores (n, r) of the rows as a lazy Dask array, one chunk for each block. No pass until it is computed.

    Raises SpecError for rows of the wrong width.
    """
    check_columns(rows, model)
    n = rows.shape[0]
    fitted, project = shared(model), delayed(_block_scores, pure=False)
    chunks = [
        da.from_delayed(
            project(rows.part(block.start, block.stop), block, fitted),
            (len(block), model.components),
            dtype=model.features.dtype,
        )
        for block in split(n, fit_block_rows(n, rows.grain, model.block_rows))
    ]
    return da.concatenate(chunks)


def _block_scores(rows: Rows, block: Block, model: Model) -> Array:
    # Lazy results are computed without our engine, so the limit is entered here.
    with single_threaded_blas:
        return block_scores(rows, block, model)
