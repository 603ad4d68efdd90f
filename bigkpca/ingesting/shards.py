"""Shards of a dataset: how many rows they hold, and how they are filled, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr

from bigkpca.data.blocks import power_of_two
from bigkpca.data.stored import StoredArray, crc32c, writing_empty_chunks
from bigkpca.errors import Array

_SHARD_BYTES, _SHARD_ROWS = 2**23, 65536


def shard_rows(row_bytes: int, given: int | None = None) -> int:
    """Rows of a shard: the given number, else the largest power of two within 8 MiB and 65536 rows."""
    return given or min(_SHARD_ROWS, power_of_two(_SHARD_BYTES // row_bytes))


def rows_of_shard(array: zarr.Array[Any]) -> int:
    """Rows of a shard of a stored array."""
    assert array.shards is not None
    return array.shards[0]


@dataclass
class Shards:
    """Rows collected in memory until they fill a shard, which is then written once, by one assignment.

    digests: CRC-32C of each chunk of rows that is written; None where those of earlier rows are not known.
    """

    array: zarr.Array[Any]
    start: int  # number of the first row held
    held: Array
    filled: int
    digests: list[str] | None = field(default_factory=list)

    @classmethod
    def after(cls, stored: StoredArray) -> Shards:
        """Continue after the rows of an array; those of an incomplete shard are read back, to be written again."""
        array = writing_empty_chunks(stored.array)
        rows, known = stored.count, stored.digests
        held = np.empty((rows_of_shard(array), *array.shape[1:]), array.dtype)
        filled = rows % len(held)
        start = rows - filled
        if filled:
            held[:filled] = stored.read(start, rows)
        if rows and known is None:
            return cls(array, start, held, filled, None)
        return cls(array, start, held, filled, [] if known is None else list(known.of[: start // known.rows]))

    def add(self, values: Array) -> None:
        """Add rows; write shards that are full."""
        while len(values):
            taken = values[: len(self.held) - self.filled]
            self.held[self.filled : self.filled + len(taken)] = taken
            self.filled += len(taken)
            values = values[len(taken) :]
            if self.filled == len(self.held):
                self.flush()

    def flush(self) -> int:
        """Write the rows held; return the number of rows of the array."""
        stop = self.start + self.filled
        if self.filled:  # an interrupted append may have left rows, so that resizing may also shrink the array
            self.array.resize((stop, *self.array.shape[1:]))
            self.array[self.start : stop] = self.held[: self.filled]
            if self.digests is not None:
                step = self.array.chunks[0]
                self.digests += [
                    crc32c(self.held[at : min(at + step, self.filled)]) for at in range(0, self.filled, step)
                ]
            self.start, self.filled = stop, 0
        return stop
