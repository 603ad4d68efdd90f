"""Rows of Dask arrays and frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.delayed import Delayed, delayed

from bigkpca.data.frames import FRAME, column_names, frame_dtype
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.rows import EVERY, anonymous
from bigkpca.errors import Array
from bigkpca.numerics.aligned import aligned

if TYPE_CHECKING:  # it takes long to import, and whoever has such rows has imported it
    import dask.array as da


@dataclass(frozen=True)
class DaskRows:
    """Rows of a Dask array; each task depends only on the chunks that hold its rows.

    names are those of the columns of a frame, if any.
    """

    values: da.Array
    where: str = "the dask array"
    name: None = None
    names: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.values.dtype)

    @property
    def grain(self) -> int:
        return 1  # slicing a Dask array within a chunk costs nothing

    @property
    def grid(self) -> tuple[int, int]:
        rows, columns = self.values.chunks
        return max(rows), max(columns)

    def part(self, start: int, stop: int, columns: slice = EVERY) -> Delayed:
        # Not optimized one by one: a chunk that many blocks need would be computed for each of them.
        piece = self.values[start:stop, columns].rechunk(-1).to_delayed(optimize_graph=False).item()
        return delayed(ArrayRows)(piece, start, self.where, first_column=columns.start or 0)

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        return aligned(np.asarray(self.values[start:stop, columns].compute()))

    def fingerprint(self) -> dict[str, Any]:
        return anonymous(self) | {"stamp": self.values.name}  # Dask names graphs by their content


def frame_rows(frame: Any) -> DaskRows:
    """Rows of a Dask frame. Counting the rows of its partitions takes one pass over its index."""
    dtype = frame_dtype(frame)
    lengths = tuple(int(length) for length in frame.index.map_partitions(len).compute())
    return DaskRows(frame.astype(dtype).to_dask_array(lengths=lengths), FRAME, names=column_names(frame))
