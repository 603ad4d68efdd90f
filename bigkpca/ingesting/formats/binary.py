"""Readers of binary files with values in C order: .npy, .npz and IDX, the last one also compressed by gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigkpca.data.npy import NpyRows, read_npy_header
from bigkpca.errors import Array, CorruptionError
from bigkpca.ingesting.formats.base import (
    Batches,
    Column,
    Stored,
    Table,
    check_labels,
    choose,
    decoding,
    member_table,
    native,
    ranges,
    refuse_labels,
    refuse_member,
    row_shape,
)

GZIP = b"\x1f\x8b"
_IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def _read(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> Array:
    """The next array of a stream. Raises CorruptionError where the stream ends too early."""
    needed = math.prod(shape) * dtype.itemsize
    values = file.read(needed)
    if len(values) < needed:
        raise CorruptionError(f"{where} is truncated: {needed - len(values)} more bytes should follow")
    return native(np.frombuffer(values, dtype)).reshape(shape)


def _stream(file: IO[bytes], stored: Stored, pieces: Iterable[tuple[int, int]], where: str) -> Iterator[Array]:
    """Consecutive ranges of rows of the array that comes next in a stream: (k, columns), or (k,) if it has one axis."""
    width = (math.prod(stored.shape[1:]),) if len(stored.shape) > 1 else ()
    whole = None
    if stored.fortran:  # the values of a row are spread over the whole stream, which can only be read in order
        whole = _read(file, stored.shape[::-1], stored.dtype, where).T
    for a, b in pieces:
        if whole is None:
            yield _read(file, (b - a, *width), stored.dtype, where)
        else:
            yield whole[a:b].reshape(b - a, *width)
    if file.read(1):  # reading to the end also makes gzip and zip verify their checksums
        raise CorruptionError(f"{where} holds more values than its header says")


def _npy_header(file: IO[bytes], where: str) -> Stored:
    """Shape, dtype and order from the header of a .npy stream."""
    shape, fortran, dtype = read_npy_header(file, where)
    return Stored(shape, dtype, fortran and len(shape) > 1)


def npy(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of a .npy file."""
    refuse_member(path, member)
    refuse_labels(path, labels)
    rows = NpyRows.open(str(path))
    pieces = ranges(rows.shape[0], rows.shape[1] * rows.dtype.itemsize)
    batches = ((native(rows.block(a, b)), None) for a, b in pieces)
    return Table(str(path), rows.dtype, rows.row_shape, rows.shape[0], None, batches)


def npy_column(path: Path) -> Column:
    """Labels in a .npy file with one axis."""
    with path.open("rb") as file:
        stored = _npy_header(file, str(path))
        start = file.tell()
    return _column(path, stored, lambda: path.open("rb"), start)


def _column(path: Path, stored: Stored, opened: Callable[[], Any], start: int) -> Column:
    """Labels whose values begin `start` bytes into the file that `opened` opens."""
    check_labels(stored, None, str(path))

    def batches() -> Iterator[Array]:
        with decoding(path), opened() as file:
            file.read(start)
            yield from _stream(file, stored, ranges(stored.shape[0], stored.row_bytes), str(path))

    return Column(str(path), stored.dtype, stored.shape[0], batches())


def npz(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of one array in a .npz file, with another one as labels."""
    arrays = {}
    with decoding(path), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as file:
                    arrays[name.removesuffix(".npy")] = _npy_header(file, f"{path}:{name}")
    chosen = choose(arrays, member, labels, str(path))

    def batches() -> Batches:
        x = arrays[chosen]
        with decoding(path), zipfile.ZipFile(path) as archive:
            X = _member(archive, chosen, ranges(x.shape[0], x.row_bytes), path)
            if labels is None:
                yield from zip(X, repeat(None), strict=False)
            else:
                yield from zip(X, _member(archive, labels, ranges(x.shape[0], x.row_bytes), path), strict=True)

    whole = arrays[chosen].shape[0] * arrays[chosen].row_bytes if arrays[chosen].fortran else 0
    return member_table(path, arrays, chosen, labels, batches(), 2 * whole)


def _member(archive: zipfile.ZipFile, name: str, pieces: Iterable[tuple[int, int]], path: Path) -> Iterator[Array]:
    """Ranges of rows of one array in a .npz file."""
    where = f"{path}:{name}"
    with archive.open(name + ".npy") as file:
        yield from _stream(file, _npy_header(file, where), pieces, where)


def is_idx(head: bytes) -> bool:
    """Whether these first four bytes are a header of IDX, the format of MNIST."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and head[3] > 0


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file, decompressed where it is in gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return gzip.open(path) if packed else path.open("rb")  # type: ignore[return-value]


def _idx_header(path: Path) -> tuple[Stored, int]:
    """(the array, bytes before its values) from the header: 0 0 type ndim, then ndim big-endian lengths."""
    with decoding(path), open_unpacked(path) as file:
        head = file.read(4)
        lengths = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
    return Stored(lengths, np.dtype(_IDX_TYPES[head[2]])), 4 + 4 * head[3]


def idx(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of an IDX file; axes after the first are flattened."""
    refuse_member(path, member)
    refuse_labels(path, labels)
    stored, start = _idx_header(path)

    def batches() -> Batches:
        with decoding(path), open_unpacked(path) as file:
            file.read(start)
            pieces = ranges(stored.shape[0], stored.row_bytes)
            yield from zip(_stream(file, stored, pieces, str(path)), repeat(None), strict=False)

    return Table(str(path), stored.dtype, row_shape(stored.shape, str(path)), stored.shape[0], None, batches())


def idx_column(path: Path) -> Column:
    """Labels in an IDX file with one axis."""
    stored, start = _idx_header(path)
    return _column(path, stored, lambda: open_unpacked(path), start)
