"""Stores of Zarr for the paths of bigkpca, and a store of which every chunk must be there."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any
from uuid import uuid4

from zarr.abc.store import ByteRequest, RangeByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore, ObjectStore, WrapperStore

from bigkpca.data.stores import MOST_JSON_BYTES, is_url, store_of
from bigkpca.data.stores.base import PARTIAL, address, check_metadata, is_metadata
from bigkpca.data.stores.clients import client, plain_errors
from bigkpca.data.stores.local import replacing


def zarr_store(path: str) -> FolderStore | BelowKey:
    """The object that Zarr opens or creates as the group or array at `path`."""
    return BelowKey(path) if is_url(path) else FolderStore(store_of(path).absolute(path))


class FolderStore(LocalStore):
    """The files of a folder. A file that is there is replaced by one that survives a power failure: rows that were
    published are in it if others are added to its chunk. New files are forced to disk by `sync`, many at once."""

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        if is_metadata(key):
            with suppress(OSError):
                check_metadata(f"{self.root}/{key}", (self.root / key).stat().st_size)
        return await super().get(key, *arguments, **options)

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if (self.root / key).exists():
            await asyncio.to_thread(self._replace, str(self.root / key), value)
        else:
            await super().set(key, value)

    def _replace(self, path: str, value: Buffer) -> None:
        with replacing(path, f"{path}.{uuid4().hex}{PARTIAL}") as file:  # others may write the same at this moment
            file.write(value.as_buffer_like())


class BelowKey(ObjectStore):  # type: ignore[type-arg]  # older ones take no arguments
    """The objects below a key, with errors in plain words. Pickles contain its URL, and no client or credential."""

    def __init__(self, url: str, read_only: bool = False) -> None:
        at = address(url)
        super().__init__(client(at.scheme, at.bucket, at.key), read_only=read_only)
        self.url = at.url

    def __reduce__(self) -> Any:
        return BelowKey, (self.url, self.read_only)

    def __str__(self) -> str:
        return self.url

    async def get(self, key: str, prototype: Any, byte_range: ByteRequest | None = None) -> Any:
        if byte_range is not None or not is_metadata(key):
            return await super().get(key, prototype, byte_range)
        found = await super().get(key, prototype, RangeByteRequest(0, MOST_JSON_BYTES + 1))
        if found is not None:
            check_metadata(f"{self.url}/{key}", len(found))
        return found

    def with_read_only(self, read_only: bool = False) -> BelowKey:
        return BelowKey(self.url, read_only)


def _asking(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a store with errors in plain words."""

    @wraps(method)
    async def asked(self: BelowKey, *arguments: Any, **options: Any) -> Any:
        with plain_errors(_named(self, arguments)):
            return await method(self, *arguments, **options)

    return asked


def _listing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Like `_asking`, for a method that yields names."""

    @wraps(method)
    async def listed(self: BelowKey, *arguments: Any) -> AsyncGenerator[str, None]:
        with plain_errors(_named(self, arguments)):
            async for name in method(self, *arguments):
                yield name

    return listed


def _named(store: BelowKey, arguments: tuple[Any, ...]) -> str:
    """The URL that a request is about, for messages."""
    key = arguments[0] if arguments and isinstance(arguments[0], str) else ""
    return f"{store.url}/{key}".rstrip("/")


for _name in ("get", "get_partial_values", "exists", "getsize", "set", "set_if_not_exists", "delete", "delete_dir"):
    setattr(BelowKey, _name, _asking(getattr(BelowKey, _name)))
for _name in ("list", "list_prefix", "list_dir"):
    setattr(BelowKey, _name, _listing(getattr(BelowKey, _name)))


class Whole(WrapperStore[Any]):
    """A store of which every chunk must be there: Zarr itself reads a missing one as fill values, such as one that is
    invisible on one of many machines."""

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return self._there(key, await self._store.get(key, prototype or default_buffer_prototype(), byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        asked = list(key_ranges)
        found = await self._store.get_partial_values(prototype, asked)
        return [self._there(key, each) for (key, _), each in zip(asked, found, strict=True)]

    def __str__(self) -> str:
        return str(self._store)

    def _there(self, key: str, found: Buffer | None) -> Buffer | None:
        if not found and not is_metadata(key):  # missing, or empty, as a full disk may leave it
            root = self._store.root if isinstance(self._store, LocalStore) else self._store
            raise FileNotFoundError(errno.ENOENT, "No such file", f"{root}/{key}")
        return found
