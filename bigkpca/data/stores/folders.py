"""Zarr's store of local files. Importing it imports Zarr, which is slow."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from uuid import uuid4

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from bigkpca.data.stores.base import PARTIAL, check_metadata, is_metadata
from bigkpca.data.stores.durable import replacing


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
