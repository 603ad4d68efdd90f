"""The output of a scheduled job: its current version, the rows that a run has pinned, and the records of its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bigkpca.data.json_files import parsed, read_if_there, replace_json, write_json
from bigkpca.data.stores import store_of
from bigkpca.data.versions import JOB, VERSIONS
from bigkpca.data.zarr import ATTRIBUTE
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.storage import groups

_PINNED = "pinned.json"


def prepare(out: str) -> None:
    """Make the folder of the versions, if it does not exist. Raises SpecError if something else is there."""
    store = store_of(out)
    # Interrupted writes leave partial files.
    if not store.exists(out) or (store.is_folder(out) and all(name.endswith(".partial") for name in store.names(out))):
        store.make_folder(out)
        own = {"format": JOB, "format_version": groups.FORMAT_VERSION}
        # Zarr would write it in two steps.
        write_json(f"{out}/zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {ATTRIBUTE: own}})
        return
    about = groups.describe(out)
    if about is None:
        raise SpecError(f"{out} exists and was not made by bigkpca: choose another output path for the job")
    if about["format"] != JOB:
        raise SpecError(
            f"{out} is a bigkpca {groups.named(about['format'])}, which runs of a job never replace: choose another "
            "output path for the job"
        )
    groups.open_group(out, JOB)  # raises SpecError for other format versions


def empty_versions() -> dict[str, Any]:
    """The manifest before the first version."""
    return {"format_version": groups.FORMAT_VERSION, "current": 0, "versions": []}


def write_versions(out: str, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest of the versions atomically."""
    replace_json(f"{out}/{VERSIONS}", manifest)


def read_pinned(out: str) -> dict[str, Any]:
    """What an unfinished run pinned; empty if there is none, or if the file cannot be parsed."""
    try:
        content = read_if_there(f"{out}/{_PINNED}")
        found: Any = None if content is None else parsed(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_pinned(out: str, pinned: Mapping[str, Any]) -> None:
    """Pin what a run is about to do, so the run after an interruption does the same."""
    replace_json(f"{out}/{_PINNED}", pinned)


def remove_pinned(out: str) -> None:
    """Remove the pin, since the run has ended."""
    store_of(out).remove_file(f"{out}/{_PINNED}")


RECORDS = "runs.jsonl"


def read_records(out: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The records of all runs, and the numbers (from 1) of lines that are not records, which a full disk may leave."""
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
    store_of(out).replace(f"{out}/{RECORDS}", before + json.dumps(record).encode() + b"\n")


def _content(out: str) -> bytes:
    try:
        return read_if_there(f"{out}/{RECORDS}") or b""
    except IsADirectoryError as error:
        raise CorruptionError(f"{out}/{RECORDS} is a folder: move it away") from error
