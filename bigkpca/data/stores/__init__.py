"""Stores: places that hold data below paths, behind one protocol: local disks, and object stores."""

from __future__ import annotations

import os
import re
from typing import Any, TypeGuard

from bigkpca.data.stores.base import (
    MOST_JSON_BYTES,
    NODE_FILES,
    SCHEMES,
    AnyPath,
    Store,
    StoredFile,
    address,
    is_url,
    last_name,
    parent,
)
from bigkpca.data.stores.local import LocalDisk
from bigkpca.data.stores.objects import ObjectStore, root_url
from bigkpca.errors import SpecError

__all__ = [
    "MOST_JSON_BYTES",
    "NODE_FILES",
    "AnyPath",
    "LocalDisk",
    "ObjectStore",
    "Store",
    "StoredFile",
    "expanded",
    "is_path",
    "is_url",
    "last_name",
    "parent",
    "root_url",
    "store_of",
]

_LOCAL = LocalDisk()


def store_of(path: str) -> Store:
    """The store that holds a path. Raises SpecError for URLs that lead to none, or carry secrets."""
    if is_url(path):
        scheme, bucket, _ = address(path)
        return ObjectStore(scheme, bucket)
    return _LOCAL


def is_path(data: Any) -> TypeGuard[AnyPath]:
    """Whether `data` is a path."""
    return isinstance(data, str | os.PathLike)


def expanded(path: AnyPath) -> str:
    """A path that a user gave, with `~` expanded, or a URL without slashes at its end. Raises TypeError for anything
    but text, SpecError for a URL that was made a `pathlib.Path`."""
    given = os.fspath(path)
    if not isinstance(given, str):
        raise TypeError(f"paths are text, not {type(given).__name__}: {given!r}")
    if collapsed := re.match(f"({'|'.join(SCHEMES)}):/(?!/)", given):
        raise SpecError(f"{given}: give {collapsed[1]}:// as text, since pathlib.Path makes another path of it")
    scheme, separator, rest = given.partition("://")
    return f"{scheme}://{rest.rstrip('/')}" if separator else os.path.expanduser(given)
