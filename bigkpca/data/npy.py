"""Rows of .npy files, read in place."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from io import SEEK_END
from typing import IO, Any

import numpy as np

from bigkpca.data.blocks import power_of_two
from bigkpca.data.rows import Rows, anonymous, check_shape
from bigkpca.data.stores import is_url, store_of
from bigkpca.data.stores.local import stored_file
from bigkpca.errors import Array, CorruptionError, DataError, SpecError, changed, unreadable

_RUN_BYTES = 2**14  # bytes in sequence in a file that are worth a seek


@dataclass(frozen=True)
class NpyRows(Rows):
    """Rows of a .npy file, read with seek and read: mapped pages would count as resident memory."""

    size: tuple[int, int]
    stored: np.dtype[Any]
    fortran: bool
    data_start: int  # bytes
    stamp: str  # of the version that was opened

    @property
    def shape(self) -> tuple[int, int]:
        return self.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.stored

    @property
    def grain(self) -> int:
        return power_of_two(2**16 // (self.shape[1] * self.dtype.itemsize))

    @property
    def chunk(self) -> int:
        return max(self.grain, _RUN_BYTES // self.dtype.itemsize) if self.fortran else self.grain

    @classmethod
    def open(cls, path: str, *, column: bool = False) -> NpyRows:
        """Read the header; with `column`, a file with one number for each row, (n,), has rows of one column."""
        check_on_disk(path, column=column)
        with store_of(path).open(path) as file:
            if not file.read(1):
                raise CorruptionError(f"{path} is empty; restore it")
            file.seek(0)
            shape, fortran, dtype = read_npy_header(file, path)
            start = file.tell()
            needed = start + math.prod(shape) * dtype.itemsize
            if file.seek(0, SEEK_END) < needed:
                raise CorruptionError(f"{path} is truncated: {needed} bytes are needed, but it has fewer")
            stamp = stored_file(os.fstat(file.fileno())).stamp
        if len(shape) > 2:
            raise DataError(
                f"{path} has shape {shape}: rows must be two-dimensional; make a dataset, where they are flattened: "
                f"bigkpca ingest {path} DATASET.zarr"
            )
        size = check_shape((*shape, 1) if column and len(shape) == 1 else shape, path)
        return cls(size, dtype, fortran, start, stamp, where=path)

    def part(self, start: int, stop: int) -> NpyRows:
        return self if self.weights is None else replace(self, weights=self._weights_of(start, stop))

    def block(self, start: int, stop: int) -> Array:
        n, d = self.shape
        try:
            with store_of(self.where).open(self.where) as file:
                if stored_file(os.fstat(file.fileno())).stamp != self.stamp:
                    raise changed(self.where)
                if not self.fortran:
                    found = np.empty((stop - start, d), self.dtype)
                    self._read(file, start * d, found.reshape(-1))
                    return found
                values = np.empty((d, stop - start), self.dtype)
                for j in range(d):
                    self._read(file, j * n + start, values[j])
            return np.ascontiguousarray(values.T)
        except OSError as error:
            raise unreadable(error, self.where) from error

    def _read(self, file: IO[bytes], first: int, values: Array) -> None:
        """Fill the vector `values` with the values of the file from number `first` on."""
        file.seek(self.data_start + first * self.dtype.itemsize)
        if file.readinto(values.view(np.uint8)) != values.nbytes:  # type: ignore[attr-defined]
            raise changed(self.where)  # it was truncated meanwhile

    def fingerprint(self) -> dict[str, Any]:
        return anonymous(self) | {"path": store_of(self.where).absolute(self.where), "stamp": self.stamp}


def check_on_disk(path: str, *, column: bool = False) -> None:
    """Raise SpecError for the URL of a .npy file of rows, or of one `column`."""
    if is_url(path):
        store_of(path)  # which refuses URLs that contain secrets
        dataset = f", and make a dataset from the copy: bigkpca ingest COPY.npy {path.removesuffix('.npy')}.zarr"
        raise SpecError(f"{path}: .npy files are read only from local disks: copy it to one{'' if column else dataset}")


def read_npy_header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, Fortran order, dtype) of a .npy stream, which is left at its first value."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except ValueError as error:
        raise DataError(f"{where} is not a .npy file: {error}") from error
    if min(shape, default=0) < 0:
        raise DataError(f"{where} is not a .npy file: its shape is {shape}")
    return shape, fortran, dtype
