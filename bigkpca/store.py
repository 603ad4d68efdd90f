"""Arrays, models and manifests on disk. Zarr's door.

Four kinds of Zarr v3 groups are ours, told apart by the attribute `bigkpca` of the group:

    dataset    x (n, d), optionally y (n,)      finished when the attribute holds `rows`
    model      eigenvalues, components, ...     appears whole, by one rename
    features   scores (n, r), ...               finished when scores/manifest.json exists
    reconstruction   x (n, d), ...              finished when x/manifest.json exists
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bigkpca.data.blocks import power_of_two
from bigkpca.data.zarr import ATTRIBUTE, SCRATCH
from bigkpca.errors import IncompleteError, LockedError, SpecError

try:
    import fcntl
except ImportError as error:
    raise ImportError(
        "bigkpca runs on Linux and macOS: it locks outputs with flock, which this system lacks"
    ) from error

FORMAT_VERSION = 1
MAIN = {"features": "scores", "reconstruction": "x"}  # what is written block by block: the array it is for
_NAMES = {"features": "feature store", "reconstruction": "store of reconstructed rows"}
CHUNK_BYTES = 2**20  # one read
# Beside an output, besides SCRATCH and the lock: a successor that is filled block by block, what it replaced, what is
# being removed; names that nobody gives to anything else.
_SUCCESSOR, _OLD, _TRASH = ".bigkpca-next", ".bigkpca-old", ".bigkpca-trash"
_LOCK = ".bigkpca-lock"
_EXCHANGE = 2  # the flag of renameat2 on Linux, and of renamex_np on macOS
_OTHER_FORMATS = (".npy", ".npz", ".csv.gz", ".csv", ".tsv", ".txt", ".parquet", ".h5", ".hdf5", ".html", ".json")


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
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    about = attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None
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


def output_path(path: str | os.PathLike[str], *inputs: str | None) -> str:
    """The path of an output as it is meant: without a trailing slash, `~` written out, a link followed.

    Raises SpecError for URLs, the current folder, a mount point, and what is, holds or lies in one of the `inputs`
    (None: not a path).
    """
    given = os.fspath(path)
    if "://" in given:
        raise SpecError(f"{given}: only local paths can be written so far")
    out = os.path.expanduser(given)
    # What ".." stands behind may be a link, so that only the file system knows what it means.
    linked = os.path.islink(out.rstrip(os.sep)) or os.pardir in Path(out).parts
    out = os.path.realpath(out) if linked else os.path.normpath(out)
    real, here = os.path.realpath(out), os.path.realpath(os.curdir)
    if _within(here, real):
        raise SpecError(f"{given} is the current folder, or holds it: name a new folder for the output")
    if os.path.ismount(real):
        raise SpecError(f"{given} is where a file system is mounted, which no rename can replace: name a folder in it")
    for other in filter(None, inputs):
        taken = os.path.realpath(os.path.expanduser(other))
        if real == taken or (os.path.exists(real) and os.path.exists(taken) and os.path.samefile(real, taken)):
            raise SpecError(f"{given} is what is read, and would be replaced: choose another output path")
        if _within(real, taken) or _within(taken, real):
            raise SpecError(f"{given} and what is read, {other}, lie inside each other: choose another output path")
    return out


def group_path(path: str | os.PathLike[str], *inputs: str | None) -> str:
    """`output_path` of a folder of arrays. Raises SpecError also for names that promise another format."""
    out = output_path(path, *inputs)
    if suffix := next((end for end in _OTHER_FORMATS if out.lower().endswith(end)), None):
        name = os.path.basename(out)[: -len(suffix)] or "out"
        raise SpecError(
            f"{os.fspath(path)}: what is written is a folder of Zarr arrays, not a {suffix} file: take another name, "
            f"e.g. {name}.zarr"
        )
    return out


def _within(inner: str, outer: str) -> bool:
    return os.path.commonpath([inner, outer]) == outer


@dataclass(frozen=True)
class Destination:
    """Where a run writes, and what it finds there: nothing ("new"), its own unfinished work, or all of it.

    `path` never holds half an output: what is written block by block appears with all its arrays, still empty, and
    anything else appears finished.
    """

    path: str
    work: str  # path itself, or a folder beside it that takes its place at the end
    state: Literal["new", "resume", "done"]

    @contextmanager
    def made(self) -> Iterator[str]:
        """A folder in which to make what then appears at `work`, by one rename; nothing stays of it after an error."""
        scratch = self.path + SCRATCH
        try:
            yield scratch
            if self.work != scratch:
                sync_tree(Path(scratch))
                os.rename(scratch, self.work)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        sync_folder(Path(self.work).absolute().parent)

    def put_in_place(self) -> None:
        """Let finished work take the place of what was at `path`, which is there until it is replaced."""
        if self.work == self.path:
            return
        folder = Path(self.path).absolute().parent
        if not os.path.exists(self.path):
            os.rename(self.work, self.path)
            sync_folder(folder)
            return
        if self.work == self.path + _SUCCESSOR:
            _mark(self.work).touch()  # so that `destination` can tell what it replaced from work that is to come
            sync_folder(_mark(self.work).parent)
        if not exchanged(self.work, self.path):  # `destination` takes up again what stops between the two renames
            os.rename(self.path, self.path + _OLD)
            os.rename(self.work, self.path)
        sync_folder(folder)
        _settle(self.path, self.work)


def _mark(path: str) -> Path:
    """The file in what is written block by block that says that it replaces something."""
    return manifest_path(path).with_name("replacing")


def _settle(path: str, work: str) -> None:
    """Remove what was replaced at `path`, which lies where its successor was made, or aside."""
    for replaced in (work, path + _OLD):
        _discard(replaced, path)
    if work == path + _SUCCESSOR:
        _mark(path).unlink(missing_ok=True)


def _discard(folder: str, path: str) -> None:
    """Remove a folder beside `path`, if it is there, so that no half of it can stay under its name."""
    if os.path.exists(folder):
        os.rename(folder, path + _TRASH)
        shutil.rmtree(path + _TRASH, ignore_errors=True)


def exchanged(a: str, b: str) -> bool:
    """Exchange two folders at once, so that neither path is ever empty; False where the system cannot."""
    mac = sys.platform == "darwin"
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renamex_np" if mac else "renameat2", None)
    if exchange is None:
        return False
    sys.audit("os.rename", a, b, -1, -1)  # as Python does for its own
    here = () if mac else (-100,)  # AT_FDCWD: relative paths start at the current folder
    if exchange(*here, os.fsencode(a), *here, os.fsencode(b), ctypes.c_uint(_EXCHANGE)) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):  # of this kernel, or this file system
        return False
    raise OSError(code, os.strerror(code), a, None, b)


def destination(path: str, record: Mapping[str, Any], *, overwrite: bool, whole: bool = False) -> Destination:
    """Decide what to do about what is at `path`, given the record that identifies this run's work.

    Nothing there: new. Our own work with the same record: resume it, or it is done. Anything else: SpecError
    naming what differs; with `overwrite`, work of ours of the same kind (never anything else) is replaced, but only
    once its successor is finished. With `whole` the work appears at `path` only when it is finished. What a killed run
    left beside the path is removed, or put back.
    """
    if os.path.exists(path + _OLD) and not os.path.exists(path):
        os.rename(path + _OLD, path)  # it was killed between the two renames of put_in_place
    if (describe(path) or {}).get("format") in MAIN and _mark(path).exists():
        _settle(path, path + _SUCCESSOR)
    for left in (SCRATCH, _OLD, _TRASH):
        shutil.rmtree(path + left, ignore_errors=True)
    state, successor = _state(path, record), path + _SUCCESSOR
    if state == "foreign":
        raise SpecError(
            f"{path} exists and was not made by bigkpca, so it is never replaced: choose another output path, "
            "or move it away yourself"
        )
    if state == "other":
        _check_replaceable(path, record, overwrite=overwrite)
    if state == "done" or (state == "resume" and not whole):
        return Destination(path, path, state)
    if whole:
        return Destination(path, path + SCRATCH, "new")
    if state == "new":
        return Destination(path, path, "new")
    beside = _state(successor, record)
    if beside == "foreign":
        raise SpecError(f"{successor} is in the way and was not made by bigkpca: move it away")
    if beside == "other":
        _discard(successor, path)
    return Destination(path, successor, "resume" if beside in ("resume", "done") else "new")


def _check_replaceable(path: str, record: Mapping[str, Any], *, overwrite: bool) -> None:
    """Raise SpecError unless what is at `path` is of the kind that is to be written, and may be replaced."""
    about = describe(path) or {}
    if overwrite and about.get("format") != record["format"]:
        raise SpecError(
            f"{path} is a bigkpca {named(str(about.get('format')))}, which a {named(record['format'])} never replaces: "
            "choose another output path, or remove it yourself"
        )
    if not overwrite:
        raise SpecError(
            f"{path} is in the way: {difference(about, record)}; choose another output path, or replace it "
            "with --overwrite (overwrite=True in Python)"
        )


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
    with name.open("a") as file:
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


def remove_partials(root: str) -> None:
    """Remove the files below `root` that a write left behind which was killed before its rename."""
    for partial in Path(root).rglob("*.partial"):
        partial.unlink(missing_ok=True)


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
