"""Rows of Dask arrays and frames."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.base import optimize
from dask.delayed import Delayed, delayed
from scipy.sparse import issparse

from bigkpca.data.devices import Device, device_of
from bigkpca.data.frames import (
    FRAME,
    OF_DASK,
    check_tensor,
    column_names,
    frame_dtype,
    is_of_cupy,
    is_tensor,
    tensor_rows,
    unmasked,
)
from bigkpca.data.rows import ArrayRows, Rows, SampleWeights, anonymous, check_shape
from bigkpca.data.sparse import SparseRows, sparse_rows
from bigkpca.errors import Array, DataError, SpecError, check_numeric
from bigkpca.numerics.array_api import on_host

if TYPE_CHECKING:  # slow to import, and a caller with such rows has already imported it
    import dask.array as da


@dataclass(frozen=True)
class DaskRows(Rows):
    """Rows of a Dask array, whose chunks are dense, sparse or on a device. If they were not counted, (nan, d), they
    have chunks, but no blocks."""

    values: da.Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.values.dtype)

    @property
    def sparse(self) -> bool:
        """Whether the chunks are SciPy sparse matrices."""
        return issparse(self.values._meta)

    @property
    def device(self) -> Device | None:
        return device_of(self.values._meta) if is_of_cupy(self.values._meta) else None

    @property
    def counted(self) -> bool:
        """Whether the sizes of the chunks are known."""
        return not math.isnan(self.values.shape[0])

    @property
    def grain(self) -> int:
        return 1  # slicing a Dask array within a chunk costs nothing

    @property
    def chunk(self) -> int:
        return max(self.values.chunks[0])

    def part(self, start: int, stop: int) -> Delayed:
        # Not optimized one by one, or a chunk that many blocks need would be computed for each of them.
        piece = self._piece(start, stop).to_delayed(optimize_graph=False).item()
        return delayed(rows_of_chunk)(piece, start, self.where, self._weights_of(start, stop))

    def block(self, start: int, stop: int) -> Array:
        return rows_of_chunk(self._piece(start, stop).compute(), start, self.where).block(start, stop)

    def _piece(self, start: int, stop: int) -> da.Array:
        """These rows as one chunk. Dask drops the masks of chunks that it joins, so they are looked at before."""
        found = self.values[start:stop]
        if found.npartitions == 1:
            return found
        return found.map_blocks(unmasked, OF_DASK, dtype=found.dtype, meta=found._meta).rechunk(-1)

    def fingerprint(self) -> dict[str, Any]:
        return anonymous(self) | {"stamp": self.values.name}  # Dask names graphs by their content


def rows_of_chunk(values: Any, first: int, where: str, weights: SampleWeights | None = None) -> ArrayRows | SparseRows:
    """Rows first, first + 1, ... in a computed chunk. Raises DataError if values are masked."""
    values = unmasked(values, OF_DASK)
    opened = tensor_rows if is_tensor(values) else sparse_rows if issparse(values) else ArrayRows
    return replace(opened(values), first=first, where=where, weights=weights)


def array_rows(array: da.Array) -> DaskRows:
    """Rows of a Dask array. If its chunk sizes are unknown, one pass over the array counts its rows."""
    return _counted(uncounted_rows(array))


def uncounted_rows(array: da.Array) -> DaskRows:
    """Rows of a Dask array, not counted. Raises SpecError if the number of columns is unknown, too."""
    where = "the dask array"
    check_shape(array.shape, where)
    if isinstance(array._meta, np.ma.MaskedArray):
        raise DataError(OF_DASK)
    if is_tensor(array._meta) and not is_of_cupy(array._meta):  # chunks that Dask cannot concatenate
        dtype = check_tensor(array._meta, where)
        array = array.map_blocks(on_host, dtype=dtype, meta=np.empty((0, 0), dtype))  # type: ignore[call-arg, arg-type]
    check_numeric(array.dtype, where)  # before the pass that counts
    if math.isnan(array.shape[1]):
        raise SpecError(
            f"{where} has an unknown number of columns, as after X[:, mask]: call compute_chunk_sizes() on it"
        )
    return DaskRows(optimized(array)[0], where=where)


def frame_rows(frame: Any) -> DaskRows:
    """Rows of a Dask frame. Counting the rows of its partitions takes one pass over the frame."""
    # Not over its index: Dask reads few columns of files in fewer partitions, and for some readers the index alone is
    # empty. The partitions of the array are those that are read later.
    values = frame.astype(frame_dtype(frame)).to_dask_array()
    return _counted(DaskRows(optimized(values)[0], where=FRAME, names=column_names(frame)))


def _counted(rows: DaskRows) -> DaskRows:
    if rows.counted:
        return rows
    return replace(rows, values=rows.values.copy().compute_chunk_sizes())  # which changes the array


def optimized(*collections: Any) -> tuple[Any, ...]:
    """The collections with Dask's optimizations, unless they contain futures, such as persisted chunks, which would be
    lost. Raises DataError for futures that can no longer provide chunks."""
    if "distributed" in sys.modules:
        from distributed import futures_of
        from distributed.client import FutureCancelledError, FuturesCancelledError

        try:
            futures = futures_of(collections)
        except (FutureCancelledError, FuturesCancelledError):
            futures = [None]
        if any(each is None or each.status == "cancelled" or each.client.status != "running" for each in futures):
            raise DataError(
                "the Dask array was persisted on a cluster, but its client is closed or its chunks were cancelled: "
                "persist it again"
            )
        if futures:
            return collections
    found: tuple[Any, ...] = optimize(*collections)
    return found
