"""Zarr's way into an object store: its own store class, with our clients and our errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import lru_cache
from typing import Any

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

    class BelowKey(ObjectStore[Any]):
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

        def with_read_only(self, read_only: bool = False) -> Any:
            return _zarr_store(*self._made_of, read_only)

        def _told(self, key: str = "") -> Any:
            return told(f"{self.bigkpca_url}/{key}")

        async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
            with self._told(key):
                return await super().get(key, *arguments, **options)

        async def get_partial_values(self, *arguments: Any, **options: Any) -> Any:
            with self._told():
                return await super().get_partial_values(*arguments, **options)

        async def exists(self, key: str) -> bool:
            with self._told(key):
                return await super().exists(key)

        async def set(self, key: str, value: Any) -> None:
            with self._told(key):
                await super().set(key, value)

        async def set_if_not_exists(self, key: str, value: Any) -> None:
            with self._told(key):
                await super().set_if_not_exists(key, value)

        async def delete(self, key: str) -> None:
            with self._told(key):
                await super().delete(key)

        async def getsize(self, key: str) -> int:
            with self._told(key):
                return await super().getsize(key)

        def list_prefix(self, prefix: str) -> AsyncGenerator[str, None]:
            return self._listed(prefix, super().list_prefix(prefix))

        def list_dir(self, prefix: str) -> AsyncGenerator[str, None]:
            return self._listed(prefix, super().list_dir(prefix))

        async def _listed(self, prefix: str, names: AsyncIterator[str]) -> AsyncGenerator[str, None]:
            with self._told(prefix):
                async for name in names:
                    yield name

    return BelowKey
