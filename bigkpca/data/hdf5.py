"""Rows of datasets of h5py, read by slices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.base import normalize_token

from bigkpca.data.blocks import power_of_two
from bigkpca.data.frames import check_encoding
from bigkpca.data.rows import Rows, anonymous, check_shape
from bigkpca.data.stores import store_of
from bigkpca.data.zarr import read
from bigkpca.errors import Array, SpecError, changed, check_numeric, unreadable

_READ_BYTES = 2**16  # of rows that are not in chunks


@dataclass(frozen=True)
class HDF5Rows(Rows):
    """Rows of a dataset. Another process, or this one once the user has closed the file, opens it by path and name.

    stamp: of the version of the file that was opened. size, stored: the shape and dtype. grain: rows of stored chunks.
    """

    dataset: Any  # None in another process
    path: str
    stamp: str
    size: tuple[int, int]
    stored: np.dtype[Any]
    grain: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.stored

    def part(self, start: int, stop: int) -> HDF5Rows:
        return self if self.weights is None else replace(self, weights=self._weights_of(start, stop))

    def block(self, start: int, stop: int) -> Array:
        with self._opened() as dataset:
            return read(dataset, self.where, start, stop)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        if self.dataset:  # false once its file is closed
            yield self.dataset
            return
        import h5py

        if _stamp_of(self.path) != self.stamp:
            raise changed(self.where)
        try:
            with h5py.File(self.path, "r") as file:
                yield file[self.name]
        except OSError as error:  # e.g. since another process has it open for writing
            raise unreadable(error, self.where) from error

    def fingerprint(self) -> dict[str, Any]:
        """See `Rows`. The path is part of the stamp, since rows at this path alone could not be opened again."""
        return anonymous(self) | {"stamp": f"{self.path} {self.name} {_stamp_of(self.path)}"}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"dataset": None}

    def __dask_tokenize__(self) -> Any:
        return normalize_token(self.__getstate__())


def hdf5_rows(dataset: Any) -> HDF5Rows:
    """Rows of a dataset of h5py. Raises SpecError unless it is in an open file on disk."""
    if not dataset:
        raise SpecError("the file of the h5py dataset is closed: open it again")
    name, store = dataset.name, store_of(dataset.file.filename)
    if name is None or not store.exists(dataset.file.filename):
        raise SpecError("the h5py dataset is not in a file on disk: pass its values, as in X[:]")
    path = store.absolute(dataset.file.filename)
    where = f"{path}:{name}"
    rows, columns = check_shape(dataset.shape or (), where)
    check_numeric(dataset.dtype, where)
    check_encoding(dataset.attrs, where, f"xarray.open_dataset({path!r})[{name.lstrip('/')!r}]")
    high = dataset.chunks[0] if dataset.chunks else power_of_two(_READ_BYTES // (columns * dataset.dtype.itemsize))
    size, stamp = (rows, columns), _stamp_of(path)
    return HDF5Rows(dataset, path, stamp, size, dataset.dtype, min(high, rows), where=where, name=name)


def _stamp_of(path: str) -> str:
    try:
        return store_of(path).file(path).stamp
    except OSError as error:
        raise unreadable(error, path) from error
