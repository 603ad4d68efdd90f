"""Shards of a dataset: how many rows they hold, and how they are filled, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from bigkpca.data.blocks import power_of_two
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import Array

_SHARD_BYTES, _SHARD_ROWS = 2**23, 65536


def shard_rows(row_bytes: int, given: int | None = None) -> int:
    """Rows of a shard: the largest power of two within 8 MiB and 65536 rows, whatever n is, or those given."""
    return given or min(_SHARD_ROWS, power_of_two(_SHARD_BYTES // row_bytes))


def rows_of_shard(array: zarr.Array[Any]) -> int:
    """Rows of a shard of a stored array."""
    assert array.shards is not None
    return array.shards[0]


@dataclass
class Shards:
    """Rows gathered in memory until they fill a shard, which is then written once, by one assignment."""

    array: zarr.Array[Any]
    start: int  # the first row that is held
    held: Array
    filled: int

    @classmethod
    def after(cls, array: zarr.Array[Any], rows: int) -> Shards:
        """Goes on after `rows` rows; those of a shard that is not full are read back, to be written again."""
        held = np.empty((rows_of_shard(array), *array.shape[1:]), array.dtype)
        filled = rows % len(held)
        start = rows - filled
        held[:filled] = ZarrRows(array, f"{array.store_path}", rows).block(start, rows) if filled else held[:0]
        return cls(array, start, held, filled)

    def add(self, values: Array) -> None:
        while len(values):
            taken = values[: len(self.held) - self.filled]
            self.held[self.filled : self.filled + len(taken)] = taken
            self.filled += len(taken)
            values = values[len(taken) :]
            if self.filled == len(self.held):
                self.flush()

    def flush(self) -> int:
        """Write what is held; returns the number of rows of the array."""
        stop = self.start + self.filled
        if self.filled:  # an append that stopped may have left rows behind, so that resizing may also cut
            self.array.resize((stop, *self.array.shape[1:]))
            self.array[self.start : stop] = self.held[: self.filled]
            self.start, self.filled = stop, 0
        return stop
