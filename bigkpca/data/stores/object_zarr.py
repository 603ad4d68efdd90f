"""Zarr's way into an object store: its own store class, with our clients and our errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import lru_cache, wraps
from typing import Any

from bigkpca.data.stores import leases
from bigkpca.data.stores.base import check_metadata, is_metadata
from bigkpca.data.stores.clients import client, told
from bigkpca.data.stores.urls import Address


def zarr_place(scheme: str, bucket: str, key: str) -> Any:
    """What Zarr opens or makes at a key: it sees what is below that key only, and makes no groups above it."""
    return _zarr_store(scheme, bucket, key, False)


def _zarr_store(scheme: str, bucket: str, key: str, read_only: bool) -> Any:
    return _kind()(scheme, bucket, key, read_only)


def root_url(store: Any) -> str | None:
    """The URL of what a Zarr store of ours holds; None for other stores."""
    return getattr(store, "bigkpca_url", None)


@lru_cache
def _kind() -> type[Any]:
    """The class, made when it is first needed: Zarr takes long to import."""
    from zarr.storage import ObjectStore

    class BelowKey(ObjectStore):  # type: ignore[type-arg]  # older ones take no arguments
        """The keys below one. It is pickled as its name, so that no client or credential travels."""

        def __init__(self, scheme: str, bucket: str, key: str, read_only: bool) -> None:
            super().__init__(client(scheme, bucket, key), read_only=read_only)
            self.bigkpca_url = Address(scheme, bucket, key).url
            self._made_of = scheme, bucket, key

        def __reduce__(self) -> Any:
            return _zarr_store, (*self._made_of, self.read_only)

        def __str__(self) -> str:
            return self.bigkpca_url

        def __eq__(self, other: object) -> bool:
            return isinstance(other, BelowKey) and self.__reduce__() == other.__reduce__()

        __hash__ = None  # type: ignore[assignment]

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            if is_metadata(key) and byte_range is None:  # which would be read whole, however large it is
                try:
                    size = (await self.store.head_async(key))["size"]
                except FileNotFoundError:
                    return None
                check_metadata(f"{self.bigkpca_url}/{key}", size)
            return await super().get(key, prototype, byte_range)

        def with_read_only(self, read_only: bool = False) -> Any:
            return _zarr_store(*self._made_of, read_only)

    for name in ("get", "get_partial_values", "exists", "getsize"):
        setattr(BelowKey, name, _told_of(getattr(BelowKey, name), changes=False))
    for name in ("set", "set_if_not_exists", "delete", "delete_dir"):
        setattr(BelowKey, name, _told_of(getattr(ObjectStore, name), changes=True))
    for name in ("list", "list_prefix", "list_dir"):
        setattr(BelowKey, name, _told_of_names(getattr(ObjectStore, name)))
    return BelowKey


def _told_of(method: Callable[..., Any], *, changes: bool) -> Callable[..., Any]:
    """A method of a Zarr store with errors in our words; one that changes something also looks at the lease."""

    @wraps(method)
    async def asked(self: Any, *arguments: Any, **options: Any) -> Any:
        url = _named(self, arguments)
        if changes:
            leases.look(url)
        with told(url):
            return await method(self, *arguments, **options)

    return asked


def _told_of_names(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a Zarr store that yields names, with errors in our words."""

    @wraps(method)
    async def listed(self: Any, *arguments: Any) -> AsyncGenerator[str, None]:
        with told(_named(self, arguments)):
            async for name in method(self, *arguments):
                yield name

    return listed


def _named(store: Any, arguments: tuple[Any, ...]) -> str:
    """The URL that a request is about, for messages."""
    key = arguments[0] if arguments and isinstance(arguments[0], str) else ""
    return f"{store.bigkpca_url}/{key}".rstrip("/")
