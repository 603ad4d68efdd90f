"""Versions of inputs and outputs: marks of Zarr arrays, made without reading values, and the versions of a scheduled
job.

The output OUT of a scheduled job:

OUT/manifest.json     the current version, and its model; replaced at once
OUT/1                 a feature store
OUT/pinned.json       the rows of a run that has begun but not ended OUT/runs.jsonl        a line for each run
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import zarr
from zarr.core.sync import sync
from zarr.storage import FsspecStore, ObjectStore, ZipStore

from bigkpca.data.json_files import read_record
from bigkpca.data.stores import store_of
from bigkpca.errors import CorruptionError, IncompleteError

# The names that file systems use for the version of a file, the most reliable one first.
_MARKS = "ETag", "etag", "e_tag", "md5Hash", "checksum", "mtime", "LastModified", "last_modified", "updated", "created"


def version_marks(array: zarr.Array[Any]) -> list[str] | None:
    """A line for each stored file of the array: its name, size, and tag or time; for a zip file, those of the whole
    file. None if the store does not have these for every file, like one in memory. Lists names, and reads no values."""
    store = array.store
    if isinstance(store, ZipStore):
        return [store_of(str(store.path)).file(str(store.path)).stamp]
    files: Mapping[str, Mapping[str, Any]] = {}
    if isinstance(store, FsspecStore):
        files = sync(store.fs._find(f"{store.path}/{array.path}".rstrip("/"), detail=True))
    if isinstance(store, ObjectStore):
        files = {meta["path"]: meta for batch in store.store.list(array.path or None) for meta in batch}
    lines = []
    for name, about in sorted(files.items()):
        size = about.get("size")
        mark = next((about[key] for key in _MARKS if about.get(key) is not None), None)
        if size is None or mark is None:
            return None
        lines.append(f"{name} {size} {mark}")
    return lines or None


JOB = "job"  # the format in the attribute of the group
VERSIONS = "manifest.json"


def version_path(out: str, number: int) -> str:
    """The folder of one version."""
    return f"{out}/{number}"


def read_versions(out: str) -> dict[str, Any] | None:
    """The manifest of the versions: `current` (a number) and `versions`, each with its number, model and reason; None
    before the first version is published. Raises CorruptionError if it is damaged."""
    name = f"{out}/{VERSIONS}"
    found = read_record(name, "restore it")
    if found is None:
        return None
    whole = False
    with suppress(KeyError, TypeError):
        numbers = [each["number"] for each in found["versions"]]
        models = [each["model"] for each in found["versions"]]
        texts = [
            *(each["reason"] for each in found["versions"]),
            *(each[key] for each in models for key in ("path", "digest")),
        ]
        counted = all(type(each) is int and each > 0 for each in (*numbers, *(model["number"] for model in models)))
        whole = counted and all(isinstance(each, str) for each in texts) and found["current"] in numbers
    if not whole:
        raise CorruptionError(f"{name} does not record the current version and the model of each version; restore it")
    return dict(found)


def current_version(out: str) -> str:
    """The folder of the current version. Raises IncompleteError before there is one."""
    manifest = read_versions(out)
    if manifest is None:
        raise IncompleteError(
            f"{out} is not finished: its first run was stopped; run the same bigkpca run command again"
        )
    return version_path(out, manifest["current"])
