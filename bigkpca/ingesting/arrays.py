"""Files of arrays, streamed: .npy, .npz, IDX (the format of MNIST) and HDF5; all but HDF5 may be compressed by gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.npy import read_npy_header
from bigkpca.errors import (
    Array,
    CorruptionError,
    DataError,
    IncompleteError,
    MemoryLimitError,
    SpecError,
    may_pass,
    require,
    unknown_name,
)

MOST_BYTES = 300_000_000  # that a reader holds at once: a row, a chunk of HDF5, a member that is stored by columns
_IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_PACKED = ("scale_factor", "add_offset", "_FillValue", "missing_value")


@dataclass(frozen=True)
class Stored:
    """An array in a file: its shape and dtype, whether it is stored by columns, and bytes that are decoded together."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool = False
    together: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


@dataclass(frozen=True)
class ArrayFile:
    """The arrays of a file, by name; that of a file with one array has the name "".

    stream: returns pieces of an array with this many rows each, (k, ...); closed after the last.
    """

    path: Path
    arrays: Mapping[str, Stored]
    stream: Callable[[str, int], Iterator[Array]]

    @property
    def where(self) -> str:
        """The file, for messages."""
        return str(self.path)

    @property
    def rows(self) -> int:
        """The most rows of an array."""
        return max((each.shape[0] for each in self.arrays.values() if each.shape), default=0)

    def place(self, name: str) -> str:
        """The place of an array, for messages."""
        return f"{self.path}:{name}" if name else str(self.path)

    def chosen(self, member: str | None, beside: Collection[str]) -> str:
        """The name of the array of rows: the given one, or else the only one that can be rows. Raises SpecError."""
        for name in (member, *beside):
            if name is not None and name not in self.arrays:
                if "" in self.arrays:
                    raise SpecError(
                        f"{self.path} is one array, without a member {name!r}; there is no such file either"
                    )
                raise unknown_name(f"array of {self.path}", name, self.arrays)
        if member is not None:
            return member
        able = [
            name
            for name, each in self.arrays.items()
            if name not in beside and len(each.shape) > 1 and each.dtype.kind in "buif"
        ]
        if len(able) > 1:
            raise SpecError(f"{self.path} holds the arrays {sorted(able)}: name one with --member (member= in Python)")
        if not able and "" not in self.arrays:
            raise DataError(f"{self.path} holds {sorted(self.arrays)}, but no array of numbers with rows and columns")
        return able[0] if able else ""

    def pieces(self, name: str, rows: int) -> Iterator[Array]:
        """Pieces of an array with this many rows each, in the byte order of this machine."""
        stored = self.arrays[name]
        held = max(rows * stored.row_bytes, stored.together)
        if held > MOST_BYTES:
            raise MemoryLimitError(
                f"{self.place(name)}: {held / 1e6:,.0f} MB have to be read at once, more than {MOST_BYTES / 1e6:.0f} MB: "
                "save the array by rows (np.ascontiguousarray) or, in HDF5, in smaller chunks (h5repack)"
            )
        with _decoding(self.path):
            for X in self.stream(name, rows):
                yield X.astype(X.dtype.newbyteorder("="), copy=False)


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Turn the errors that readers raise for damaged bytes into a CorruptionError."""
    try:
        yield
    except (EOFError, OSError, zlib.error, zipfile.BadZipFile, struct.error) as error:
        if isinstance(error, OSError) and may_pass(error):
            raise IncompleteError(
                f"{path} cannot be read for the moment ({error}): run the same command again"
            ) from error
        raise CorruptionError(f"{path} does not decode ({error}): is it truncated? Fetch it again") from error


def unpacked(path: Path) -> AbstractContextManager[IO[bytes]]:
    """A file to read, without its compression by gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path)) if packed else path.open("rb")


def opened(path: Path) -> ArrayFile:
    """The arrays of a file that `is_known`."""
    with _decoding(path):
        reader = _reader(path)
        assert reader is not None
        return reader(path)


def is_known(path: Path) -> bool:
    """Whether a file has a format of arrays, by its first bytes."""
    with _decoding(path):
        return _reader(path) is not None


def _reader(path: Path) -> Callable[[Path], ArrayFile] | None:
    with unpacked(path) as file:
        head = file.read(8)
    if len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and head[3] > 0:
        return _idx
    signatures = {b"\x93NUMPY": _npy, b"PK\x03\x04": _npz, b"\x89HDF": _hdf5, b"CDF": _netcdf3}
    return next((reader for signature, reader in signatures.items() if head.startswith(signature)), None)


def _netcdf3(path: Path) -> ArrayFile:
    raise SpecError(
        f"{path} is a netCDF 3 file: open it with xarray, and write it with to_zarr, or fit the DataArray itself"
    )


def _read(file: IO[bytes], stored: Stored, rows: int, where: str) -> Array:
    """The next rows of a stream."""
    content = file.read(rows * stored.row_bytes)
    if len(content) < rows * stored.row_bytes:
        raise CorruptionError(f"{where} is truncated: it has fewer values than its header states")
    return np.frombuffer(content, stored.dtype).reshape(rows, *stored.shape[1:])


def _streamed(file: IO[bytes], stored: Stored, rows: int, where: str) -> Iterator[Array]:
    """The rows of an array whose values are the rest of a stream."""
    count = stored.shape[0] if stored.shape else 0
    if stored.by_columns:  # the values of a row are spread over the whole stream
        turned = _read(file, Stored(stored.shape[::-1], stored.dtype), stored.shape[-1], where).T
        yield from (turned[start : start + rows] for start in range(0, count, rows))
    else:
        yield from (_read(file, stored, min(rows, count - start), where) for start in range(0, count, rows))
    if file.read(1):  # which also makes gzip and zip compare their checksums
        raise CorruptionError(f"{where} holds more values than its header states")


def _header(file: IO[bytes], where: str) -> Stored:
    """The header of a .npy stream."""
    shape, fortran, dtype = read_npy_header(file, where)
    stored = Stored(tuple(shape), dtype, fortran and len(shape) > 1)
    together = math.prod(shape) * dtype.itemsize if stored.by_columns else 0
    return Stored(stored.shape, dtype, stored.by_columns, together)


def _npy(path: Path) -> ArrayFile:
    with unpacked(path) as file:
        stored = _header(file, str(path))
        plain = isinstance(file, gzip.GzipFile) is False

    def stream(_: str, rows: int) -> Iterator[Array]:
        if stored.by_columns and plain:
            try:
                mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            except ValueError as error:
                raise CorruptionError(f"{path} is truncated ({error}): fetch it again") from error
            yield from (np.ascontiguousarray(mapped[at : at + rows]) for at in range(0, stored.shape[0], rows))
            return
        with unpacked(path) as file:
            _header(file, str(path))
            yield from _streamed(file, stored, rows, str(path))

    held = Stored(stored.shape, stored.dtype, stored.by_columns) if plain else stored
    return ArrayFile(path, {"": held}, stream)


def _npz(path: Path) -> ArrayFile:
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as member:
                    arrays[name.removesuffix(".npy")] = _header(member, f"{path}:{name}")

    def stream(name: str, rows: int) -> Iterator[Array]:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            _header(member, f"{path}:{name}")
            yield from _streamed(member, arrays[name], rows, f"{path}:{name}")

    return ArrayFile(path, arrays, stream)


def _idx(path: Path) -> ArrayFile:
    with unpacked(path) as file:
        head = file.read(4)
        lengths = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
    stored = Stored(lengths, np.dtype(_IDX_TYPES[head[2]]))

    def stream(_: str, rows: int) -> Iterator[Array]:
        with unpacked(path) as file:
            file.read(4 + 4 * len(lengths))
            yield from _streamed(file, stored, rows, str(path))

    return ArrayFile(path, {"": stored}, stream)


def _hdf5(path: Path) -> ArrayFile:
    require("h5py", "io", str(path))
    import h5py

    arrays: dict[str, Stored] = {}

    def look(name: str, node: Any) -> None:
        if not isinstance(node, h5py.Dataset) or not node.shape:
            return
        try:
            dtype = np.dtype("U") if h5py.check_string_dtype(node.dtype) is not None else node.dtype
        except TypeError:  # of times, which NumPy does not have
            return
        chunk = math.prod(node.chunks) * node.dtype.itemsize if node.chunks else 0
        arrays[name] = Stored(node.shape, dtype, together=2 * chunk)

    with h5py.File(path, "r") as file:
        file.visititems(look)

    def stream(name: str, rows: int) -> Iterator[Array]:
        stored = arrays[name]
        with h5py.File(path, "r") as file:
            data = file[name]
            _check_plain(data, f"{path}:{name}")
            if stored.dtype.kind == "U":
                data = data.asstr("utf-8")
            for start in range(0, stored.shape[0], rows):
                found = data[start : start + rows]
                yield found.astype(str) if found.dtype == object else found

    return ArrayFile(path, arrays, stream)


def _check_plain(data: Any, where: str) -> None:
    """Raise DataError for values that mean others, as in netCDF, unless the fill value is NaN."""
    packed = [name for name in _PACKED if name in data.attrs]
    values = np.concatenate([np.ravel(data.attrs[name]) for name in packed]) if packed else np.empty(0)
    if packed and not (values.dtype.kind == "f" and np.isnan(values).all()):
        raise DataError(
            f"{where} has the attributes {', '.join(packed)}: its values are packed, or some are missing: open it with "
            "xarray.open_dataset, which decodes them, and fit the DataArray or write it with to_zarr"
        )


def step_of(row_bytes: int) -> int:
    """Rows of a piece: at most 4 MB, or one row if that is larger."""
    return max(1, READ_BYTES // max(1, row_bytes))
