"""Records of the runs of a scheduled job: a line of JSON for each, in a file beside its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bigkpca.data.stores import store_of

ENDING = ".runs.jsonl"  # behind the name of the output


def read_records(out: str) -> list[dict[str, Any]]:
    """The records of all runs of the job that writes `out`, in the order in which they ended. Lines that no run wrote
    are skipped."""
    found: list[Any] = []
    for line in _content(out).split(b"\n"):
        with suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [record for record in found if isinstance(record, dict) and type(record.get("run")) is int]


def append_record(out: str, record: Mapping[str, Any]) -> None:
    """Add a line. Existing lines stay as they are."""
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
