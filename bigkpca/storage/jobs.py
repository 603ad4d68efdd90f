"""The output of a scheduled job, which version is current, which rows a run has pinned, and the records of its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bigkpca.data.json_files import parsed, read_if_there, replace_json, write_json
from bigkpca.data.stores import store_of
from bigkpca.data.versions import JOB, VERSIONS, last_number, read_versions
from bigkpca.data.zarr import ATTRIBUTE
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.storage import groups

_PINNED = "pinned.json"


def prepare(out: str) -> None:
    """Make the folder of the versions, unless it is there. Raises SpecError where anything else is."""
    store = store_of(out)
    # Partial files are what writes left that were cut off.
    if not store.exists(out) or (store.is_folder(out) and all(name.endswith(".partial") for name in store.names(out))):
        store.make_folder(out)
        own = {"format": JOB, "format_version": groups.FORMAT_VERSION}
        # Zarr would write it in two steps.
        write_json(f"{out}/zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {ATTRIBUTE: own}})
        return
    about = groups.describe(out)
    if about is None:
        raise SpecError(f"{out} exists and was not made by bigkpca: choose another path for the output of the job")
    if about["format"] != JOB:
        raise SpecError(
            f"{out} is a bigkpca {groups.named(about['format'])}, which runs of a job never replace: choose another "
            "path for the output of the job"
        )
    groups.open_group(out, JOB)  # raises SpecError for other format versions


def empty_versions() -> dict[str, Any]:
    """The manifest before there is a version."""
    return {"format_version": groups.FORMAT_VERSION, "current": 0, "versions": []}


def write_versions(out: str, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest of the versions, at once."""
    replace_json(f"{out}/{VERSIONS}", manifest)


def set_current(out: str, number: int) -> dict[str, Any]:
    """Make another version the current one. Returns the manifest. Raises SpecError where there is no such version."""
    manifest = read_versions(out) or empty_versions()
    check_version(out, manifest, number)
    manifest["current"] = number
    write_versions(out, manifest)
    return manifest


def check_version(out: str, manifest: Mapping[str, Any], number: int) -> None:
    """Raise SpecError where there is no version of this number."""
    known = [each["number"] for each in manifest["versions"]]
    if number not in known:
        pruned = 0 < number <= last_number(manifest)
        why = f"version {number} was pruned, as bigkpca history {out} tells" if pruned else f"has no version {number}"
        raise SpecError(f"{out}{':' if pruned else ''} {why}; there are {', '.join(map(str, known)) or 'none'}")


def read_pinned(out: str) -> dict[str, Any]:
    """What a run pinned that did not end; empty where none did, or the file does not parse."""
    try:
        content = read_if_there(f"{out}/{_PINNED}")
        found: Any = None if content is None else parsed(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def write_pinned(out: str, pinned: Mapping[str, Any]) -> None:
    """Pin what a run is about to do, so that the run after a stop does the same."""
    replace_json(f"{out}/{_PINNED}", pinned)


def remove_pinned(out: str) -> None:
    """Forget what was pinned: the run has ended."""
    store_of(out).remove_file(f"{out}/{_PINNED}")


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
