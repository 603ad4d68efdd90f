"""Records of the runs of a scheduled job: a line of JSON for each, in a file beside its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bigkpca.data.stores import store_of
from bigkpca.errors import CorruptionError

ENDING = ".runs.jsonl"  # behind the name of the output


def read_records(out: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The records of all runs of the job that writes `out`, in the order in which they ended, and the numbers (from 1)
    of lines that are not records, which a full disk may leave."""
    found, damaged = [], []
    for number, line in enumerate(_content(out).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict) and type(record.get("run")) is int:
            found.append(record)
        else:
            damaged.append(number)
    return found, damaged


def append_record(out: str, record: Mapping[str, Any]) -> None:
    """Add a line. Existing lines stay as they are, even damaged ones."""
    # The whole file is rewritten atomically: object stores cannot append, and no partial line is left behind.
    before = _content(out)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    store_of(out).write(out + ENDING, before + json.dumps(record).encode() + b"\n")


def _content(out: str) -> bytes:
    try:
        with store_of(out).open(out + ENDING) as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except IsADirectoryError as error:
        raise CorruptionError(f"{out}{ENDING} is a folder: move it away") from error
