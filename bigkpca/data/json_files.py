"""JSON files, read defensively and written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from bigkpca.data.stores import MOST_JSON_BYTES, store_of
from bigkpca.errors import CorruptionError

_MOST_NESTED = 200
_PIECE_BYTES = 2**20


def read_json(path: str) -> Any:
    """The values of a JSON file. Raises OSError if it does not exist, ValueError if bigkpca did not write it."""
    return parsed(read_small(path))


def read_record(path: str, advice: str) -> Any:
    """The values of a JSON file that a run wrote; None if there is none. Raises CorruptionError with the advice."""
    try:
        found = read_json(path)
        return {} if found is None else found  # null does not mean that the file is missing
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise CorruptionError(f"{path} does not parse ({error}); {advice}") from error


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
    plain = np.frombuffer(text.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)  # other quotes delimit text
    opening = (plain == ord("[")) | (plain == ord("{"))
    closing = (plain == ord("]")) | (plain == ord("}"))
    steps = opening.astype(np.int8) - closing
    steps[np.logical_xor.accumulate(plain == ord('"'))] = 0  # inside quotes
    if np.cumsum(steps, dtype=np.int32).max(initial=0) > _MOST_NESTED:
        raise ValueError(f"it nests more than {_MOST_NESTED} deep")
    return json.loads(text.decode())


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Write or replace a JSON file so that readers see all of it or none."""
    store_of(path).write(path, json.dumps(values, indent=1).encode())
