"""Stores: places that hold data below paths, behind one protocol. Local disks are the only ones so far."""

from __future__ import annotations

import os
from typing import Any, TypeGuard

from bigkpca.data.stores.base import AnyPath, Store, StoredFile, last_name, parent
from bigkpca.data.stores.local import LocalDisk
from bigkpca.errors import SpecError

__all__ = ["AnyPath", "LocalDisk", "Store", "StoredFile", "expanded", "is_path", "last_name", "parent", "store_of"]

_LOCAL = LocalDisk()


def store_of(path: str) -> Store:
    """The store that holds a path. Raises SpecError for URLs."""
    if "://" in path:
        raise SpecError(f"{path}: only local paths can be read and written so far")
    return _LOCAL


def is_path(data: Any) -> TypeGuard[AnyPath]:
    """Whether `data` is a path."""
    return isinstance(data, str | os.PathLike)


def expanded(path: AnyPath) -> str:
    """A path that a user gave, with `~` expanded. Raises TypeError for anything but text."""
    given = os.fspath(path)
    if not isinstance(given, str):
        raise TypeError(f"paths are text, not {type(given).__name__}: {given!r}")
    return os.path.expanduser(given)
