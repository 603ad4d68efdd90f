"""Mean squared error of pre-images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.data.blocks import Block, tile_rows
from bigkpca.data.reading import tiles
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.by_block import fit_blocks, sum_by_block
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Noise
from bigkpca.numerics.random_streams import SCORING


@dataclass(frozen=True)
class SquaredError:
    """Sum of squared errors over entries, and the number of entries; those of blocks add up."""

    total: float
    count: int

    def __add__(self, other: SquaredError) -> SquaredError:
        return SquaredError(self.total + other.total, self.count + other.count)


def preimage_error(
    model: Model,
    rows: Rows,
    noise: float | None,
    engine: Engine,
    progress: Progress,
    units: Array | None = None,
) -> float:
    """Mean over all entries of (x - x^)², x^ the pre-image of the scores of x: one pass.

    In the units of the data, or of `units` (d,) for each column. With `noise`, a standard deviation in the units of the
    data, x^ is the pre-image of x plus noise, which is a function of the row number, and iterations start at the noisy
    row. Raises SpecError for models without pre-images.
    """
    model.reconstructing(1)  # raises SpecError if the model has no pre-images
    key = np.random.SeedSequence(0, spawn_key=(SCORING,)).generate_state(2, np.uint64)
    added = None if noise is None else Noise(noise, key, 1)
    given = model, added, 1.0 if units is None else units
    blocks = fit_blocks(rows, model.block_rows)
    found: SquaredError = sum_by_block("scoring", _squared_error, rows, given, blocks, engine, progress)
    return found.total / found.count


def _squared_error(rows: Rows, block: Block, model: Model, noise: Noise | None, units: Array | float) -> SquaredError:
    """The squared error of one block of rows."""
    height = tile_rows(model.columns, model.features.size, 8)
    most_rows = min(height, len(block))
    decode = model.reconstructing(most_rows)
    total, first = 0.0, block.start
    for X in tiles(rows, block.start, block.stop, height):
        given = X if noise is None else noise.added(X, first, 0)
        (Y,) = model.project([given], most_rows)
        found = decode(Y, None if noise is None else given)
        total += float(np.sum(((X.astype(np.float64) - found.rows) / units) ** 2))
        first += len(X)
    return SquaredError(total, len(block) * model.columns)
