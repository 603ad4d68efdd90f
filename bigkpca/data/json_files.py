"""JSON files, read defensively and written whole or not at all, and folders in which runs make output.

Folders of runs lie beside an output: each run writes its blocks into its own folder, and nowhere else. So a worker that
was disconnected, and continues long after its run ended, cannot touch what other runs published at the path of the
output. For the same reason, where a lock can expire while its holder is suspended, each holder has its own scratch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bigkpca.data.retrying import retried
from bigkpca.data.stores import MOST_JSON_BYTES, is_url, last_name, parent, store_of
from bigkpca.errors import CorruptionError

_MOST_NESTED = 200
_PIECE_BYTES = 2**20


def read_json(path: str) -> Any:
    """The values of a JSON file. Raises OSError if it does not exist, ValueError if it cannot be parsed, or is larger
    or deeper than any that bigkpca writes."""
    return parsed(read_small(path))


def read_if_there(path: str) -> bytes | None:
    """The content of a small file; None if there is none. A file that its folder lists but that cannot be opened is
    tried again, not treated as one that was never written. Raises CorruptionError if it stays so, ValueError if it is
    larger than any that bigkpca writes."""

    def read() -> bytes | None:
        try:
            return read_small(path)
        except (FileNotFoundError, NotADirectoryError):
            store, folder = store_of(path), parent(path)
            if is_url(path):  # the answer of an object store is final
                return None
            if not store.is_folder(folder) or last_name(path) not in store.names(folder):
                return None
            raise

    return retried(read, path, CorruptionError)


def read_record(path: str, advice: str) -> Any:
    """The values of a JSON file that a run wrote; None if there is none. Raises CorruptionError, with the advice, if it
    cannot be parsed."""
    try:
        content = read_if_there(path)
        found = None if content is None else parsed(content)
        return {} if content and found is None else found  # null does not mean that the file is missing
    except ValueError as error:
        raise CorruptionError(f"{path} does not parse ({error}); {advice}") from error


def read_small(path: str) -> bytes:
    """The content of a file of metadata. Raises OSError if there is none, ValueError if it is larger than any valid
    one."""
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


def replace_json(path: str, values: Mapping[str, Any]) -> None:
    """Write or replace a JSON file of an output whose writer is this process, as `Store.replace` does."""
    store_of(path).replace(path, json.dumps(values, indent=1).encode())


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Write a JSON file so that readers see all of it or none."""
    store_of(path).write(path, json.dumps(values, indent=1).encode())


_RUN = ".bigkpca-run-"  # behind the name of an output, before the digest of a record
_DIGITS = 12
_LAYOUT = 2  # of its content: blocks that earlier versions made from rows that they did not check are made again
_SCRATCH = ".bigkpca-new"  # behind the name of an output, alone or before the digits of its holder


def run_folder(path: str, record: Mapping[str, Any]) -> str:
    """The folder in which the output with this record is made, before it takes its place at `path`."""
    text = json.dumps({**record, "layout": _LAYOUT}, sort_keys=True, separators=(",", ":"))
    return f"{path}{_RUN}{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def run_folders(path: str) -> list[str]:
    """All such folders beside an output, whatever they hold."""
    return _beside(path, re.escape(_RUN) + f"[0-9a-f]{{{_DIGITS}}}")


def scratch_folder(path: str) -> str:
    """The scratch of this process, the writer of the output at `path`."""
    holder = store_of(path).holder(path)
    return path + _SCRATCH + (holder and f"-{holder}")


def scratch_folders(path: str) -> list[str]:
    """The scratches of all writers of an output, current and earlier."""
    return _beside(path, re.escape(_SCRATCH) + "(-[0-9a-f]+)?")


def _beside(path: str, ending: str) -> list[str]:
    """The paths beside an output that consist of its name and such an ending."""
    path = path.rstrip("/")
    above, ours = parent(path), re.compile(re.escape(last_name(path)) + ending)
    if not store_of(path).is_folder(above):
        return []
    found = sorted(name for name in store_of(path).names(above) if ours.fullmatch(name))
    return [path.removesuffix(last_name(path)) + name for name in found]
