"""Files of arrays, streamed: .npy, .npz, IDX (the format of MNIST) and HDF5; .npy and IDX may be compressed by gzip.

A format is a function that reads the header of a file and returns its arrays, and how to stream them: `ARRAY_FORMATS`.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.frames import check_encoding
from bigkpca.data.npy import read_npy_header
from bigkpca.errors import (
    Array,
    BigKPCAError,
    CorruptionError,
    DataError,
    MemoryLimitError,
    SpecError,
    require,
    unknown_name,
    unreadable,
)

MOST_BYTES = 300_000_000  # that a reader holds at once: a row, a chunk of HDF5, a member that is stored by columns
_IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


@dataclass(frozen=True)
class Stored:
    """An array in a file: its shape and dtype, and the bytes that have to be decoded together."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    together: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def step(self) -> int:
        """Rows of a piece: at most 4 MB, or one row."""
        return max(1, READ_BYTES // max(1, self.row_bytes))


@dataclass(frozen=True)
class ArrayFile:
    """The arrays of a file, by name; that of a file with one array has the name "".

    stream: returns pieces of an array with this many rows each, (k, ...).
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
                    raise SpecError(f"{self.path} is one array, without a member {name!r}, and there is no such file")
                raise unknown_name(f"array of {self.path}", name, self.arrays)
        able = [
            name
            for name, each in self.arrays.items()
            if name not in beside and len(each.shape) > 1 and each.dtype.kind in "buif"
        ]
        if member is None and len(able) > 1:
            raise SpecError(f"{self.path} holds the arrays {sorted(able)}: name one with --member (member= in Python)")
        if member is None and not able and "" not in self.arrays:
            raise DataError(f"{self.path} holds {sorted(self.arrays)}, but no array of numbers with rows and columns")
        return member or next(iter(able), "")

    def pieces(self, name: str, rows: int) -> Iterator[Array]:
        """Pieces of an array with this many rows each, in the byte order of this machine."""
        stored = self.arrays[name]
        if (held := max(rows * stored.row_bytes, stored.together)) > MOST_BYTES:
            raise MemoryLimitError(
                f"{self.place(name)}: {held / 1e6:,.0f} MB have to be read at once, more than {MOST_BYTES / 1e6:.0f} "
                "MB: save the array by rows (np.ascontiguousarray) or, in HDF5, in smaller chunks (h5repack)"
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
        raise undecodable(path, error) from error


def undecodable(path: Path | str, error: Exception) -> BigKPCAError:
    """What it means that a file cannot be read or decoded."""
    if isinstance(error, OSError) and error.errno is not None:
        return unreadable(error, str(path))
    return CorruptionError(f"{path} does not decode ({error}): is it truncated? Fetch it again")


def unpacked(path: Path) -> IO[bytes]:
    """A file to read, without its compression by gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if packed else path.open("rb")  # type: ignore[return-value]


def opened(path: Path) -> ArrayFile | None:
    """The arrays of a file; None for another format."""
    reader = reader_of(path)
    with _decoding(path):
        return None if reader is None else reader(path)


def reader_of(path: Path) -> Callable[[Path], ArrayFile] | None:
    """What reads the header of a file; None for another format."""
    with _decoding(path), unpacked(path) as file:
        head = file.read(8)
    for begins, ending, reader in ARRAY_FORMATS:
        if re.match(begins, head, re.DOTALL) and path.name.lower().endswith(ending):
            return reader
    return None


def _streamed(file: IO[bytes], stored: Stored, rows: int, where: str) -> Iterator[Array]:
    """The rows of an array whose values are the rest of a stream."""
    for start in range(0, stored.shape[0], rows):
        count = min(rows, stored.shape[0] - start)
        content = file.read(count * stored.row_bytes)
        if len(content) < count * stored.row_bytes:
            raise CorruptionError(f"{where} is truncated: it has fewer values than its header states")
        yield np.frombuffer(content, stored.dtype).reshape(count, *stored.shape[1:])
    if file.read(1):  # which also makes gzip and zip compare their checksums
        raise CorruptionError(f"{where} holds more values than its header states")


def _npy_stream(file: IO[bytes], rows: int, where: str) -> Iterator[Array]:
    """The rows of a .npy stream. One that is stored by columns is held in memory."""
    shape, by_columns, dtype = read_npy_header(file, where)
    if not (by_columns and shape[1:]):
        yield from _streamed(file, Stored(shape, dtype), rows, where)
        return
    (whole,) = _streamed(file, Stored((1, *shape[::-1]), dtype), 1, where)
    yield from (whole[0].T[start : start + rows] for start in range(0, shape[0], rows))


def _npy_array(file: IO[bytes], where: str) -> Stored:
    shape, by_columns, dtype = read_npy_header(file, where)
    return Stored(shape, dtype, math.prod(shape) * dtype.itemsize if by_columns and shape[1:] else 0)


def npy(path: Path) -> ArrayFile:
    """A .npy file. Where it is not compressed, arrays that are stored by columns are read in place."""
    with unpacked(path) as file:
        stored, in_place = _npy_array(file, str(path)), not isinstance(file, gzip.GzipFile)

    def stream(_: str, rows: int) -> Iterator[Array]:
        if stored.together and in_place:
            try:
                mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            except ValueError as error:
                raise CorruptionError(f"{path} is truncated ({error}): fetch it again") from error
            yield from (np.ascontiguousarray(mapped[at : at + rows]) for at in range(0, stored.shape[0], rows))
            return
        with unpacked(path) as file:
            yield from _npy_stream(file, rows, str(path))

    return ArrayFile(path, {"": replace(stored, together=0) if in_place else stored}, stream)


def npz(path: Path) -> ArrayFile:
    """A .npz file."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as member:
                    arrays[name.removesuffix(".npy")] = _npy_array(member, f"{path}:{name}")

    def stream(name: str, rows: int) -> Iterator[Array]:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            yield from _npy_stream(member, rows, f"{path}:{name}")

    return ArrayFile(path, arrays, stream)


def idx(path: Path) -> ArrayFile:
    """An IDX file, the format of MNIST."""
    with unpacked(path) as file:
        head = file.read(4)
        lengths = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
    stored = Stored(lengths, np.dtype(_IDX_TYPES[head[2]]))

    def stream(_: str, rows: int) -> Iterator[Array]:
        with unpacked(path) as file:
            file.read(4 + 4 * len(lengths))
            yield from _streamed(file, stored, rows, str(path))

    return ArrayFile(path, {"": stored}, stream)


def hdf5(path: Path) -> ArrayFile:
    """An HDF5 or netCDF 4 file, whose values are numbers or text as they are."""
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
        arrays[name] = Stored(node.shape, dtype, 2 * chunk)

    with h5py.File(path, "r") as file:
        file.visititems(look)

    def stream(name: str, rows: int) -> Iterator[Array]:
        with h5py.File(path, "r") as file:
            data = file[name]
            check_encoding(data.attrs, f"{path}:{name}", f"xarray.open_dataset({str(path)!r})[{name!r}]")
            data = data.asstr("utf-8") if arrays[name].dtype.kind == "U" else data
            for start in range(0, arrays[name].shape[0], rows):
                found = data[start : start + rows]
                yield found.astype(str) if found.dtype == object else found

    return ArrayFile(path, arrays, stream)


ARRAY_FORMATS: list[tuple[bytes, str, Callable[[Path], ArrayFile]]] = [
    (rb"\x93NUMPY", "", npy),
    (rb"PK\x03\x04", ".npz", npz),
    (rb"\0\0[\x08\x09\x0b-\x0e][\x01-\xff]", "", idx),
    (rb"\x89HDF", "", hdf5),
]
"""Formats of arrays: a pattern of the first bytes, the ending of file names, and what reads the header."""
