"""Readers of binary files: .npy, .npz and IDX, HDF5 by h5py."""

from __future__ import annotations

import gzip
import math
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigkpca.data import packing
from bigkpca.data.beside import Beside
from bigkpca.data.npy import NpyRows, read_npy_header
from bigkpca.errors import Array, CorruptionError, DataError, check_finite, require
from bigkpca.ingesting.beside import Names, dtype_of_array
from bigkpca.ingesting.formats.base import (
    TEXT,
    Batches,
    Column,
    StoredHeader,
    Table,
    choose,
    decoding,
    member_table,
    native,
    paired,
    ranges,
    refuse_names,
    row_shape,
)

GZIP = b"\x1f\x8b"
_IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def _read(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> Array:
    """The next array of a stream. Raises CorruptionError if the stream ends too early."""
    needed = math.prod(shape) * dtype.itemsize
    values = file.read(needed)
    if len(values) < needed:
        raise CorruptionError(f"{where} is truncated: {needed - len(values)} bytes are missing")
    return native(np.frombuffer(values, dtype)).reshape(shape)


def _stream(file: IO[bytes], stored: StoredHeader, pieces: Iterable[tuple[int, int]], where: str) -> Iterator[Array]:
    """Consecutive ranges of rows of the next array in a stream: (k, columns), or (k,) if it has one axis."""
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
        raise CorruptionError(f"{where} holds more values than its header states")


def _npy_header(file: IO[bytes], where: str) -> StoredHeader:
    """Shape, dtype and order from the header of a .npy stream."""
    shape, fortran, dtype = read_npy_header(file, where)
    return StoredHeader(shape, dtype, fortran and len(shape) > 1)


def npy(path: Path, member: str | None, names: Names) -> Table:
    """Rows of a .npy file."""
    refuse_names(path, member, names)
    rows = NpyRows.open(str(path))
    pieces = ranges(rows.shape[0], rows.shape[1] * rows.dtype.itemsize)
    batches = paired((native(rows.block(a, b)) for a, b in pieces), {})
    return Table(str(path), rows.dtype, rows.row_shape, rows.shape[0], {}, batches)


def npy_column(path: Path, kind: Beside) -> Column:
    """Values beside the rows in a .npy file with one axis."""
    with path.open("rb") as file:
        stored = _npy_header(file, str(path))
        start = file.tell()
    return _column(path, kind, stored, lambda: path.open("rb"), start)


def _column(path: Path, kind: Beside, stored: StoredHeader, opened: Callable[[], Any], start: int) -> Column:
    """Values that start at byte `start` of the file that `opened` opens."""
    dtype = dtype_of_array(kind, stored.shape, stored.dtype, None, str(path))

    def batches() -> Iterator[Array]:
        with decoding(path), opened() as file:
            file.read(start)
            yield from _stream(file, stored, ranges(stored.shape[0], stored.row_bytes), str(path))

    return Column(str(path), dtype, stored.shape[0], batches())


def npz(path: Path, member: str | None, names: Names) -> Table:
    """Rows of one array in a .npz file, with the values of others beside them."""
    arrays = {}
    with decoding(path), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as file:
                    arrays[name.removesuffix(".npy")] = _npy_header(file, f"{path}:{name}")
    chosen = choose(arrays, member, names, str(path))

    def batches() -> Batches:
        x = arrays[chosen]
        with decoding(path), zipfile.ZipFile(path) as archive:

            def pieces(name: str) -> Iterator[Array]:
                return _member(archive, name, ranges(x.shape[0], x.row_bytes), path)

            yield from paired(pieces(chosen), {kind: pieces(name) for kind, name in names.items()})

    whole = arrays[chosen].shape[0] * arrays[chosen].row_bytes if arrays[chosen].fortran else 0
    return member_table(path, arrays, chosen, names, batches(), 2 * whole)


def _member(archive: zipfile.ZipFile, name: str, pieces: Iterable[tuple[int, int]], path: Path) -> Iterator[Array]:
    """Ranges of rows of one array in a .npz file."""
    where = f"{path}:{name}"
    with archive.open(name + ".npy") as file:
        yield from _stream(file, _npy_header(file, where), pieces, where)


def is_idx(head: bytes) -> bool:
    """Whether these first four bytes are a header of IDX, the format of MNIST."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and head[3] > 0


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file, decompressed if it is in gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return gzip.open(path) if packed else path.open("rb")  # type: ignore[return-value]


def _idx_header(path: Path) -> tuple[StoredHeader, int]:
    """(the array, bytes before its values) from the header: 0 0 type ndim, then ndim big-endian lengths."""
    with decoding(path), open_unpacked(path) as file:
        head = file.read(4)
        lengths = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
    return StoredHeader(lengths, np.dtype(_IDX_TYPES[head[2]])), 4 + 4 * head[3]


def idx(path: Path, member: str | None, names: Names) -> Table:
    """Rows of an IDX file; axes after the first are flattened."""
    refuse_names(path, member, names)
    stored, start = _idx_header(path)

    def batches() -> Batches:
        with decoding(path), open_unpacked(path) as file:
            file.read(start)
            pieces = ranges(stored.shape[0], stored.row_bytes)
            yield from paired(_stream(file, stored, pieces, str(path)), {})

    return Table(str(path), stored.dtype, row_shape(stored.shape, str(path)), stored.shape[0], {}, batches())


def idx_column(path: Path, kind: Beside) -> Column:
    """Values beside the rows in an IDX file with one axis."""
    stored, start = _idx_header(path)
    return _column(path, kind, stored, lambda: open_unpacked(path), start)


def hdf5(path: Path, member: str | None, names: Names) -> Table:
    """Rows of one data set of an HDF5 or netCDF4 file, with the values of others beside them; all decoded."""
    require("h5py", "io", str(path))
    import h5py

    arrays: dict[str, StoredHeader] = {}
    chunks: dict[str, int] = {}
    attributes: dict[str, dict[str, Any]] = {}

    def look(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            shape = (0,) if node.shape is None else node.shape  # a null data set has none
            try:
                dtype = node.dtype
            except TypeError:  # types that NumPy does not have, such as times
                dtype = np.dtype(object)
            chunks[name] = math.prod(node.chunks or ()) * dtype.itemsize if node.chunks else 0
            arrays[name] = StoredHeader(shape, TEXT if h5py.check_string_dtype(dtype) is not None else dtype)
            attributes[name] = {key: node.attrs[key] for key in packing.ATTRIBUTES if key in node.attrs}

    with decoding(path), h5py.File(path, "r") as file:
        file.visititems(look)
    chosen = choose(arrays, member, names, str(path))
    packings = {
        name: found
        for name in (chosen, *names.values())
        if (found := packing.packing_of(attributes[name], arrays[name].dtype, f"{path}:{name}"))
    }
    # Values beside the rows that are integers stay integers: they cannot be missing.
    whole = {name: kind for kind, name in names.items() if name in packings and packings[name].is_whole}
    for name, found in packings.items():
        arrays[name] = StoredHeader(arrays[name].shape, found.stored if name in whole else found.dtype)

    def pieces(file: Any, name: str) -> Iterator[Array]:
        x = arrays[chosen]
        stored = file[name].asstr("utf-8") if arrays[name].dtype == TEXT else file[name]
        for a, b in ranges(x.shape[0], x.row_bytes):
            try:
                values = stored[a:b]
            except UnicodeDecodeError as error:
                raise DataError(f"{path}:{name} is not UTF-8 text: {error}") from error
            if name in packings:
                numbers, values = values, packings[name].decode(values)
                if name in whole:
                    where = f"the {whole[name].noun}s of {path}:{name}"
                    check_finite(values[:, None], a, where, fills=packings[name].shown_fills)
                    values = numbers.view(packings[name].stored)
            values = values.astype(str) if values.dtype == object else native(values)
            yield values.reshape(b - a, math.prod(values.shape[1:])) if name == chosen else values

    def batches() -> Batches:
        with decoding(path), h5py.File(path, "r") as file:
            yield from paired(pieces(file, chosen), {kind: pieces(file, name) for kind, name in names.items()})

    # A chunk is decompressed as a whole.
    largest = max(chunks[name] for name in (chosen, *names.values()))
    table = member_table(path, arrays, chosen, names, batches(), 2 * largest)
    return replace(table, fills=packings[chosen].shown_fills) if chosen in packings else table
