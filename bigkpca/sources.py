"""Rows, wherever they are: NumPy arrays, data frames, Dask arrays and frames, xarray, Zarr arrays and .npy files.

Every kind of input becomes a `Rows`; nothing above this module knows the difference.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol

import dask.array as da
import numpy as np
import zarr
from dask.base import is_dask_collection, optimize
from dask.delayed import Delayed, delayed
from zarr.storage import LocalStore

from bigkpca.aligned import aligned
from bigkpca.blocks import READ_BYTES, power_of_two
from bigkpca.errors import (
    Array,
    CorruptionError,
    DataError,
    IncompleteError,
    SpecError,
    check_finite,
    check_numeric,
)
from bigkpca.numerics.display import brief
from bigkpca.stamps import version_marks

ATTRIBUTE = "bigkpca"  # the one key of our own in the attributes of a Zarr group
SCRATCH = ".bigkpca-new"  # behind the name of an output: what is being made of it
EVERY = slice(None)  # column
FRAME = "the dask dataframe"
_RUN_BYTES = 2**14  # one after the other in a file, for which a seek is worth its while


class Rows(Protocol):
    """A two-dimensional table of numbers that is read by row ranges."""

    @property
    def where(self) -> str:
        """What error messages call it."""

    @property
    def name(self) -> str | None:
        """Name of the array in its group, to open it again."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, None where nothing tells."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""

    @property
    def grain(self) -> int:
        """Rows that storage reads at once; blocks start at multiples of it."""

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) that storage reads at once where some columns alone are asked for: the shape of a chunk."""

    def part(self, start: int, stop: int, columns: slice = EVERY) -> Rows | Delayed:
        """What a task on rows start..stop needs, numbered as in the whole: all of it for files, or a piece."""

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        """Rows start..stop, or the columns of them from columns.start to columns.stop, in `dtype`, aligned.

        Raises CorruptionError where they cannot be read.
        """

    def fingerprint(self) -> dict[str, Any]:
        """What identifies the rows, JSON-ready: path (None without one), shape, dtype, and a stamp that changes
        when they do: sizes and times or tags of stored chunks, or SHA-256 of what is in memory. No pass over files."""


def anonymous(rows: Rows) -> dict[str, Any]:
    """The fingerprint of rows whose content is not looked at."""
    return {"path": None, "shape": list(rows.shape), "dtype": rows.dtype.str, "stamp": None}


def check_shape(shape: tuple[int, ...], where: str) -> tuple[int, int]:
    """Raise DataError unless the shape is two-dimensional with rows and columns."""
    if len(shape) != 2:
        raise DataError(f"{where} has shape {shape}: rows must be two-dimensional, (rows, columns)")
    if 0 in shape:
        raise DataError(f"{where} is empty: shape {shape}")
    return shape


@dataclass(frozen=True)
class ArrayRows:
    """Rows first, first + 1, ... and columns first_column, ... of a table, in memory."""

    values: Array
    first: int = 0
    where: str = "the array"
    name: None = None
    grain: int = 1
    first_column: int = 0
    grid: tuple[int, int] = (1, 1)
    names: tuple[str, ...] | None = None

    __repr__ = brief

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def part(self, start: int, stop: int, columns: slice = EVERY) -> ArrayRows:
        names = self.names if columns == EVERY else None
        found = self._cut(start, stop, columns)
        return ArrayRows(found, start, self.where, first_column=columns.start or 0, names=names)

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        return aligned(self._cut(start, stop, columns))

    def _cut(self, start: int, stop: int, columns: slice) -> Array:
        found = self.values[start - self.first : stop - self.first]
        if columns == EVERY:
            return found
        return found[:, columns.start - self.first_column : columns.stop - self.first_column]

    def fingerprint(self) -> dict[str, Any]:
        return anonymous(self) | {"stamp": hashlib.sha256(little_endian(self.values)).hexdigest()}


@dataclass(frozen=True)
class DaskRows:
    """Rows of a Dask array; each task depends on just the chunks that hold its rows.

    names are those of the columns, where they came as a frame that has some.
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
        return 1  # slicing a Dask array cuts chunks for free

    @property
    def grid(self) -> tuple[int, int]:
        rows, columns = self.values.chunks
        return max(rows), max(columns)

    def part(self, start: int, stop: int, columns: slice = EVERY) -> Delayed:
        # Not optimized one by one: a chunk that many blocks take would be computed anew for each of them.
        piece = self.values[start:stop, columns].rechunk(-1).to_delayed(optimize_graph=False).item()
        return delayed(ArrayRows)(piece, start, self.where, first_column=columns.start or 0)

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        return aligned(np.asarray(self.values[start:stop, columns].compute()))

    def fingerprint(self) -> dict[str, Any]:
        return anonymous(self) | {"stamp": self.values.name}  # Dask names graphs by what they compute


@dataclass(frozen=True)
class ZarrRows:
    """Rows of a Zarr array (v2 or v3).

    `count` rows are trusted: all of a foreign array, and what a dataset's own attribute vouches for.
    `whole` says that every chunk was written, so that a missing one is a loss and not the fill value.
    """

    array: zarr.Array[Any]
    where: str
    count: int
    name: str | None = None
    whole: bool = False
    names: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.array.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    @property
    def grain(self) -> int:
        return self.grid[0]

    @property
    def grid(self) -> tuple[int, int]:
        rows, columns = (min(pair) for pair in zip(self.array.chunks, self.array.shape, strict=True))
        return rows, columns

    def part(self, start: int, stop: int, columns: slice = EVERY) -> ZarrRows:
        return self

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        try:
            found = self.array[start:stop] if columns == EVERY else self.array[start:stop, columns]  # labels are (n,)
            return aligned(np.asarray(found))
        except MemoryError:
            raise
        except Exception as error:  # each codec raises its own kind when bytes do not decode
            raise CorruptionError(
                f"{self.where}: rows {start} to {stop - 1} cannot be read ({type(error).__name__}: {error}); "
                "restore this file or ingest the data again"
            ) from error

    @cached_property
    def _stored(self) -> dict[str, os.stat_result]:
        """Each stored chunk or shard with its file status; empty where the store is not a local folder."""
        if not isinstance(self.array.store, LocalStore):
            return {}
        root = Path(self.array.store.root) / self.array.path
        keys = {str(root / key): key for key in self._expected_keys()}
        found = {}
        for folder in {os.path.dirname(path) for path in keys}:
            if os.path.isdir(folder):
                for entry in os.scandir(folder):
                    if entry.path in keys:
                        found[keys[entry.path]] = entry.stat()
        return found

    def _expected_keys(self) -> list[str]:
        rows, columns = self.array.shards or self.array.chunks
        grid = math.ceil(self.count / rows), math.ceil(self.array.shape[1] / columns)
        return [self.array.metadata.encode_chunk_key(index) for index in np.ndindex(*grid)]

    def missing(self) -> list[int]:
        """First row of every stored chunk that should exist and does not; empty where stores cannot be listed."""
        if not isinstance(self.array.store, LocalStore):
            return []
        rows = (self.array.shards or self.array.chunks)[0]
        per_row = len(self._expected_keys()) // math.ceil(self.count / rows)
        return [i // per_row * rows for i, key in enumerate(self._expected_keys()) if key not in self._stored]

    def unstored(self, row: int, column: int) -> tuple[slice, slice] | None:
        """Rows and columns of the chunk or shard that holds an entry, if the store has none; None where it is there, or
        the store cannot be listed."""
        height, width = self.array.shards or self.array.chunks
        at = row // height, column // width
        if not isinstance(self.array.store, LocalStore) or self.array.metadata.encode_chunk_key(at) in self._stored:
            return None
        rows, columns = (
            slice(number * size, min(number * size + size, end))
            for number, size, end in zip(at, (height, width), self.shape, strict=True)
        )
        return rows, columns

    def check_whole(self) -> None:
        """Raise CorruptionError when a chunk is gone that was written, or whose fill value is NaN."""
        fill = self.array.fill_value
        if not self.whole and not (isinstance(fill, float | np.floating) and np.isnan(fill)):
            return
        if missing := self.missing():
            raise CorruptionError(
                f"{self.where}: {len(missing)} stored chunks are gone, the first holds row {missing[0]}; "
                "restore them or ingest the data again"
            )

    def fingerprint(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        if not isinstance(self.array.store, LocalStore):
            marks = version_marks(self.array)
            if marks is None:
                return ArrayRows(self.block(0, self.count)).fingerprint()
            digest.update("\n".join(marks).encode())
            return anonymous(self) | {"stamp": digest.hexdigest()}
        for key, status in sorted(self._stored.items()):
            digest.update(f"{key} {status.st_size} {status.st_mtime_ns}\n".encode())
        return anonymous(self) | {"path": os.path.abspath(self.where), "stamp": digest.hexdigest()}

    def __getstate__(self) -> dict[str, Any]:
        # What travels with every task: none needs the names, of which there may be thousands.
        return {key: value for key, value in self.__dict__.items() if key not in ("_stored", "names")}


@dataclass(frozen=True)
class NpyRows:
    """Rows of a .npy file, read with seek and read: mapped pages would count as resident memory.

    Trailing axes are flattened; row_shape keeps them.
    """

    path: Path
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    fortran: bool
    data_start: int  # bytes
    name: None = None
    names: None = None

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def grain(self) -> int:
        return power_of_two(2**16 // (self.shape[1] * self.dtype.itemsize))

    @property
    def grid(self) -> tuple[int, int]:
        return (_RUN_BYTES // self.dtype.itemsize, 1) if self.fortran else (1, 1)

    @classmethod
    def open(cls, path: Path) -> NpyRows:
        """Read the header; raises DataError for dtypes and shapes that cannot be rows."""
        with path.open("rb") as file:
            shape, fortran, dtype = read_npy_header(file, str(path))
            start = file.tell()
            needed = start + math.prod(shape) * dtype.itemsize
            if os.fstat(file.fileno()).st_size < needed:
                raise CorruptionError(f"{path} is truncated: {needed} bytes are needed, fewer are there")
        check_numeric(dtype, str(path))
        rows = check_shape((shape[0], math.prod(shape[1:])) if len(shape) > 1 else shape, str(path))
        return cls(path, rows, dtype, tuple(shape[1:]), fortran, start)

    def part(self, start: int, stop: int, columns: slice = EVERY) -> NpyRows:
        return self

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        d = self.shape[1]
        left, right, _ = columns.indices(d)
        with self.path.open("rb") as file:
            if self.fortran:
                return self._block_by_columns(file, start, stop, left, right)
            found = np.empty((stop - start, right - left), self.dtype)
            if right - left == d:
                self._read(file, start * d, found.reshape(-1))
            else:
                for i in range(start, stop):
                    self._read(file, i * d + left, found[i - start])
            return found

    def _block_by_columns(self, file: IO[bytes], start: int, stop: int, left: int, right: int) -> Array:
        n, d = self.shape
        flattened = len(self.row_shape) > 1  # so that columns are numbered in another order than they are stored
        first, last = (0, d) if flattened else (left, right)
        columns = np.empty((last - first, stop - start), self.dtype)
        for j in range(first, last):
            self._read(file, j * n + start, columns[j - first])
        if flattened:  # Fortran order holds the first trailing axis fastest
            columns = (
                columns.reshape(*self.row_shape[::-1], -1)
                .transpose(*range(len(self.row_shape) - 1, -1, -1), len(self.row_shape))
                .reshape(d, -1)
            )
        return np.ascontiguousarray(columns[left - first : right - first].T)

    def _read(self, file: IO[bytes], first: int, values: Array) -> None:
        """Fill the vector `values` with what the file holds from value `first` on."""
        file.seek(self.data_start + first * self.dtype.itemsize)
        if file.readinto(values.view(np.uint8)) != values.nbytes:  # type: ignore[attr-defined]
            raise CorruptionError(f"{self.path} ended early: was it truncated while it was read?")

    def fingerprint(self) -> dict[str, Any]:
        status = self.path.stat()
        stamp = f"{status.st_size} {status.st_mtime_ns}"
        return anonymous(self) | {"path": os.path.abspath(self.path), "stamp": stamp}


def read_npy_header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, Fortran order, dtype) of a .npy stream, which is left at its first value."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(file)
    except ValueError as error:
        raise DataError(f"{where} is not a .npy file: {error}") from error


def open_rows(data: Any, array: str | None = None) -> Rows:
    """Rows of whatever a user passes: an array, a frame, a Dask array or frame, a DataArray, a Zarr array, or a path.

    A Dask frame does not know how many rows its partitions have, so they are counted: one pass over its index. `array`
    names the array inside a Zarr group. Raises SpecError for what is not there or not a table, DataError for dtypes and
    shapes that cannot be rows, and columns of a frame that are no numbers, IncompleteError for a half-ingested dataset.
    """
    rows = _opened(data, array)
    check_numeric(rows.dtype, rows.where)
    check_shape(rows.shape, rows.where)
    if isinstance(rows, ZarrRows):
        rows.check_whole()
    return rows


def is_lazy(data: Any) -> bool:
    """Whether `data` is a path, an array of Dask or Zarr, a Dask frame, or a DataArray over Dask: its rows need not be
    in memory."""
    held = data.data if is_data_array(data) else data
    return isinstance(held, str | os.PathLike | da.Array | zarr.Array) or is_dask_frame(held)


def is_data_array(data: Any) -> bool:
    """Whether `data` is a DataArray of xarray, which who has one has imported."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(data, xarray.DataArray)


def is_dask_frame(data: Any) -> bool:
    """Whether `data` is a DataFrame of Dask, or a Series."""
    return is_dask_collection(data) and hasattr(data, "to_dask_array")


def frame_dtype(frame: Any) -> np.dtype[Any]:
    """The dtype of all columns of a Dask frame together. Raises DataError naming a column that holds no numbers."""
    if frame.ndim != 2:
        raise DataError(f"{FRAME} is a Series, one column: rows must be two-dimensional; give a frame, as df[['x']]")
    check_shape((1, len(frame.columns)), FRAME)
    found = []
    for name, dtype in frame.dtypes.items():
        own = getattr(dtype, "numpy_dtype", dtype)  # of pandas' nullable and of Arrow's numbers
        if not isinstance(own, np.dtype):  # of categories and dates with zones, whose kinds NumPy does not have
            own = np.dtype(object)
        check_numeric(own, f"column {name!r}")
        found.append(own if isinstance(dtype, np.dtype) or own.kind == "f" else np.dtype(np.float64))  # missing is NaN
    return np.result_type(*found)


def column_names(data: Any) -> tuple[str, ...] | None:
    """Names of the columns of a frame; None for anything else, and where some are no text, as scikit-learn has it."""
    names = tuple(data.columns) if _is_frame(data) or is_dask_frame(data) else ()
    return names if names and all(isinstance(name, str) for name in names) else None


def check_frame(data: Any) -> None:
    """Raise DataError naming the first column of a frame that cannot be numbers, SpecError for a lazy frame; nothing
    for what is no frame. Numbers kept as objects, text or categories pass, as with scikit-learn; dates do not."""
    if hasattr(data, "collect") and hasattr(data, "sink_parquet"):  # asked for its columns, it would warn
        raise SpecError(
            "a LazyFrame holds no rows yet: give what its collect() returns, or, where that does not fit in memory, "
            "write it with sink_parquet(FILE.parquet) and make a dataset of that with bigkpca ingest"
        )
    if not _is_frame(data):
        return
    for number, (name, dtype) in enumerate(zip(data.columns, data.dtypes, strict=True)):
        if not _is_number(dtype) and not _converts(data, number):
            raise DataError(
                f"the frame holds {dtype} values in column {number} ({name!r}): rows must be real numbers (integer, "
                "float or bool); leave it out, or encode it: text and categories as codes, dates as the time since one"
            )


def _is_frame(data: Any) -> bool:
    """Whether it is a frame of pandas or polars, or one like them."""
    return all(hasattr(data, name) for name in ("columns", "dtypes", "to_numpy"))


def _is_number(dtype: Any) -> bool:
    """Whether a dtype of pandas, which has a kind, or of polars is one of real numbers."""
    return dtype.kind in "buif" if hasattr(dtype, "kind") else dtype.is_numeric() or str(dtype) == "Boolean"


def _converts(frame: Any, number: int) -> bool:
    """Whether the values of a column that is not of numbers are numbers all the same."""
    values = np.asarray(frame.iloc[:, number] if hasattr(frame, "iloc") else frame.to_series(number))
    if values.dtype.kind in "mMc":  # of which NumPy makes numbers that say something else
        return False
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _frame_values(frame: Any) -> Array:
    values: Array = frame.to_numpy()
    if values.dtype.kind in "buif":
        return values
    # Columns of several types, and those of pandas that hold missing values, come as objects.
    return frame.astype(np.float64).to_numpy() if hasattr(frame, "astype") else values.astype(np.float64)


def _opened(data: Any, array: str | None) -> Rows:
    if isinstance(data, str | os.PathLike):
        return _path_rows(os.path.expanduser(os.fspath(data)), array)
    if is_data_array(data):
        return _opened(data.data, array)
    if is_dask_frame(data):
        return _frame_rows(data)
    if isinstance(data, da.Array):
        check_shape(data.shape, "the dask array")
        if any(math.isnan(length) for length in data.shape):
            raise SpecError("the dask array has unknown chunk sizes: call compute_chunk_sizes() on it first")
        return DaskRows(*optimize(data))
    if isinstance(data, zarr.Array):
        check_shape(data.shape, f"the zarr array {data.path}")
        return ZarrRows(data, _zarr_name(data), data.shape[0])
    if isinstance(data, ArrayRows | DaskRows | ZarrRows | NpyRows):
        return data
    check_frame(data)
    if _is_frame(data):
        values = _frame_values(data)
    else:
        values = data.to_numpy() if hasattr(data, "to_numpy") else np.asarray(data)
    check_shape(values.shape, "the array")
    return ArrayRows(values, names=column_names(data))


def _frame_rows(frame: Any) -> DaskRows:
    """Rows of a Dask frame, whose partitions are counted: one pass over its index."""
    dtype = frame_dtype(frame)
    lengths = tuple(int(length) for length in frame.index.map_partitions(len).compute())
    return DaskRows(frame.astype(dtype).to_dask_array(lengths=lengths), FRAME, names=column_names(frame))


def _zarr_name(array: zarr.Array[Any]) -> str:
    root = getattr(array.store, "root", None)
    return str(Path(root) / array.path) if root else f"the zarr array {array.path!r}"


def _path_rows(path: str, array: str | None) -> Rows:
    if "://" in path:
        raise SpecError(f"{path}: only local paths can be read so far")
    if not os.path.exists(path):
        if os.path.exists(os.path.normpath(path) + SCRATCH):
            raise IncompleteError(f"{path} is not finished: run the command that makes it again")
        raise SpecError(f"{path} does not exist")
    if path.endswith(".npy"):
        _check_unnamed(path, array)
        return NpyRows.open(Path(path).absolute())  # workers may run in another folder
    if os.path.isfile(path):
        raise SpecError(f"{path} is a file; make a dataset of it first: bigkpca ingest {path} DATASET.zarr")
    try:
        node = zarr.open(os.path.abspath(path), mode="r")
    except Exception as error:  # zarr raises several kinds for folders that hold no node
        raise SpecError(f"{path} is not a Zarr array or group, nor a .npy file") from error
    if isinstance(node, zarr.Array):
        _check_unnamed(path, array)
        check_shape(node.shape, path)
        return ZarrRows(node, path, node.shape[0])
    return _group_rows(path, node, array)


def _check_unnamed(path: str, array: str | None) -> None:
    """Raise SpecError where a name is given for the array at `path`, which is the only one there."""
    if array is not None:
        raise SpecError(f"{path} is one array, not a group that holds {array!r}: leave --array out (array= in Python)")


def _group_rows(path: str, group: zarr.Group, name: str | None) -> ZarrRows:
    about: Any = group.attrs.get(ATTRIBUTE, {})
    kind = about.get("format")
    if kind == "dataset":
        name = name or "x"
        if "rows" not in about:
            raise IncompleteError(f"{path}: its ingest did not finish; run the same bigkpca ingest command again")
    elif kind == "features":
        name = name or "scores"
    elif kind == "reconstruction":
        name = name or "x"
    node = group.get(name or "x")
    if node is None and name is None:
        arrays = dict(group.arrays())
        if len(arrays) != 1:
            raise SpecError(f"{path} holds the arrays {sorted(arrays)}: name one with --array (array= in Python)")
        ((name, node),) = arrays.items()
    if not isinstance(node, zarr.Array):
        raise SpecError(f"{path} holds no array {name!r}, but {sorted(key for key, _ in group.arrays())}")
    check_shape(node.shape, f"{path}/{name}")
    ours = kind == "dataset" and name == "x"
    names = tuple(about["column_names"]) if ours and "column_names" in about else None
    return ZarrRows(node, path, about["rows"] if ours else node.shape[0], name, whole=ours, names=names)


def take(rows: Rows, numbers: Array) -> Array:
    """Rows of the given ascending numbers, (m, d): reads each storage chunk that holds one of them once.

    Raises DataError naming the first row that holds NaN or infinity.
    """
    if isinstance(rows, ArrayRows):
        found = aligned(rows.values[numbers - rows.first])
    else:
        # One read for neighbouring chunks that all hold some of the rows, as long as it stays within 4 MB.
        chunks = numbers // rows.grain
        pieces = chunks // max(1, READ_BYTES // (rows.shape[1] * rows.dtype.itemsize * rows.grain))
        apart = (np.diff(chunks) > 1) | (np.diff(pieces) > 0)
        groups = np.split(numbers, np.flatnonzero(apart) + 1)
        found = np.concatenate([rows.block(int(g[0]), int(g[-1]) + 1)[g - g[0]] for g in groups])
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        for number, row in zip(numbers, found, strict=True):
            check_finite(row[None], int(number), rows.where, names=rows.names)
    return found


def tiles(rows: Rows, start: int, stop: int, tile_rows: int, digest: Any = None) -> Iterator[Array]:
    """Rows start..stop in tiles of `tile_rows`, counted from `start`; the last one is shorter.

    Reads pieces of whole storage chunks of at most 4 MB (or of one chunk, where that is larger), each chunk
    once; `start` is a multiple of `rows.grain`. Checks every row for NaN and infinity, and adds
    the little-endian values to `digest`.
    """
    row_bytes = rows.shape[1] * rows.dtype.itemsize
    # A power of two of rows, so that pieces of datasets of our own end where tiles end.
    step = max(1, power_of_two(READ_BYTES // row_bytes) // rows.grain) * rows.grain
    rest: Array | None = None
    for a in range(start, stop, step):
        X = rows.block(a, min(a + step, stop))
        check_finite(X, a, rows.where, names=rows.names)
        if digest is not None:
            digest.update(little_endian(X))
        if rest is not None:
            X = np.concatenate([rest, X])
        whole = len(X) if a + step >= stop else len(X) // tile_rows * tile_rows
        for b in range(0, whole, tile_rows):
            yield X[b : min(b + tile_rows, whole)]
        rest = X[whole:] if whole < len(X) else None


def little_endian(X: Array) -> memoryview:
    """The values of X in C order and little-endian, as bytes to hash."""
    return np.ascontiguousarray(X.astype(X.dtype.newbyteorder("<"), copy=False)).view(np.uint8).data
