"""What tells whether a stored Zarr array changed, where it is not a local folder, without reading it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import zarr
from zarr.core.sync import sync
from zarr.storage import FsspecStore, ObjectStore, ZipStore

# What file systems call the mark of a version of a file, the most telling one first.
_MARKS = "ETag", "etag", "e_tag", "md5Hash", "checksum", "mtime", "LastModified", "last_modified", "updated", "created"


def version_marks(array: zarr.Array[Any]) -> list[str] | None:
    """A line for each stored file of the array: its name, size, and tag or time. None where the store tells nothing of
    this, as one in memory; of a zip file, that of the whole file. Lists names, and reads no values."""
    store = array.store
    if isinstance(store, ZipStore):
        status = os.stat(store.path)
        return [f"{status.st_size} {status.st_mtime_ns}"]
    if isinstance(store, FsspecStore):
        return sorted(_of_fsspec(store, array.path))
    if isinstance(store, ObjectStore):
        metas = (meta for batch in store.store.list(array.path or None) for meta in batch)
        return sorted(_line(meta["path"], meta) for meta in metas)
    return None


def _of_fsspec(store: FsspecStore, path: str) -> Iterator[str]:
    root = f"{store.path}/{path}".rstrip("/")
    files = sync(store.fs._find(root, detail=True))
    return (_line(name, about) for name, about in files.items())


def _line(name: str, about: Mapping[str, Any]) -> str:
    mark = next((about[key] for key in _MARKS if about.get(key) is not None), "")
    return f"{name} {about.get('size')} {mark}"
