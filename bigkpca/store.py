"""Arrays, models and manifests on disk. Zarr's door.

Four kinds of Zarr v3 groups are ours, told apart by the attribute `bigkpca` of the group:

    dataset    x (n, d), optionally y (n,)      finished when the attribute holds `rows`
    model      eigenvalues, components, ...     appears whole, by one rename
    features   scores (n, r), ...               finished when scores/manifest.json exists
    reconstruction   x (n, d), ...              finished when x/manifest.json exists
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bigkpca.blocks import power_of_two
from bigkpca.errors import IncompleteError, LockedError, SpecError
from bigkpca.sources import ATTRIBUTE

FORMAT_VERSION = 1
MAIN = {"features": "scores", "reconstruction": "x"}  # what is written block by block: the array it is for
_NAMES = {"features": "feature store", "reconstruction": "store of reconstructed rows"}
CHUNK_BYTES = 2**20  # one read
_SCRATCH, _OLD, _LOCK = ".new", ".old", ".lock"


def create_array(
    group: zarr.Group,
    name: str,
    shape: Sequence[int],
    dtype: Any,
    shard_rows: int,
    names: Sequence[str],
    *,
    compress: bool = True,
) -> zarr.Array[Any]:
    """An array of rows whose shards hold `shard_rows` rows in checksummed chunks of about 1 MB.

    Without `compress` chunks carry a checksum only: the digits of scores and models look random to a compressor.
    Every chunk is stored even if all its values equal the fill value, so that a missing one is a loss;
    floats are filled with NaN, so that a hole shows.
    """
    dtype = np.dtype(dtype)
    row_bytes = dtype.itemsize * int(np.prod(shape[1:], initial=1))
    chunk_rows = min(shard_rows, power_of_two(CHUNK_BYTES // max(1, row_bytes)))
    while shard_rows % chunk_rows:
        chunk_rows //= 2
    return group.create_array(
        name,
        shape=tuple(shape),
        dtype=dtype,
        chunks=(chunk_rows, *shape[1:]),
        shards=(shard_rows, *shape[1:]),
        compressors=ZstdCodec(level=1, checksum=True) if compress else Crc32cCodec(),
        fill_value=np.nan if dtype.kind == "f" else 0,
        dimension_names=tuple(names),
        config={"write_empty_chunks": True},
    )


def create_group(path: str, about: Mapping[str, Any]) -> zarr.Group:
    """A new group of our own kind at a path where nothing is."""
    stamped = {**about, "format_version": FORMAT_VERSION}
    return zarr.create_group(os.path.abspath(path), zarr_format=3, attributes={ATTRIBUTE: stamped})


def open_group(path: str, kind: str, mode: Literal["r", "r+"] = "r") -> zarr.Group:
    """Our group of the given kind; SpecError says what is there instead."""
    about = describe(path)
    if about is None:
        there = "exists, but is not a bigkpca" if os.path.exists(path) else "does not exist: no"
        raise SpecError(f"{path} {there} {named(kind)}")
    if about["format"] != kind:
        raise SpecError(f"{path} is a bigkpca {named(about['format'])}, not a {named(kind)}")
    if about["format_version"] != FORMAT_VERSION:
        raise SpecError(
            f"{path} has {named(kind)} format version {about['format_version']}; this bigkpca reads version "
            f"{FORMAT_VERSION} only: install the bigkpca that wrote it, or make it again"
        )
    return zarr.open_group(os.path.abspath(path), mode=mode)


def open_values(path: str, name: str | None = None) -> zarr.Array[Any]:
    """The array of one value a row at `path`, or of that name in the group there, unread.

    Raises SpecError where there is none.
    """
    try:
        node = zarr.open(os.path.abspath(path), mode="r")
    except Exception as error:  # zarr raises several kinds for folders that hold no node
        raise SpecError(f"{path} is not a Zarr array or group") from error
    if isinstance(node, zarr.Group):
        held = sorted(key for key, _ in node.arrays())
        if name not in held:
            raise SpecError(f"{path} holds no array {name!r}, but {held}")
        node = node[name]
    assert isinstance(node, zarr.Array)
    if len(node.shape) != 1:
        raise SpecError(f"{node.path or path} has shape {node.shape}: one value for each row is needed")
    return node


def named(kind: str) -> str:
    """What messages call a group of this format."""
    return _NAMES.get(kind, kind)


def describe(path: str) -> dict[str, Any] | None:
    """The `bigkpca` attribute of the group at `path`, None if there is no such group."""
    try:
        metadata = json.loads((Path(path) / "zarr.json").read_text())
    except (OSError, ValueError):
        return None
    about = metadata.get("attributes", {}).get(ATTRIBUTE)
    return about if isinstance(about, dict) and "format" in about else None


def is_finished(path: str) -> bool:
    """Whether our group at `path` was completed; readers must trust nothing else."""
    about = describe(path)
    if about is None:
        return False
    if about["format"] == "dataset":
        return "rows" in about
    return about["format"] == "model" or manifest_path(path).exists()


def manifest_path(path: str) -> Path:
    """The manifest of what is written block by block: inside the array's folder, where Zarr does not trip over it."""
    about = describe(path)
    assert about is not None  # callers know that it is ours
    return Path(path) / MAIN[about["format"]] / "manifest.json"


@dataclass(frozen=True)
class Destination:
    """Where a run writes, and what it finds there: nothing ("new"), its own unfinished work, or all of it."""

    path: str
    work: str  # path itself, or a scratch folder beside it that takes its place at the end
    state: Literal["new", "resume", "done"]

    def put_in_place(self) -> None:
        """Let finished work take the place of what was at `path`."""
        if self.work == self.path:
            return
        old = self.path + _OLD
        shutil.rmtree(old, ignore_errors=True)
        if os.path.exists(self.path):
            os.rename(self.path, old)
        os.rename(self.work, self.path)
        sync_folder(Path(self.path).parent)
        shutil.rmtree(old, ignore_errors=True)


def destination(path: str, record: Mapping[str, Any], *, overwrite: bool, scratch: bool = False) -> Destination:
    """Decide what to do about what is at `path`, given the record that identifies this run's work.

    Nothing there: new. Our own work with the same record: resume it, or it is done. Anything else: SpecError
    naming what differs; with `overwrite`, work of ours (never anything else) is replaced, but only once its
    successor is finished. With `scratch` the work appears at `path` only when it is finished.
    """
    if os.path.exists(path + _OLD) and not os.path.exists(path):
        os.rename(path + _OLD, path)  # a run was killed between the two renames of put_in_place
    state = _state(path, record)
    if state in ("resume", "done"):
        return Destination(path, path, state)
    if state == "new" and not scratch:
        return Destination(path, path, "new")
    if state == "foreign":
        raise SpecError(
            f"{path} exists and was not made by bigkpca, so it is never replaced: choose another output path, "
            "or move it away yourself"
        )
    if state == "other" and not overwrite:
        found = difference(describe(path) or {}, record)
        raise SpecError(
            f"{path} is in the way: {found}; choose another output path, or replace it "
            "with --overwrite (overwrite=True in Python)"
        )
    work = path + _SCRATCH
    if _state(work, record) == "foreign":
        raise SpecError(f"{work} is in the way and was not made by bigkpca: move it away")
    if scratch or _state(work, record) == "other":
        shutil.rmtree(work, ignore_errors=True)
    return Destination(path, work, "resume" if _state(work, record) in ("resume", "done") else "new")


def _state(path: str, record: Mapping[str, Any]) -> Literal["new", "resume", "done", "other", "foreign"]:
    if not os.path.exists(path) or (os.path.isdir(path) and not os.listdir(path)):
        return "new"
    about = describe(path)
    if about is None:
        return "foreign"
    if any(about.get(key) != value for key, value in record.items()):
        return "other"
    return "done" if is_finished(path) else "resume"


def difference(there: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """In words, how the record of what is in the way differs from the one of what is asked for."""
    if there.get("format") != record["format"]:
        return f"it is a bigkpca {named(str(there.get('format')))}"
    here, held = dict(_flat(record)), dict(_flat({key: there.get(key) for key in record}))
    differing = [
        f"{key} is {held.get(key)!r} there and {here.get(key)!r} here"
        for key in {**here, **held}
        if here.get(key) != held.get(key)
    ]
    return "it was made from other input or options (" + ", ".join(differing[:3]) + ")"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@contextmanager
def lock(path: str) -> Iterator[None]:
    """Hold the output at `path` against other runs; LockedError if one has it. Released even by SIGKILL."""
    name = Path(path + _LOCK)
    name.parent.mkdir(parents=True, exist_ok=True)
    with name.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _locked(path) from error
        if not name.exists() or os.fstat(file.fileno()).st_ino != name.stat().st_ino:
            raise _locked(path)  # its holder ended, and removed it, between our open and our lock
        try:
            yield
        finally:
            name.unlink(missing_ok=True)


@contextmanager
def room_on_disk(path: str) -> Iterator[None]:
    """Turn a full disk into IncompleteError: what was published before is untouched, and the run can go on."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise IncompleteError(
            f"the disk is full while writing {path}: make room and run the same command again"
        ) from error


def _locked(path: str) -> LockedError:
    return LockedError(f"another run is writing {path}: wait until it ends (its lock is {path}{_LOCK})")


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(root: Path) -> None:
    """Force every file and folder below `root` to disk: neither Zarr nor the kernel promises that by itself."""
    for folder, _, names in os.walk(root):
        for name in names:
            handle = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_folder(Path(folder))


def publish_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file so that readers see all of it or none, also after a power failure."""
    publish_text(path, json.dumps(values, indent=1))


def publish_text(path: Path, text: str) -> None:
    """Write a file so that readers see all of it or none, also after a power failure."""
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
