"""JSON files: read whatever others wrote, write so that readers see all of it or none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from bigkpca.data.retrying import retried
from bigkpca.data.stores import MOST_JSON_BYTES as MOST_JSON_BYTES
from bigkpca.data.stores import is_url, last_name, parent, store_of
from bigkpca.errors import Array, CorruptionError

_MOST_NESTED = 200
_PIECE_BYTES = 2**20


def read_json(path: str) -> Any:
    """The values of a JSON file.

    Raises OSError where there is none, ValueError where it does not parse, or is larger or deeper than any of bigkpca.
    """
    return parsed(read_small(path))


def read_if_there(path: str) -> bytes | None:
    """The content of a small file; None where there is none.

    A file that its folder lists, and that cannot be opened, is tried again: it is not taken for one that was never
    written. Raises CorruptionError where it stays so, ValueError where it is larger than any that bigkpca writes.
    """

    def read() -> bytes | None:
        try:
            return read_small(path)
        except (FileNotFoundError, NotADirectoryError):
            store, folder = store_of(path), parent(path)
            if is_url(path):  # an object store knows what it holds
                return None
            if not store.is_folder(folder) or last_name(path) not in store.names(folder):
                return None
            raise

    return retried(read, path, CorruptionError)


def read_small(path: str) -> bytes:
    """The content of a file of metadata. Raises OSError where there is none, ValueError where it is larger than any."""
    text = bytearray()
    with store_of(path).open(path) as file:
        while piece := file.read(_PIECE_BYTES):  # a larger number is allocated before anything is read
            text += piece
            if len(text) > MOST_JSON_BYTES:
                raise ValueError(f"it has more than {MOST_JSON_BYTES:,} bytes")
    return bytes(text)


def parsed(text: bytes) -> Any:
    """The values of JSON. Raises ValueError where it does not parse, or is deeper than any of bigkpca."""
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")  # quotes that are left open or close text
    if _nested(np.frombuffer(plain, np.uint8)) > _MOST_NESTED:
        raise ValueError(f"it nests more than {_MOST_NESTED} deep")
    return json.loads(text.decode())


def replace_json(path: str, values: Mapping[str, Any]) -> None:
    """Write or replace a JSON file of an output that this process is the writer of, as `Store.replace`."""
    store_of(path).replace(path, json.dumps(values, indent=1).encode())


def _nested(text: Array) -> int:
    """How deep brackets nest in JSON without escapes: what nests too deep for Python may parse, but not be used."""
    opening, closing = (text == ord("[")) | (text == ord("{")), (text == ord("]")) | (text == ord("}"))
    steps = opening.astype(np.int8) - closing
    steps[np.logical_xor.accumulate(text == ord('"'))] = 0  # inside quotes
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Write a JSON file so that readers see all of it or none."""
    store_of(path).write(path, json.dumps(values, indent=1).encode())
