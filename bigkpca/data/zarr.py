"""Rows of Zarr arrays. A chunk that should be stored and is not is an error, never fill values."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import zarr
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, ObjectStore, StorePath, ZipStore

from bigkpca.data.blocks import Block
from bigkpca.data.frames import check_encoding
from bigkpca.data.rows import Rows, anonymous, check_shape, digest_of_rows
from bigkpca.data.stores import NODE_FILES, StoredFile, last_name, parent, store_of
from bigkpca.data.zarr_stores import BelowKey, Whole, zarr_store
from bigkpca.errors import Array, BigKPCAError, CorruptionError, FillValuesWarning, SpecError, unreadable, warn
from bigkpca.numerics.linalg import aligned
from bigkpca.numerics.moments import OneHot

ATTRIBUTE = "bigkpca"  # bigkpca's only key in the attributes of a Zarr group
MAIN = {"dataset": "x", "features": "scores", "reconstruction": "x"}  # kinds of groups of rows: the main array of each
Stored = zarr.Array[Any]  # as results on disk are given to users


def whole(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The same array, of which every chunk must be stored."""
    if isinstance(array.store, Whole):
        return array
    metadata: Any = array.metadata  # whose types have two versions
    return zarr.Array(zarr.AsyncArray(metadata, StorePath(Whole(array.store), array.path)))


def read(array: zarr.Array[Any], where: str, start: int, stop: int) -> Array:
    """Rows start..stop of an array, aligned. Raises CorruptionError for damage, IncompleteError for what may pass."""
    try:
        return aligned(np.asarray(array[start:stop]))
    except Exception as raised:  # each codec raises its own type when bytes do not decode
        error = raised
        while isinstance(error, ExceptionGroup):  # of several chunks that are read at once
            error = error.exceptions[0]
        if isinstance(error, MemoryError | BigKPCAError):
            raise error from None
        if isinstance(error, OSError) and error.errno is not None:  # others are those of decompressors
            raise unreadable(error, where) from error
        raise CorruptionError(
            f"{where}: rows {start} to {stop - 1} cannot be read ({type(error).__name__}: {error}); restore this file "
            "or make the data again"
        ) from error


@dataclass(frozen=True)
class ZarrRows(Rows):
    """Rows of a Zarr array (v2 or v3).

    `count` rows are read: all of a foreign array, and those that its manifest names for an array of bigkpca. Other
    processes may add rows after those that are `pinned`, even in the last chunk of these, whose values stay the same.
    """

    array: zarr.Array[Any]
    count: int
    pinned: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.array.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    @property
    def grain(self) -> int:
        return max(1, min(self.array.chunks[0], self.array.shape[0]))

    def part(self, start: int, stop: int) -> ZarrRows:
        return replace(self, names=None, one_hot=(), weights=self._weights_of(start, stop))

    def block(self, start: int, stop: int) -> Array:
        return read(self.array, self.where, start, stop)

    @property
    def group(self) -> str | None:
        """The path of the group that contains the array; None if there is none."""
        path = array_path(self.array)
        return parent(path) if path is not None and isinstance(open_node(parent(path)), zarr.Group) else None

    def pin(self, count: int) -> ZarrRows:
        """The first `count` rows, which stay the same while other processes append to the array. If all of their chunks
        are stored, each must be there whenever it is read."""
        stored = self.stored  # which is not listed again
        if stored is not None:
            stored = {key: stored[key] for key in chunk_keys(self.array, count, stored)}
        return self.changed(count=count, pinned=True, stored=stored).guarded()

    def guarded(self) -> ZarrRows:
        """These rows. If all of their chunks are stored, each must be there whenever it is read."""
        if self.missing() or not self.array.store.supports_listing:
            return self
        return self.changed(array=whole(self.array))

    @cached_property
    def stored(self) -> Mapping[str, StoredFile] | None:
        """The stored chunks, or shards, of these rows by key; None if the store cannot be listed. Sizes and stamps are
        known in the stores of paths only."""
        folder, prefix = array_path(self.array), f"{self.array.path}/" if self.array.path else ""

        async def listed() -> dict[str, StoredFile]:
            return {key.removeprefix(prefix): StoredFile(1, "") async for key in self.array.store.list_prefix(prefix)}

        if folder is None and not self.array.store.supports_listing:
            return None
        files = sync(listed()) if folder is None else store_of(folder).files(folder)
        return {key: files[key] for key in chunk_keys(self.array, self.count, files) if files[key].bytes}

    def missing(self) -> int:
        """Number of chunks, or shards, that are not stored; 0 if the store cannot be listed."""
        return 0 if self.stored is None else math.prod(_grid(self.array, self.count)) - len(self.stored)

    def stored_rows(self, known: int = 0) -> int:
        """The rows before the first chunk or shard after `known` rows that is not stored: programs that append may not
        have written it yet."""
        if self.stored is None:
            return self.count
        for row in range(known // self._height, math.ceil(self.count / self._height)):
            if any(key not in self.stored for key in self._keys(row)):
                return max(known, row * self._height)
        return self.count

    def room_in_last_chunk(self, known: int) -> bool:
        """Whether rows after the first `known` ones share a chunk with these."""
        return known % self._height > 0 and known < self.count

    def chunk_stamps(self, row: int) -> list[str]:
        """The stamps of the chunks that hold a row; empty texts for those that are not stored."""
        stored = self.stored or {}
        return [stored[key].stamp if key in stored else "" for key in self._keys(row // self._height)]

    @property
    def _height(self) -> int:
        """Rows of a stored chunk, or shard."""
        height: int = (self.array.shards or self.array.chunks)[0]
        return height

    def _keys(self, row: int) -> list[str]:
        """The keys of one row of chunks."""
        across = _grid(self.array, self.count)[1]
        return [self.array.metadata.encode_chunk_key((row, at)) for at in range(across)]

    def fingerprint(self) -> dict[str, Any]:
        """See `Rows`. Of pinned rows that end within a chunk, the values in it count, and not its file."""
        if array_path(self.array) is None:
            return anonymous(self) | {"stamp": _stamp(self.array) or digest_of_rows(self, Block(0, 0, self.count))}
        digest = hashlib.sha256()
        last = self.count // self._height if self.pinned and self.count % self._height else None
        for key, file in sorted((self.stored or {}).items()):
            if int(re.findall("[0-9]+", key)[-2]) != last:
                digest.update(f"{key} {file.stamp}\n".encode())
        if last is not None:
            digest.update(digest_of_rows(self, Block(0, last * self._height, self.count)).encode())
        return anonymous(self) | {"path": store_of(self.where).absolute(self.where), "stamp": digest.hexdigest()}

    def __getstate__(self) -> dict[str, Any]:
        # Sent with tasks, which need neither the names of all columns nor the listing of all chunks.
        return {key: value for key, value in self.__dict__.items() if key not in ("names", "stored")} | {"names": None}


@dataclass(frozen=True)
class StoredArray:
    """The first `count` values (n,) of an array, one for each row, which are read in ranges."""

    array: zarr.Array[Any]
    where: str
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.array.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    @property
    def ndim(self) -> int:
        return len(self.array.shape)

    @property
    def chunk(self) -> tuple[int, ...]:
        """The shape of a stored chunk, or shard."""
        found: tuple[int, ...] = self.array.shards or self.array.chunks
        return found

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.count)
        return read(self.array, self.where, start, stop)

    def first(self, count: int) -> StoredArray:
        """The first `count` values. Those of others are read as rows of others are."""
        if isinstance(self.array.store, Whole):
            return replace(self, count=count)
        return replace(self, count=count, array=_as_stored(ZarrRows(self.array, count, where=self.where)).array)


def stored_array(array: zarr.Array[Any], where: str, group: zarr.Array[Any] | zarr.Group | None = None) -> StoredArray:
    """The values of an array, which may be in a group: as many as the manifest of that names, or all of others."""
    about = group.attrs.get(ATTRIBUTE) if isinstance(group, zarr.Group) else None
    if isinstance(about, dict) and last_name(where) in named_arrays(about):
        return StoredArray(whole(array), where, rows_of_manifest(parent(where), about, array))
    return StoredArray(array, where, array.shape[0])


def zarr_rows(array: zarr.Array[Any], where: str, name: str | None = None) -> ZarrRows:
    """Rows of an array that others wrote. Raises DataError for packed numbers and fill values."""
    check_shape(array.shape, where)
    attributes = array.attrs.asdict()
    if array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes:  # where xarray takes both for one
        attributes = {"_FillValue": array.fill_value, **attributes}
    path = array_path(array) or f"PATH/{array.path}"
    check_encoding(attributes, where, f"xarray.open_zarr({parent(path)!r})[{last_name(path)!r}]")
    return _as_stored(ZarrRows(array, array.shape[0], where=where, name=name))


def _as_stored(rows: ZarrRows) -> ZarrRows:
    """Rows that others wrote. If all of their chunks are stored, each of them must be there whenever it is read;
    otherwise a warning says how many are not, which are fill values as Zarr defines."""
    if missing := rows.missing():
        fill = rows.array.fill_value
        warn(
            f"{rows.where}: {missing:,} of its chunks are not stored, so their values are the fill value {fill}",
            FillValuesWarning,
        )
    return rows.guarded()


def _grid(array: zarr.Array[Any], count: int) -> tuple[int, ...]:
    """Number of chunks, or shards, of the first `count` rows along each axis."""
    lengths = zip((count, *array.shape[1:]), array.shards or array.chunks, strict=True)
    return tuple(math.ceil(length / size) for length, size in lengths)


def chunk_keys(array: zarr.Array[Any], count: int, keys: Iterable[str]) -> list[str]:
    """Those of the keys that are chunks, or shards, of the first `count` rows."""
    # Of existing files, and not of expected ones: an array may claim any number of chunks.
    grid, found = _grid(array, count), []
    for key in keys:
        index = tuple(int(digits) for digits in re.findall("[0-9]+", key)[-len(grid) :] if len(digits) < 20)
        inside = len(index) == len(grid) and all(at < end for at, end in zip(index, grid, strict=True))
        if inside and array.metadata.encode_chunk_key(index) == key:
            found.append(key)
    return found


def group_rows(path: str, group: zarr.Group, name: str | None) -> ZarrRows:
    """Rows of the array `name` of a group; by default of its main array, or of its only one."""
    about: Any = group.attrs.get(ATTRIBUTE, {})
    kind = str(about.get("format")) if isinstance(about, dict) else ""
    if kind == "model":
        raise SpecError(f"{path} is a bigkpca model, not rows: pass a dataset, an array, or scores")
    name = name or MAIN.get(kind)
    node = member(group, path, name or "x")
    if node is None and name is None:
        arrays = arrays_of(group, path)
        if len(arrays) != 1:
            raise SpecError(f"{path} contains the arrays {list(arrays)}: pass the path of one, as in {path}/NAME")
        ((name, node),) = arrays.items()
    if not isinstance(node, zarr.Array):
        raise lacking(group, path, name or "x")
    if kind not in MAIN or name not in named_arrays(about):
        return zarr_rows(node, path, name)
    check_shape(node.shape, f"{path}/{name}")
    count = rows_of_manifest(path, about, node)
    names, one_hot = _columns(path, about, node.shape[1]) if kind == "dataset" and name == "x" else (None, ())
    rows = ZarrRows(whole(node), count, pinned=True, where=path, name=name, names=names, one_hot=one_hot)
    if missing := rows.missing():
        raise CorruptionError(
            f"{path}: {missing:,} stored chunks are missing, the first with row {rows.stored_rows()}; restore them or "
            "make the data again"
        )
    return rows


def lacking(group: zarr.Group, path: str, name: str) -> SpecError:
    """The error for a group at `path` without an array of this name."""
    return SpecError(f"{path} does not contain an array {name!r}, but {list(arrays_of(group, path))}")


def member(group: zarr.Group, path: str, name: str) -> Any:
    """The array or group of this name in the group at `path`; None if there is none."""
    with _parsed(f"{path}/{name}", "is not an array that can be read"):
        return group.get(name)


def arrays_of(group: zarr.Group, path: str) -> dict[str, zarr.Array[Any]]:
    """The arrays in the group at `path`, by name."""
    with _parsed(path, "contains an array that cannot be read"):
        return dict(sorted(group.arrays()))


@contextmanager
def _parsed(path: str, told: str) -> Iterator[None]:
    """Raises CorruptionError for metadata that cannot be parsed, and the errors of `unreadable`."""
    try:
        yield
    except BigKPCAError:
        raise
    except OSError as error:
        raise unreadable(error, path) from error
    except Exception as error:  # zarr raises several types
        raise CorruptionError(f"{path} {told} ({error}); restore it") from error


def named_arrays(about: Mapping[str, Any]) -> set[str]:
    """The arrays of one value or row for each row that the manifest of a group stands for."""
    given = about.get("arrays")
    return {str(each) for each in given} if isinstance(given, list) else set()


def rows_of_manifest(path: str, about: Mapping[str, Any], array: zarr.Array[Any]) -> int:
    """The number of rows that a manifest names. Raises CorruptionError if the array has fewer."""
    rows = about.get("rows")
    if type(rows) is not int or not 0 < rows <= array.shape[0]:
        raise CorruptionError(
            f"{path} claims to have {rows!r:.80} rows, but its array {last_name(array.path or path)} has "
            f"{array.shape[0]}; restore it or make the data again"
        )
    return rows


def _columns(path: str, about: Mapping[str, Any], width: int) -> tuple[tuple[str, ...] | None, tuple[OneHot, ...]]:
    """The names of the columns of a dataset, and its columns of categories."""
    columns, one_hot = about.get("column_names"), _one_hot(path, about.get("encoding"), width)
    if columns is None:
        return None, one_hot
    if not isinstance(columns, list) or len(columns) != width or not all(isinstance(each, str) for each in columns):
        raise CorruptionError(f"{path}: its column names are {columns!r:.80}, for {width} columns; ingest it again")
    return tuple(columns), one_hot


def _one_hot(path: str, encoding: Any, width: int) -> tuple[OneHot, ...]:
    """The columns of categories of a dataset of `width` columns. Raises CorruptionError for a damaged encoding."""
    if encoding is None:
        return ()
    found, at = [], 0
    try:
        for column in encoding["columns"]:
            category = column["kind"] == "category"
            stop = at + (len(column["categories"]) if category else column["length"])
            if category:
                found.append(OneHot(column["name"], at, stop))
            at = stop
    except (TypeError, KeyError) as error:
        raise CorruptionError(f"{path}: its encoding of columns is damaged; ingest it again") from error
    if at != width:
        raise CorruptionError(f"{path} describes {at} columns, and has {width}; ingest it again")
    return tuple(found)


def open_node(path: str) -> zarr.Array[Any] | zarr.Group | None:
    """The Zarr array or group at a path, to be read; None if there is none."""
    with _parsed(path, "cannot be read"):
        try:
            node = zarr.open(zarr_store(path), mode="r")
        except FileNotFoundError:
            return None
        except (BigKPCAError, OSError):
            raise
        except Exception:  # zarr raises several types, also where there is nothing
            if any(store_of(path).exists(f"{path}/{name}") for name in NODE_FILES):
                raise
            return None
    if isinstance(node, zarr.Group) and ATTRIBUTE in node.attrs:
        # Arrays that others put beside those of bigkpca are not among the metadata that its manifest repeats.
        metadata = replace(node.metadata, consolidated_metadata=None)
        return zarr.Group(zarr.AsyncGroup(metadata, node.store_path))
    return node


def open_array(path: str) -> zarr.Array[Any]:
    """The array at a path, to be read. Raises CorruptionError if there is none."""
    node = open_node(path)
    if not isinstance(node, zarr.Array):
        raise CorruptionError(f"{path} is not an array that can be read; restore it")
    return node


def array_path(array: zarr.Array[Any] | zarr.Group) -> str | None:
    """The path of the folder of an array or a group; None if its store is not one of `store_of`."""
    store = _store_of(array)
    if not isinstance(store, LocalStore | BelowKey):
        return None
    root = store.root if isinstance(store, LocalStore) else store.url
    return f"{root}/{array.path}".rstrip("/")


def _store_of(array: zarr.Array[Any] | zarr.Group) -> Any:
    return array.store._store if isinstance(array.store, Whole) else array.store


# The names that file systems use for the version of a file.
_MARKS = "ETag", "etag", "e_tag", "md5Hash", "checksum", "mtime", "LastModified", "last_modified", "updated", "created"


def _stamp(array: zarr.Array[Any]) -> str | None:
    """A stamp of the files in a user's own store, which changes with each of them; for a zip file, its own. None if
    there is no tag or time for every file. Reads no values."""
    store, found = _store_of(array), []
    if isinstance(store, ZipStore):
        return hashlib.sha256(store_of(str(store.path)).file(str(store.path)).stamp.encode()).hexdigest()
    if isinstance(store, FsspecStore):
        found = list(sync(store.fs._find(f"{store.path}/{array.path}".rstrip("/"), detail=True)).values())
    if isinstance(store, ObjectStore):
        found = [meta for batch in store.store.list(array.path or None) for meta in batch]
    known = bool(found) and all(any(each.get(mark) is not None for mark in _MARKS) for each in found)
    return hashlib.sha256("\n".join(sorted(map(str, found))).encode()).hexdigest() if known else None
