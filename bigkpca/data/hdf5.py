"""Rows of a dataset of h5py, read one block at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bigkpca.data.frames import check_unpacked, is_of
from bigkpca.data.rows import EVERY, Rows, anonymous, check_shape
from bigkpca.data.stores import store_of
from bigkpca.errors import Array, unreadable
from bigkpca.numerics.linalg import aligned

if TYPE_CHECKING:
    import h5py


def is_hdf5(data: Any) -> bool:
    """Whether `data` is a dataset of h5py."""
    return is_of(data, "h5py", "Dataset")


@dataclass(frozen=True)
class Hdf5Rows(Rows):
    """Rows of a dataset of h5py, which other processes open by the path of its file."""

    values: h5py.Dataset

    @classmethod
    def of(cls, values: h5py.Dataset) -> Self:
        """The rows of a dataset. Raises DataError for packed numbers."""
        where = f"{values.file.filename}:{values.name}"
        check_unpacked(values.attrs, where, "xarray.open_dataset")
        check_shape(values.shape, where)
        return cls(values, where=where)

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.values.dtype)

    @property
    def grain(self) -> int:
        return self.grid[0]

    @property
    def grid(self) -> tuple[int, int]:
        rows, columns = self.values.chunks or (1, self.shape[1])
        return int(rows), int(columns)

    def part(self, start: int, stop: int, columns: slice = EVERY) -> Hdf5Rows:
        return replace(self, names=None, one_hot=(), weights=self._weights_of(start, stop))

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        try:
            return aligned(self.values[start:stop, columns])
        except OSError as error:
            raise unreadable(error, self.where) from error

    def fingerprint(self) -> dict[str, Any]:
        path, stamp = self.values.file.filename, ""
        if store_of(path).exists(path):  # it may be in memory
            stamp = store_of(path).file(path).stamp
        return anonymous(self) | {"stamp": f"{self.where} {stamp}"}

    def __reduce__(self) -> Any:
        return _reopened, (self.values.file.filename, self.values.name, vars(self) | {"values": None})


def _reopened(path: str, name: str, fields: dict[str, Any]) -> Hdf5Rows:
    import h5py

    found = object.__new__(Hdf5Rows)
    vars(found).update(fields | {"values": h5py.File(path, "r")[name]})
    return found
