"""Outputs: groups that a run makes block by block, that the same command finishes if the run is killed, and that appear
once they are complete.

Every block is a pure function of rows, model and block number, so writing one twice is harmless, and the manifest, the
metadata of the group, which are written last, are the only commit. Beside an output are

    PATH.partial/claim.json   the request that is being made: a record that determines every byte of the output
    PATH.partial/sums         saved sums of a fit
    PATH.partial/group        on a local disk, the group, which is renamed to PATH at the end
    PATH.bigkpca-lock         on a local disk, the lock of the run, which the kernel releases when its process ends

An object store can neither rename nor lock: there, the group is written in place, and the claim, of which the server
makes only one, keeps other requests out. Two runs of one request write the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import zarr

from bigkpca.data.blocks import Block
from bigkpca.data.json_files import parsed, read_record, read_small
from bigkpca.data.stores import NODE_FILES, AnyPath, LocalDisk, expanded, is_url, last_name, parent, store_of
from bigkpca.data.stores.base import PARTIAL
from bigkpca.data.zarr import read, whole
from bigkpca.errors import Array, CorruptionError, IncompleteError, LockedError, SpecError
from bigkpca.storage import groups

_OTHER_FORMATS = (
    *(".npy", ".npz", ".csv.gz", ".csv", ".tsv", ".txt", ".parquet", ".feather", ".arrow", ".h5", ".hdf5"),
    *(".html", ".json"),
)
_CLAIM = "claim.json"


class NewArray(NamedTuple):
    """An array of an output: the shape of a row, the dtype, names of the dims, and attributes."""

    row: tuple[int, ...]
    dtype: Any
    names: tuple[str, ...]
    attributes: Mapping[str, Any] | None = None
    compress: bool = False


@dataclass(frozen=True)
class Target:
    """Where tasks write blocks of an output of `rows` rows: a value that is sent to each of them. claim: the file that
    names the request, and its content, without which nothing is written: a task may outlive its run."""

    folder: str
    rows: int
    claim: tuple[str, bytes]

    def write(self, block: Block, values: Mapping[str, Array]) -> None:
        """Write the rows of a block in each of these arrays. May run more than once, even concurrently. Raises
        LockedError if the output has ended, or belongs to another request meanwhile."""
        path, content = self.claim
        try:
            with store_of(path).open(path) as file:
                same = file.read() == content
        except FileNotFoundError:
            same = False
        if not same:
            raise LockedError(f"{path} no longer names the request of this run: another run took over, or it has ended")
        for name, found in values.items():
            self._array(name)[block.start : block.stop] = found

    def read(self, block: Block, names: Sequence[str]) -> dict[str, Array]:
        """The rows of a block in each of these arrays. Raises CorruptionError if it is not stored wholly."""
        return {name: read(whole(self._array(name)), self.folder, block.start, block.stop) for name in names}

    def decodes(self, block: Block, names: Sequence[str]) -> bool:
        """Whether a block is stored wholly in each of these arrays."""
        try:
            self.read(block, names)
        except CorruptionError:
            return False
        return True

    def _array(self, name: str) -> zarr.Array[Any]:
        array = groups.open_array(f"{self.folder}/{name}")
        return array if array.shape[0] >= self.rows else groups.with_rows(array, self.rows)


@dataclass(frozen=True)
class Output:
    """An output that this run may write. record: the request. folder: where its arrays are made. done: whether it is
    already finished."""

    path: str
    record: Mapping[str, Any]
    folder: str
    done: bool = False

    @property
    def partial(self) -> str:
        """The folder beside the output."""
        return self.path + PARTIAL

    def target(self, rows: int) -> Target:
        """Where tasks write its blocks."""
        claim = f"{self.partial}/{_CLAIM}"
        return Target(store_of(self.folder).absolute(self.folder), rows, (claim, _content(self.record)))

    def create(self, arrays: Mapping[str, NewArray], rows: int, chunk_rows: int) -> None:
        """Create the arrays, each with a chunk for `chunk_rows` rows, except those that an interrupted run created."""
        for name, new in arrays.items():
            path, shape = f"{self.folder}/{name}", (rows, *new.row)
            if not _is_there(path, shape, new.dtype, chunk_rows):
                own = {"compress": new.compress, "attributes": new.attributes}
                groups.create_array(path, shape, new.dtype, chunk_rows, new.names[: len(shape)], **own)

    def missing(self, blocks: Sequence[Block], names: Sequence[str]) -> list[Block]:
        """The blocks that are not stored in each of these arrays. Lists files, and reads none."""
        stored = []
        for name in names:
            array, files = (
                groups.open_array(f"{self.folder}/{name}"),
                store_of(self.folder).files(f"{self.folder}/{name}"),
            )
            keys = {key for key, file in files.items() if file.bytes}
            stored.append({block.number for block in blocks if _key(array, block) in keys})
        return [block for block in blocks if not all(block.number in numbers for numbers in stored)]

    def check_written(self, blocks: Sequence[Block], names: Sequence[str]) -> None:
        """Raise IncompleteError if a block that was written is missing: a worker may have written it to another disk
        that is mounted at the same place."""
        if lost := self.missing(blocks, names):
            raise IncompleteError(
                f"{self.path}: {len(lost)} of {len(blocks)} blocks were written but are missing, the first with rows "
                f"{lost[0].start} to {lost[0].stop - 1}: make sure that all workers see the same disk, and run the "
                "same command again"
            )

    def publish(self, about: Mapping[str, Any]) -> None:
        """Force everything to disk, write the manifest, and put the output in place."""
        store = store_of(self.path)
        store.sync(self.folder)
        self._check_claim()
        if "rows" in about:
            self._resize(about)
        own = {key: value for key, value in self.record.items() if value is not None}
        groups.write_manifest(self.folder, {**own, **about})
        if isinstance(store, LocalDisk):
            store.remove_folder(self.path)  # an earlier output, which `opened` allowed this run to replace
            store.move(self.folder, self.path)
        clear(self.path)

    def _resize(self, about: Mapping[str, Any]) -> None:
        """Give the arrays as many rows as the manifest will name."""
        for name in about["arrays"]:
            array = groups.open_array(f"{self.folder}/{name}")
            if array.shape[0] != about["rows"]:
                array.resize((about["rows"], *array.shape[1:]))

    def _check_claim(self) -> None:
        if _claimed(self.path) != _content(self.record):
            raise LockedError(f"{self.path}: another run took over while this one was at work: nothing was published")


@dataclass(frozen=True)
class Growth(Output):
    """Rows that are added to a finished output, in place: changed chunks, then the shapes of arrays, then the manifest.
    Each is replaced atomically, and rows that were there keep their bits, so readers see the rows from before, and then
    all of them."""

    def publish(self, about: Mapping[str, Any]) -> None:
        """Force everything to disk, and replace the manifest, which names the new number of rows."""
        store = store_of(self.path)
        store.sync(self.folder)
        self._check_claim()
        self._resize(about)
        groups.write_manifest(self.folder, about)
        store.sync(self.folder)
        clear(self.path)


@contextmanager
def opened(
    path: str, record: Mapping[str, Any], *, overwrite: bool, note: Callable[[str], None] = lambda _: None
) -> Iterator[Output]:
    """The output of this request at `path`, which no other run writes in the meantime.

    If nothing is there, the output is to be made, or continued if a run of the same request was killed. An output of
    the same request is done. Anything else raises SpecError, naming the difference; with `overwrite`, an output of
    bigkpca of the same kind (never anything else) is replaced. Raises LockedError if another run is at work, or if
    another request has claimed the path of an object store.
    """
    store = store_of(path)
    with store.writer(path):
        about = groups.describe(path)
        if about is not None and all(about.get(key) == value for key, value in record.items()):
            clear(path)  # what a run left that was killed after it published
            yield Output(path, record, path, done=True)
            return
        check_place(path, record, overwrite=overwrite)
        if isinstance(store, LocalDisk):
            _claim(path, record, note)
            yield Output(path, record, f"{path}{PARTIAL}/group")
            return
        _claim_in_place(path, record, overwrite=overwrite, note=note)
        yield Output(path, record, path)


@contextmanager
def growing(path: str, record: Mapping[str, Any], note: Callable[[str], None] = lambda _: None) -> Iterator[Growth]:
    """The finished output at `path`, to which this request adds rows. Raises LockedError if another run is at work, or
    if another request has claimed the path of an object store."""
    with store_of(path).writer(path):
        _claim(path, record, note)
        yield Growth(path, record, path)


def claimed(path: str) -> dict[str, Any] | None:
    """The request that is being made at `path`, or that a killed run left unfinished; None if there is none."""
    found: dict[str, Any] | None = read_record(f"{path}{PARTIAL}/{_CLAIM}", "remove it")
    return found


def clear(path: str) -> None:
    """Remove what lies beside an output, the claim last."""
    store, partial = store_of(path), path + PARTIAL
    for name in ("group", "sums"):
        store.remove_folder(f"{partial}/{name}")
    store.remove_file(f"{partial}/{_CLAIM}")
    store.remove_folder(partial)


def check_place(path: str, record: Mapping[str, Any], *, overwrite: bool) -> None:
    """Raise SpecError if output with this record, or this part of one, may not be put at `path`."""
    store, about = store_of(path), groups.describe(path)
    if about is None:
        there = store.exists(path) and not (store.is_folder(path) and not store.names(path))
        if there and (isinstance(store, LocalDisk) or _claimed(path) is None):
            raise SpecError(
                f"{path} exists and was not made by bigkpca, so it is never replaced: choose another output path, or "
                "move it elsewhere yourself"
            )
        return
    if all(about.get(key) == value for key, value in record.items()):
        return
    if not overwrite:
        raise SpecError(
            f"{path} already holds {other(about, record)}: choose another output path, or replace it with --overwrite "
            "(overwrite=True in Python)"
        )
    if about["format"] != record["format"]:
        raise SpecError(
            f"{path} is a bigkpca {groups.named(about['format'])}, which a {groups.named(record['format'])} never "
            "replaces: choose another output path, or remove it yourself"
        )


def _claim(path: str, record: Mapping[str, Any], note: Callable[[str], None]) -> None:
    """Claim a path for this request. On a local disk, where the lock is held, a claim of another request is that of a
    run that has ended: what it left is removed. On an object store it raises LockedError."""
    store, partial = store_of(path), path + PARTIAL
    before = _claimed(path)
    if before is not None and before != _content(record):
        if not isinstance(store, LocalDisk):
            raise _taken(path, before, record)
        note(f"removed what an interrupted run left of {other(_record(before), record)}")
        clear(path)
    if (
        before is None
        and store.is_folder(partial)
        and any(name != f"{_CLAIM}{PARTIAL}" for name in store.names(partial))
    ):
        raise SpecError(f"{partial} exists and was not made by bigkpca, which writes there: move it elsewhere")
    store.make_folder(partial)
    there = store.claim(f"{partial}/{_CLAIM}", _content(record))
    if there != _content(record):
        raise _taken(path, there, record)


def _claim_in_place(path: str, record: Mapping[str, Any], *, overwrite: bool, note: Callable[[str], None]) -> None:
    """Claim a path of an object store, where the output is written in place: an earlier output is removed first, and so
    is what another request left, with `overwrite`. A claim that says so lets the same command go on with that."""
    store, content = store_of(path), _content(record)
    removing = _content({**record, "removing": True})
    before = _claimed(path)
    if before == content or (before is None and not store.exists(path)):
        _claim(path, record, note)
        return
    if before not in (None, removing):
        if not overwrite:
            raise _taken(path, before, record)
        store.write(f"{path}{PARTIAL}/{_CLAIM}", removing)
    else:
        _claim(path, {**record, "removing": True}, note)
    note(f"removing what is at {path} first")
    store.remove_folder(f"{path}{PARTIAL}/sums")
    store.remove_folder(path)
    store.write(f"{path}{PARTIAL}/{_CLAIM}", content)


def _taken(path: str, claim: bytes, record: Mapping[str, Any]) -> LockedError:
    return LockedError(
        f"{path} is being made, or was left unfinished, by another request, of {other(_record(claim), record)}: wait "
        "until that run ends, finish it by its own command, or remove what it made with --overwrite (overwrite=True in "
        "Python) once it has ended"
    )


def _claimed(path: str) -> bytes | None:
    """The content of the claim of a path; None if there is none."""
    try:
        return read_small(f"{path}{PARTIAL}/{_CLAIM}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _record(claim: bytes) -> dict[str, Any]:
    """The request in a claim, which may be damaged."""
    try:
        found = parsed(claim)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _key(array: zarr.Array[Any], block: Block) -> str:
    """The name of the file that holds a block, in the folder of the array."""
    return array.metadata.encode_chunk_key((block.number, *[0] * (array.ndim - 1)))


def _is_there(path: str, shape: tuple[int, ...], dtype: Any, chunk_rows: int) -> bool:
    try:
        found = groups.open_array(path)
    except Exception:  # Zarr raises several types where nothing is, and for metadata that were cut off
        return False
    return found.shape == shape and found.dtype == dtype and found.chunks[0] == max(1, chunk_rows)


def _content(record: Mapping[str, Any]) -> bytes:
    """A claim of this request; equal requests have equal claims."""
    return json.dumps(record, sort_keys=True, indent=1).encode()


def output_path(path: AnyPath, *inputs: str | None) -> str:
    """The normalised path of an output: without a trailing slash, with `~` expanded and a link followed.

    Raises SpecError for URLs of unknown object stores, a bucket, the current folder, a mount point, a path below a
    file, and a path that equals, contains or lies in one of the `inputs` (None: not a path).
    """
    return store_of(expanded(path)).output_path(os.fspath(path), tuple(filter(None, inputs)))


def group_path(path: AnyPath, *inputs: str | None) -> str:
    """`output_path` of a folder of arrays. Also raises SpecError for names with the suffix of another format."""
    out = output_path(path, *inputs)
    if suffix := next((end for end in _OTHER_FORMATS if out.lower().endswith(end)), None):
        name = last_name(out)[: -len(suffix)] or "out"
        raise SpecError(
            f"{os.fspath(path)}: the output is a folder of Zarr arrays, not a {suffix} file: choose another name, e.g. "
            f"{name}.zarr"
        )
    return out


def check_file(out: str, ours: Callable[[bytes], bool], example: str) -> bool:
    """Whether a file may be written at `out`: nothing exists there, or a file whose first 2000 bytes are `ours`.

    Raises SpecError if its folder does not exist or contains arrays, and if `out` is a folder.
    """
    store = store_of(out)
    if not is_url(out) and not store.is_folder(parent(store.absolute(out))):
        raise SpecError(f"{out} cannot be written: its folder does not exist")
    if store.is_folder(out):
        raise SpecError(f"{out} is a folder: specify a file name, e.g. {example}")
    inner = store.absolute(out)
    while (folder := parent(inner)) != inner:
        if any(store.exists(f"{folder}/{name}") for name in NODE_FILES):
            raise SpecError(f"{out} cannot be written: it would lie in {folder}, a folder of Zarr arrays")
        inner = folder
    return not store.exists(out) or ours(head(out))


def check_local(out: str) -> None:
    """Raise SpecError for a URL, for output that is written to local disks only."""
    if is_url(out):
        raise SpecError(f"{out}: reports and comparisons are written to local disks only: use a local path")


def head(path: str) -> bytes:
    """The first 2000 bytes of a file."""
    with store_of(path).open(path) as file:
        return file.read(2000)


def other(there: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """What existing output with the record `there` is, as opposed to the requested output."""
    what = groups.named(str(there.get("format")))
    if there.get("format") != record["format"]:
        return f"a bigkpca {what}"
    for key in ("identity", "input"):
        rows, requested = there.get(key), record.get(key)
        if rows != requested and isinstance(rows, dict) and isinstance(requested, dict):
            if rows.get("path") and all(rows.get(name) == requested.get(name) for name in ("path", "shape")):
                if rows.get("weights") != requested.get("weights"):
                    return f"a {what} of {rows['path']} with other sample weights"
                return f"a {what} of {rows['path']} before it changed"
            shape = rows.get("shape")  # of a record that may be damaged
            known = [f"{shape[0]:,} rows"] if isinstance(shape, list) and shape and type(shape[0]) is int else []
            known = [rows["path"], *known] if isinstance(rows.get("path"), str) else known
            return f"a {what} of other rows" + (f" ({', '.join(known)})" if known else "")
    here, held = dict(_flat(record)), dict(_flat({key: there.get(key) for key in record}))
    differing = [key for key in {**here, **held} if here.get(key) != held.get(key)][:3]
    values = [
        f"{key.removeprefix('spec.')} is {held.get(key)!r:.80} there and {here.get(key)!r:.80} here"
        for key in differing
    ]
    return f"a {what} made with other options ({', '.join(values)})"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
