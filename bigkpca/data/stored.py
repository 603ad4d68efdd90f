"""Stored Zarr arrays that are read as they were when they were listed.

Zarr treats a missing chunk file as a chunk that was never written, and returns fill values. So a file that is invisible
for a moment, on a network file system or on one of many workers, would become zeros. Here every chunk file that is read
must be the version that was listed when the array was opened, and if the array has digests of its rows, the decoded
values must match them.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import google_crc32c
import numpy as np
import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, StorePath

from bigkpca.data.retrying import changed, retried
from bigkpca.data.rows import EVERY, little_endian
from bigkpca.data.stores import NODE_FILES, StoredFile, root_url, store_of
from bigkpca.errors import Array, CorruptionError
from bigkpca.numerics.linalg import aligned

ANY_VERSION = ""  # version of a chunk file that must exist
UNKNOWN = "?"  # in a store that cannot be listed it is unknown whether a chunk file must exist


class Versions(dict[str, str | None]):
    """Versions of chunk files, by key; None if a chunk was not stored, and so represents the fill value.

    others: the version for keys that are not named.
    """

    def __init__(self, known: Mapping[str, str | None], others: str | None) -> None:
        super().__init__(known)
        self.others = others

    def __missing__(self, key: str) -> str | None:
        return self.others


ALL_THERE = Versions({}, ANY_VERSION)  # for an array whose chunks were all written


class Manifest(NamedTuple):
    """Where the digests of an array are stored, and the SHA-256 of that file: different content means a different
    array.

    publishing: whether a run was adding rows when it was read, or was interrupted while adding rows.
    """

    path: str
    sha256: str
    publishing: bool = False


class OtherValuesError(CorruptionError):
    """Stored values decode, but are not those that were written there (exit code 7)."""


@dataclass(frozen=True)
class Digests:
    """Digests of consecutive ranges of `rows` rows; the last range may have fewer.

    count: the number of all rows. of: for each range, from number `first` on, the digest of its values in little-endian
    order, as hexadecimal digits. algorithm: that of all digests.
    """

    rows: int
    count: int
    of: Sequence[str]
    algorithm: Literal["crc32c", "sha256"]
    first: int = 0

    def part(self, start: int, stop: int) -> Digests:
        """The digests of the ranges that contain rows start..stop."""
        first, last = start // self.rows, math.ceil(stop / self.rows)
        return replace(self, of=self.of[first - self.first : last - self.first], first=first)

    def around(self, start: int, stop: int) -> tuple[int, int]:
        """The rows of the ranges that contain rows start..stop."""
        return start // self.rows * self.rows, min(math.ceil(stop / self.rows) * self.rows, self.count)

    def other(self, values: Array, start: int) -> int | None:
        """The first row of the first range whose values have another digest; None if there is none. `values` are those
        of whole ranges, the first of which begins at row `start`."""
        digest = crc32c if self.algorithm == "crc32c" else sha256
        for at in range(0, len(values), self.rows):
            if digest(values[at : at + self.rows]) != self.of[(start + at) // self.rows - self.first]:
                return start + at
        return None


def crc32c(values: Array) -> str:
    """CRC-32C of values in little-endian order: 0.05 ms for a megabyte, a thirteenth of SHA-256."""
    # The library accepts arrays without a copy, though its documentation mentions only bytes.
    return f"{google_crc32c.value(np.frombuffer(little_endian(values), np.uint8)):08x}"


def sha256(values: Array) -> str:
    """SHA-256 of values in little-endian order."""
    return hashlib.sha256(little_endian(values)).hexdigest()


class _ChangedError(Exception):
    """A stored file is not the version that was listed."""


class _FailedError(Exception):
    """Reading a file failed with this error; codecs raise errors of the same classes for bytes that do not decode."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Pinned(Store):
    """A read-only store of the chunk files of one array, for one read of it.

    source: the path of the array's folder, or a user's store with the array's path in it. A key without a version
    cannot be read. sizes: compare only the sizes of files, since the digests of their values show the rest; on some
    network file systems modification times differ from one machine to another.
    """

    supports_writes = supports_deletes = supports_listing = False

    def __init__(self, source: str | tuple[Store, str], versions: Mapping[str, str | None], *, sizes: bool) -> None:
        super().__init__(read_only=True)
        self._source, self._versions, self._sizes = source, versions, sizes
        self._seen: dict[str, str] = {}

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        prototype = prototype or default_buffer_prototype()
        try:
            if isinstance(self._source, str):
                return await asyncio.to_thread(self._read, key, prototype, byte_range)
            store, path = self._source
            found = await store.get(f"{path}/{key}".lstrip("/"), prototype, byte_range)
            self._check(key, None if found is None else ANY_VERSION)
            return found
        except Exception as error:
            raise _FailedError(error) from error

    def _read(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None) -> Buffer | None:
        name = f"{self._source}/{key}"
        if self._versions[key] is None:
            self._check(key, ANY_VERSION if store_of(name).exists(name) else None)
            return None
        start, stop = 0, None
        match byte_range:
            case RangeByteRequest():
                start, stop = byte_range.start, byte_range.end
            case OffsetByteRequest():
                start = byte_range.offset
            case SuffixByteRequest():
                start = -byte_range.suffix
        content, file = store_of(name).read(name, start, stop)
        self._check(key, file.stamp)
        # The index of a shard is read before its chunks.
        if self._seen.setdefault(key, file.stamp) != file.stamp:
            raise OSError(errno.ESTALE, "It was written while it was being read", name)
        if not file.bytes:  # as a power failure may leave it; Zarr treats it as a chunk that was never written
            raise CorruptionError(f"{name} is empty; restore it or make the data again")
        return prototype.buffer.from_bytes(content)

    def _check(self, key: str, found: str | None) -> None:
        """Raise _ChangedError unless a file has the version that was listed, FileNotFoundError if it is gone."""
        listed = self._versions[key]
        if listed == UNKNOWN:
            return
        if found is None and listed is not None:
            raise FileNotFoundError(errno.ENOENT, "No such file", key)
        if listed is None and found is not None:
            raise _ChangedError(key)
        if listed and found and self._compared(listed) != self._compared(found):
            raise _ChangedError(key)

    def _compared(self, stamp: str) -> str:
        """The part of a stamp that is compared. Some servers put the tag of an object in quotes in some of their
        answers."""
        return stamp.partition(" ")[0] if self._sizes else stamp.replace('"', "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pinned) and (self._source, self._versions) == (other._source, other._versions)

    __hash__ = None  # type: ignore[assignment]

    async def get_partial_values(self, prototype: BufferPrototype, key_ranges: Any) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return self._versions[key] is not None

    def _unsupported(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    set = delete = list = list_prefix = list_dir = _unsupported


@dataclass(frozen=True)
class StoredArray:
    """A Zarr array, (n,) or (n, d), that is read as it was listed.

    versions: those of the chunk files that may be read. digests: those of its rows, if known, and the manifest that
    contains them. count: number of its rows; more may be stored.
    """

    array: zarr.Array[Any]
    where: str
    count: int
    versions: dict[str, str | None]
    digests: Digests | None = None
    manifest: Manifest | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.array.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    @property
    def ndim(self) -> int:
        return len(self.array.shape)

    def while_growing(self) -> StoredArray:
        """The same rows, while others may add more to the files in which they end."""
        height, versions = (self.array.shards or self.array.chunks)[0], copy(self.versions)
        last = chunk_keys(self.array, self.count - 1, self.count) if self.count % height else ()
        versions |= {key: ANY_VERSION for key in last if key in versions}
        return replace(self, versions=versions)

    def part(self, start: int, stop: int, columns: slice = EVERY) -> StoredArray:
        """The array for a task that reads only these rows and columns, without data about others."""
        digests = self.digests and self.digests.part(start, stop)
        if digests is not None:
            columns = EVERY
        keys = chunk_keys(self.array, start, stop, columns)
        return replace(self, versions={key: self.versions[key] for key in keys}, digests=digests)

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.count)
        return self.read(start, stop)

    def read(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        """Rows start..stop, and columns columns.start..columns.stop of them, aligned. Reads whole ranges of rows that
        have a digest. Retries after errors that may be temporary. Raises CorruptionError if a chunk is missing, does
        not decode or has another digest, IncompleteError if the array was written again since it was opened."""
        return retried(lambda: self._read(start, stop, columns), self.where, CorruptionError)

    def _read(self, start: int, stop: int, columns: slice) -> Array:
        try:
            if self.digests is None:
                return self._decoded(start, stop, columns)
            first, last = self.digests.around(start, stop)
            found = self._decoded(first, last, EVERY)
            if (row := self.digests.other(found, first)) is not None:
                end = self.digests.around(row, row + 1)[1]
                raise OtherValuesError(
                    f"{self.where}: rows {row} to {end - 1} are not the values that were written there; restore this "
                    "file or make the data again"
                )
            found = found[start - first : stop - first]
            return found if columns == EVERY else aligned(found[:, columns])
        except (CorruptionError, FileNotFoundError) as error:
            if self.manifest is not None:
                with suppress(OSError):  # a disk that is absent for the moment
                    content, _ = store_of(self.manifest.path).read(self.manifest.path)
                    # Another array took the place of this one, or rows are being added to it.
                    if self.manifest.publishing or hashlib.sha256(content).hexdigest() != self.manifest.sha256:
                        raise changed(self.where) from error
            raise

    def _decoded(self, start: int, stop: int, columns: slice) -> Array:
        source: Any = array_path(self.array) or (self.array.store, self.array.path)
        pinned = StorePath(_Pinned(source, self.versions, sizes=self.digests is not None))
        array: Any = zarr.Array(zarr.AsyncArray(self.array.metadata, pinned))
        try:
            found = array[start:stop] if columns == EVERY else array[start:stop, columns]
            return aligned(np.asarray(found))
        except Exception as raised:  # each codec raises its own type when bytes do not decode
            error: BaseException = raised
            while isinstance(error, BaseExceptionGroup):  # Zarr reads several ranges of a file at once
                error = error.exceptions[0]
        # Raised after that block: within it, the wrapper would become the context of the error that it wraps, and
        # Dask's workers cannot send such a cycle.
        if isinstance(error, _FailedError):
            if isinstance(error.error, _ChangedError):
                raise changed(self.where) from error
            raise error.error
        if isinstance(error, MemoryError):
            raise error
        raise CorruptionError(
            f"{self.where}: rows {start} to {stop - 1} cannot be read ({type(error).__name__}: {error}); "
            "restore this file or make the data again"
        ) from error


def writing_empty_chunks(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The same array, which also writes chunks that contain only the fill value: Zarr does not store this setting, so
    it is lost when the array is opened again."""
    metadata: Any = array.metadata  # whose types have two versions
    return zarr.Array(zarr.AsyncArray(metadata, array.store_path, {"write_empty_chunks": True}))


def chunk_keys(array: zarr.Array[Any], start: int, stop: int, columns: slice = EVERY) -> Iterator[str]:
    """The keys of the chunk files, or shards, that contain rows start..stop and these columns."""
    sizes = array.shards or array.chunks
    along = [range(start // sizes[0], (stop - 1) // sizes[0] + 1)]
    for length, size in zip(array.shape[1:], sizes[1:], strict=True):
        left, right, _ = columns.indices(length)
        along.append(range(left // size, (right - 1) // size + 1))
    return (array.metadata.encode_chunk_key(index) for index in itertools.product(*along))


def files_below(folder: str) -> Mapping[str, StoredFile]:
    """The files in the folder of an array or group, by their names from there. Retries after errors that may be
    temporary."""

    def listed() -> Mapping[str, StoredFile]:
        found = store_of(folder).files(folder)
        if not found.keys() & NODE_FILES:  # which were read when it was opened
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", folder)
        return found

    return retried(listed, folder)


def versions_of(array: zarr.Array[Any], files: Mapping[str, StoredFile] | None = None) -> Versions:
    """The versions of all chunk files of an array, as they are now, or in this listing of `files_below`; for stores
    without versions, only which files exist, if even that."""
    if (path := array_path(array)) is not None:
        found = files_below(path) if files is None else files
        return Versions({key: file.stamp for key, file in found.items()}, None)
    if array.store.supports_listing:
        names = sync(_names(array.store, array.path))
        if names.intersection(NODE_FILES):  # otherwise this store cannot really list, as over HTTP
            return Versions(dict.fromkeys(names, ANY_VERSION), None)
    return Versions({}, UNKNOWN)


async def _names(store: Store, path: str) -> set[str]:
    """The keys below a path in a store, from there on."""
    prefix = f"{path}/" if path else ""
    return {key.removeprefix(prefix) async for key in store.list_prefix(prefix)}


def array_path(array: zarr.Array[Any] | zarr.Group) -> str | None:
    """The path of the folder of an array or a group; None if its store is not one of `store_of`."""
    root = array.store.root if isinstance(array.store, LocalStore) else root_url(array.store)
    return None if root is None else f"{root}/{array.path}".rstrip("/")
