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
from bigkpca.data.stores.objects import ObjectStore
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
    "store_of",
]

_LOCAL = LocalDisk()


def store_of(path: str) -> Store:
    """The store of a path. Raises SpecError for URLs that do not belong to any store, or contain secrets."""
    if is_url(path):
        scheme, bucket, _ = address(path)
        return ObjectStore(scheme, bucket)
    return _LOCAL


def is_path(data: Any) -> TypeGuard[AnyPath]:
    """Whether `data` is a path."""
    return isinstance(data, str | os.PathLike)


def expanded(path: AnyPath) -> str:
    """A path from a user, without trailing slashes, and with `~` expanded. Raises TypeError for anything but a string,
    SpecError for a URL that was converted to a `pathlib.Path`."""
    given = os.fspath(path)
    if not isinstance(given, str):
        raise TypeError(f"paths must be strings, not {type(given).__name__}: {given!r}")
    if collapsed := re.match(f"({'|'.join(SCHEMES)}):/(?!/)", given):
        raise SpecError(f"{given}: pass {collapsed[1]}:// URLs as strings, since pathlib.Path changes them")
    scheme, separator, rest = given.partition("://")
    if separator:
        return f"{scheme}://{rest.rstrip('/')}"
    return os.path.expanduser(given.rstrip("/") or given)
