"""Stores: local disks and object stores, which hold files at paths; `/` separates the names in a path.

All of bigkpca reads and writes stored data through their operations, except files of other formats that `ingest` and
labels read, and zip archives. Only a disk can `move`, and only an object store can `claim` and `swap`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from bigkpca.data.stores.base import (
    MOST_JSON_BYTES,
    NODE_FILES,
    PARTIAL,
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
from bigkpca.errors import BigKPCAError, IncompleteError, SpecError

__all__ = [
    "MOST_JSON_BYTES",
    "NODE_FILES",
    "AnyPath",
    "LocalDisk",
    "ObjectStore",
    "StoredFile",
    "absent",
    "expanded",
    "is_path",
    "is_url",
    "last_name",
    "parent",
    "parsed",
    "read_json",
    "read_small",
    "store_of",
    "write_json",
]

_LOCAL = LocalDisk()
_MOST_NESTED = 200  # of JSON
_PIECE_BYTES = 2**20
_IN_QUOTES = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)  # or to the end, where it is cut off


def store_of(path: str) -> LocalDisk | ObjectStore:
    """The store of a path. Raises SpecError for URLs that do not belong to any store, or contain secrets."""
    if is_url(path):
        scheme, bucket, _ = address(path)
        return ObjectStore(scheme, bucket)
    return _LOCAL


def is_path(data: Any) -> TypeGuard[AnyPath]:
    return isinstance(data, str | os.PathLike)


def absent(path: str, message: str) -> BigKPCAError:
    """The error for what is not at `path`: an IncompleteError if a run has not finished it."""
    if store_of(path).exists(path + PARTIAL):
        return IncompleteError(f"{path} is not finished: run the command that makes it again")
    return SpecError(message)


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


def read_json(path: str) -> Any:
    """The values of a JSON file. Raises OSError if it does not exist, ValueError if bigkpca did not write it."""
    return parsed(read_small(path))


def read_small(path: str) -> bytes:
    """The content of a file of metadata. Raises OSError if there is none, ValueError if it is too large."""
    text = bytearray()
    with store_of(path).open(path) as file:
        while piece := file.read(_PIECE_BYTES):  # a larger number is allocated before anything is read
            text += piece
            if len(text) > MOST_JSON_BYTES:
                raise ValueError(f"it has more than {MOST_JSON_BYTES:,} bytes")
    return bytes(text)


def parsed(text: bytes) -> Any:
    """The values of JSON. Raises ValueError if it cannot be parsed, or is deeper than any that bigkpca writes."""
    # JSON that nests too deep for Python may parse, but cannot be used.
    outside = np.frombuffer(_IN_QUOTES.sub(b"", text), np.uint8)
    steps = np.isin(outside, list(b"[{")).astype(np.int8) - np.isin(outside, list(b"]}"))
    if np.cumsum(steps, dtype=np.int32).max(initial=0) > _MOST_NESTED:
        raise ValueError(f"it nests more than {_MOST_NESTED} deep")
    return json.loads(text.decode())


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Write or replace a JSON file so that readers see all of it or none."""
    store_of(path).write(path, json.dumps(values, indent=1).encode())
