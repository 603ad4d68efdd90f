"""Stores: local disks and object stores, which hold files at paths; `/` separates the names in a path.

All of bigkpca reads and writes stored data through their operations, except files of other formats that `ingest` and
labels read, and zip archives. Both have the same ones, but only a disk can `move`, and only an object store can `claim`
and `swap`.
"""

from __future__ import annotations

import os
import re
from typing import Any, TypeGuard

from bigkpca.data.stores.base import (
    MOST_JSON_BYTES,
    NODE_FILES,
    SCHEMES,
    AnyPath,
    StoredFile,
    address,
    is_url,
    last_name,
    parent,
)
from bigkpca.data.stores.local import LocalDisk
from bigkpca.data.stores.objects import ObjectStore
from bigkpca.errors import SpecError

__all__ = [
    "MOST_JSON_BYTES",
    "NODE_FILES",
    "AnyPath",
    "LocalDisk",
    "ObjectStore",
    "StoredFile",
    "expanded",
    "is_path",
    "is_url",
    "last_name",
    "parent",
    "store_of",
]

_LOCAL = LocalDisk()


def store_of(path: str) -> LocalDisk | ObjectStore:
    """The store of a path. Raises SpecError for URLs that do not belong to any store, or contain secrets."""
    if is_url(path):
        scheme, bucket, _ = address(path)
        return ObjectStore(scheme, bucket)
    return _LOCAL


def is_path(data: Any) -> TypeGuard[AnyPath]:
    """Whether `data` is a path."""
    return isinstance(data, str | os.PathLike)


def expanded(path: AnyPath) -> str:
    """A path from a user, without trailing slashes, and with `~` expanded. Raises SpecError for a URL made a `Path`."""
    given = os.fspath(path)
    if not isinstance(given, str):
        raise TypeError(f"paths must be strings, not {type(given).__name__}: {given!r}")
    if collapsed := re.match(f"({'|'.join(SCHEMES)}):/(?!/)", given):
        raise SpecError(f"{given}: pass {collapsed[1]}:// URLs as strings, since pathlib.Path changes them")
    scheme, separator, rest = given.partition("://")
    if separator:
        return f"{scheme}://{rest.rstrip('/')}"
    return os.path.expanduser(given.rstrip("/") or given)
