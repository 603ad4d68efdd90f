"""The records of the runs of a scheduled job: a line of JSON for each, in the order in which they ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bigkpca.data.json_files import read_if_there
from bigkpca.data.stores import store_of
from bigkpca.errors import CorruptionError

RECORDS = "runs.jsonl"


def read_records(out: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The records of all runs, and the numbers (from 1) of lines that are no records, as a full disk may leave them."""
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
    """Add a line. Lines that are there stay as they are, also damaged ones."""
    # The whole file is written anew, at once: object stores cannot append, and no half line is left behind.
    before = _content(out)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    store_of(out).replace(f"{out}/{RECORDS}", before + json.dumps(record).encode() + b"\n")


def _content(out: str) -> bytes:
    try:
        return read_if_there(f"{out}/{RECORDS}") or b""
    except IsADirectoryError as error:
        raise CorruptionError(f"{out}/{RECORDS} is a folder: move it away") from error
