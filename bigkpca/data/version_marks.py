"""Version marks of Zarr arrays outside local folders: names, sizes, tags and times, without reading values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import zarr
from zarr.core.sync import sync
from zarr.storage import FsspecStore, ObjectStore, ZipStore

# What file systems call the mark of a version of a file, the most telling one first.
_MARKS = "ETag", "etag", "e_tag", "md5Hash", "checksum", "mtime", "LastModified", "last_modified", "updated", "created"


def version_marks(array: zarr.Array[Any]) -> list[str] | None:
    """A line for each stored file of the array: its name, size, and tag or time; of a zip file, that of the whole file.
    None where the store does not tell these of every file, as one in memory. Lists names, and reads no values."""
    store = array.store
    if isinstance(store, ZipStore):
        status = os.stat(store.path)
        return [f"{status.st_size} {status.st_mtime_ns}"]
    files: Mapping[str, Mapping[str, Any]] = {}
    if isinstance(store, FsspecStore):
        files = sync(store.fs._find(f"{store.path}/{array.path}".rstrip("/"), detail=True))
    if isinstance(store, ObjectStore):
        files = {meta["path"]: meta for batch in store.store.list(array.path or None) for meta in batch}
    marks = [(name, about.get("size"), _mark(about)) for name, about in sorted(files.items())]
    if not marks or any(None in line for line in marks):
        return None
    return [f"{name} {size} {mark}" for name, size, mark in marks]


def _mark(about: Mapping[str, Any]) -> Any:
    return next((about[key] for key in _MARKS if about.get(key) is not None), None)
