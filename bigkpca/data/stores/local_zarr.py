"""Zarr's way to a local disk: its own store class, which reads no metadata larger than any that arrays need."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import Any

from bigkpca.data.stores.base import check_metadata, is_metadata


def local_place(path: str, read_only: bool = False) -> Any:
    """What Zarr opens or makes at a path."""
    return _kind()(path, read_only=read_only)


@lru_cache
def _kind() -> type[Any]:
    """The class, made when it is first needed: Zarr takes long to import."""
    from zarr.storage import LocalStore

    class Bounded(LocalStore):
        """A folder. Zarr reads a file of metadata whole, however large it is."""

        def __reduce__(self) -> Any:
            return local_place, (str(self.root), self.read_only)

        async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
            self._check(key)
            return await super().get(key, *arguments, **options)

        def get_sync(self, key: str, **options: Any) -> Any:
            self._check(key)
            return super().get_sync(key, **options)

        def _check(self, key: str) -> None:
            if is_metadata(key):
                path = f"{self.root}/{key}"
                with suppress(OSError):
                    check_metadata(path, os.stat(path).st_size)

    return Bounded
