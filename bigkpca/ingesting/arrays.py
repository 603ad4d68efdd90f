"""Files of arrays, streamed: .npy, .npz and IDX (the format of MNIST); .npy and IDX may be compressed by gzip.

A format is a function that reads the header of a file and returns its arrays, and how to open them: `ARRAY_FORMATS`.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.npy import read_npy_header
from bigkpca.errors import (
    Array,
    BigKPCAError,
    CorruptionError,
    DataError,
    MemoryLimitError,
    SpecError,
    unknown_name,
    unreadable,
)

MOST_BYTES = 300_000_000  # that a reader holds at once: a row, or a compressed array that is stored by columns
_IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


@dataclass(frozen=True)
class ArrayHeader:
    """An array in a file: its shape and dtype, the bytes of the header before its values, and their order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    header: int
    by_columns: bool = False

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
    """The arrays of a file, by name; that of a file with one array has the name "". opened: an array as a stream."""

    path: Path
    arrays: Mapping[str, ArrayHeader]
    opened: Callable[[str], AbstractContextManager[IO[bytes]]]

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
        """Pieces of an array with this many rows each, in the byte order of this machine. An array that is stored by
        columns is mapped or, from a compressed file, held in memory."""
        stored, where = self.arrays[name], self.place(name)
        shape, dtype = stored.shape, stored.dtype
        with _decoding(self.path), self.opened(name) as file:
            together = stored.by_columns and not isinstance(file, BufferedReader)
            held = (shape[0] if together else rows) * stored.row_bytes
            if held > MOST_BYTES:
                raise MemoryLimitError(
                    f"{where}: {held / 1e6:,.0f} MB have to be read at once, more than {MOST_BYTES / 1e6:.0f} MB: save "
                    "the array by rows (np.ascontiguousarray)"
                )
            file.read(stored.header)
            if together:
                (values,) = _streamed(file, (1, math.prod(shape)), dtype, 1, where)
                found = _parts(values.reshape(shape, order="F"), rows)
            elif stored.by_columns:
                try:
                    found = _parts(np.memmap(self.path, dtype, "r", stored.header, shape, "F"), rows)
                except ValueError as error:
                    raise CorruptionError(f"{where} is truncated ({error}): fetch it again") from error
            else:
                found = _streamed(file, shape, dtype, rows, where)
            for X in found:
                yield X.astype(dtype.newbyteorder("="), copy=False)


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


def _streamed(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], rows: int, where: str) -> Iterator[Array]:
    """The rows of an array whose values are the rest of a stream."""
    for start in range(0, shape[0], rows):
        piece = min(rows, shape[0] - start), *shape[1:]
        size = math.prod(piece) * dtype.itemsize
        content = file.read(size)
        if len(content) < size:
            raise CorruptionError(f"{where} is truncated: it has fewer values than its header states")
        yield np.frombuffer(content, dtype).reshape(piece)
    if file.read(1):  # which also makes gzip and zip compare their checksums
        raise CorruptionError(f"{where} holds more values than its header states")


def _parts(X: Array, rows: int) -> Iterator[Array]:
    return (np.ascontiguousarray(X[start : start + rows]) for start in range(0, len(X), rows))


def _npy_array(file: IO[bytes], where: str) -> ArrayHeader:
    shape, by_columns, dtype = read_npy_header(file, where)
    return ArrayHeader(shape, dtype, file.tell(), by_columns and len(shape) > 1)


def npy(path: Path) -> ArrayFile:
    """A .npy file."""
    with unpacked(path) as file:
        stored = _npy_array(file, str(path))
    return ArrayFile(path, {"": stored}, lambda _: unpacked(path))


def npz(path: Path) -> ArrayFile:
    """A .npz file."""

    @contextmanager
    def opened(name: str) -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            yield member

    arrays = {}
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    for name in names:
        with opened(name) as member:
            arrays[name] = _npy_array(member, f"{path}:{name}.npy")
    return ArrayFile(path, arrays, opened)


def idx(path: Path) -> ArrayFile:
    """An IDX file, the format of MNIST."""
    with unpacked(path) as file:
        head = file.read(4)
        lengths = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
        stored = ArrayHeader(lengths, np.dtype(_IDX_TYPES[head[2]]), file.tell())
    return ArrayFile(path, {"": stored}, lambda _: unpacked(path))


ARRAY_FORMATS: list[tuple[bytes, str, Callable[[Path], ArrayFile]]] = [
    (rb"\x93NUMPY", "", npy),
    (rb"PK\x03\x04", ".npz", npz),
    (rb"\0\0[\x08\x09\x0b-\x0e][\x01-\xff]", "", idx),
]
"""Formats of arrays: a pattern of the first bytes, the ending of file names, and what reads the header."""
