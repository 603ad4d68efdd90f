"""Outputs: groups that a run makes block by block, that the same command finishes if the run is killed, and that appear
once they are complete.

Every block is a pure function of rows, model and block number, so writing one twice is harmless, and the manifest, the
metadata of the group, which are written last, are the only commit. Beside an output are

    PATH.partial/claim.json   the request that is being made: a record that determines every byte of the output
    PATH.partial/sums         saved sums of a fit
    PATH.partial/group        on a local disk, the group, which is renamed to PATH at the end
    PATH.partial/old          on a local disk, for a moment, what it replaces
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
from typing import Any

import numpy as np
import zarr

from bigkpca.data.blocks import Block
from bigkpca.data.stores import (
    NODE_FILES,
    AnyPath,
    LocalDisk,
    ObjectStore,
    expanded,
    is_url,
    last_name,
    parent,
    parsed,
    read_small,
    store_of,
)
from bigkpca.data.stores.base import LOCK, PARTIAL
from bigkpca.data.zarr import chunk_keys, read, whole
from bigkpca.errors import (
    Array,
    ChangedError,
    CorruptionError,
    DataError,
    DriftError,
    IncompleteError,
    LockedError,
    SpecError,
)
from bigkpca.storage import groups, records
from bigkpca.storage.groups import NewArray

_OTHER_FORMATS = (
    *(".npy", ".npz", ".csv.gz", ".csv", ".tsv", ".txt", ".parquet", ".feather", ".arrow", ".h5", ".hdf5"),
    *(".html", ".json"),
)
_CLAIM = "claim.json"
_FOLDERS = ("group", "old", "sums")
_BESIDE = {*_FOLDERS, _CLAIM, _CLAIM + PARTIAL}  # all that may be in PATH.partial
_ANY = 2**62  # more rows than any array has

Note = Callable[[str], None]


@dataclass(frozen=True)
class Output:
    """An output that this run makes, or to which it adds rows; tasks get it, too, and write its blocks."""

    path: str
    record: Mapping[str, Any]  # the request
    claim: str  # the file that names it
    folder: str  # where arrays are written
    # The manifest of an output to which rows are added, in place: each changed chunk is replaced atomically, and rows
    # that were there keep their bits, so readers see the rows from before, and then all of them.
    before: Mapping[str, Any] | None = None
    done: bool = False  # finished already
    resumed: bool = False  # an interrupted run of this request may have written blocks
    overwrite: bool = False  # a finished output may be replaced

    @property
    def partial(self) -> str:
        """The folder beside the output."""
        return parent(self.claim)

    def create(self, arrays: Mapping[str, NewArray], rows: int, chunk_rows: int) -> None:
        """Create the arrays, each with a chunk for `chunk_rows` rows, except those that an interrupted run created."""
        for name, new in arrays.items():
            groups.create_array(f"{self.folder}/{name}", new, rows, chunk_rows)

    def write(self, block: Block, values: Mapping[str, Array]) -> None:
        """Write the rows of a block in each of these arrays. May run more than once, even concurrently. Raises
        LockedError if the output has ended, or belongs to another request meanwhile: a task may outlive its run."""
        self.check_claim()
        for name, found in values.items():
            array = self._array(name, block)
            start = block.start - block.start % array.chunks[0]
            if start < block.start:  # rows are added to a chunk, which is always written whole
                before = read(whole(array), f"{self.folder}/{name}", start, block.start)
                found = np.concatenate([before, found])
            array[start : block.stop] = found

    def read(self, block: Block, names: Sequence[str]) -> dict[str, Array] | None:
        """The rows of a block in each of these arrays; None if it is not stored wholly."""
        try:
            return {name: read(whole(self._array(name, block)), self.folder, block.start, block.stop) for name in names}
        except CorruptionError:
            return None

    def _array(self, name: str, block: Block) -> zarr.Array[Any]:
        # Its stored shape grows only when rows that are added are published.
        array = groups.open_array(f"{self.folder}/{name}")
        return groups.with_rows(array, max(array.shape[0], block.stop))

    def missing(self, blocks: Sequence[Block], names: Sequence[str]) -> list[Block]:
        """The blocks of which one of these arrays has no file. Reads none."""
        stored = set(blocks)
        for name in names:
            array = groups.open_array(f"{self.folder}/{name}")
            encoded, across = array.metadata.encode_chunk_key, [0] * (array.ndim - 1)
            files = store_of(self.folder).files(f"{self.folder}/{name}")
            held = {key for key, file in files.items() if file.bytes}
            stored = {block for block in stored if encoded((block.start // array.chunks[0], *across)) in held}
        return [block for block in blocks if block not in stored]

    def check_written(self, blocks: Sequence[Block], names: Sequence[str]) -> None:
        """Raise IncompleteError if a block that was written is missing: a worker may have written it to another disk
        that is mounted at the same place."""
        if lost := self.missing(blocks, names):
            raise IncompleteError(
                f"{self.path}: {len(lost)} of {len(blocks)} blocks were written but are missing, the first with rows "
                f"{lost[0].start} to {lost[0].stop - 1}: make sure that all workers see the same disk, and run the "
                "same command again"
            )

    def check_claim(self) -> None:
        """Raise LockedError if this request no longer owns the output."""
        if _content_of(self.claim) != _content(self.record):
            raise LockedError(
                f"{self.claim} no longer names the request of this run: another run took over, or it has ended"
            )

    def publish(self, about: Mapping[str, Any]) -> None:
        """Force everything to disk, write the manifest, and put a new output in place."""
        store = store_of(self.path)
        store.sync(self.folder)
        self.check_claim()
        own = self.before or {key: value for key, value in self.record.items() if value is not None}
        about = {**own, **about}
        if "rows" in about:
            _resize(self.folder, about)
        groups.write_manifest(self.folder, about)
        if isinstance(store, LocalDisk) and self.before is None:
            check_place(self.path, self.record, overwrite=self.overwrite)  # again: it may have appeared meanwhile
            store.move(self.folder, self.path, f"{self.partial}/old")
        self.release()

    def release(self) -> None:
        """Remove what lies beside the output, unless another request has claimed it since."""
        found = _content_of(self.claim)
        if found == _content(self.record):
            clear(self.path)
        elif found is None:  # a run was killed when it had removed its claim
            store_of(self.path).remove_empty(self.partial)

    def discard(self) -> None:
        """Give up what was made, unless another request has claimed the output since: the same command begins anew."""
        store = store_of(self.path)
        if isinstance(store, LocalDisk) or self.before is not None:
            self.release()
        # Another run of this request must not publish what is left.
        elif store.swap(self.claim, _content(self.record), _removing(self.record)):
            store.remove_folder(self.folder)
            clear(self.path)


def _resize(folder: str, about: Mapping[str, Any]) -> None:
    """Give the arrays as many rows as the manifest names."""
    for name in about["arrays"]:
        array = groups.open_array(f"{folder}/{name}")
        if array.shape[0] != about["rows"]:
            array.resize((about["rows"], *array.shape[1:]))


@contextmanager
def opened(path: str, record: Mapping[str, Any], *, overwrite: bool, note: Note = lambda _: None) -> Iterator[Output]:
    """The output of this request at `path`, which no other run writes in the meantime.

    If nothing is there, the output is to be made, or continued if a run of the same request was killed. An output of
    the same request is done. Anything else raises SpecError, naming the difference; with `overwrite`, an output of
    bigkpca of the same kind (never anything else) is replaced, also one of the same request: it may be damaged. Raises
    LockedError if another run is at work, or if another request has claimed the path of an object store.
    """
    store, record, resumed = store_of(path), parsed(_content(record)), False
    with store.writer(path):
        if overwrite or not _is_made(path, record):
            check_place(path, record, overwrite=overwrite)
            if isinstance(store, LocalDisk):
                resumed = _claim(path, record, note)
            else:
                resumed = _claim_in_place(store, path, record, overwrite=overwrite, note=note)
        # Again: on an object store, a run of the same request may have published it.
        done = _is_made(path, record) and not (overwrite and isinstance(store, LocalDisk))
        folder = path if done or is_url(path) else f"{path}{PARTIAL}/group"
        # Full paths, since workers may run in another folder.
        claim, folder = store.absolute(_claim_file(path)), store.absolute(folder)
        output = Output(path, record, claim, folder, None, done, resumed, overwrite)
        if done:
            output.release()  # what a run left that was killed after it published
        with _given_up(output):
            yield output


@contextmanager
def growing(path: str, record: Mapping[str, Any], note: Note = lambda _: None) -> Iterator[Output]:
    """The finished output at `path`, to which this request adds rows behind those that it has. Raises LockedError if
    another run is at work, or if another request has claimed the path of an object store."""
    store, given = store_of(path), parsed(_content(record))
    groups.open_group(path, given["format"])  # raises SpecError for anything else
    with store.writer(path):
        about = groups.describe(path) or {}
        records.check(about, records.GROWING, path)
        record = {**given, "rows_before": about["rows"]}
        left = claimed(path)
        if left is not None and left.get("rows_before", about["rows"]) != about["rows"]:
            clear(path)  # of a run that was killed after it published
            left = None
        if left != record:
            if isinstance(store, LocalDisk):
                _claim(path, record, note)
            else:
                _claim_growth(store, path, record)
            _remove_behind(path, about)
        claim, folder = store.absolute(_claim_file(path)), store.absolute(path)
        output = Output(path, record, claim, folder, about, resumed=left == record)
        with _given_up(output):
            yield output


@contextmanager
def _given_up(output: Output) -> Iterator[None]:
    """While entered, a run is at work. If it fails since rows cannot be used, or without having made anything, another
    request can follow; rows that drifted are judged again, alone."""
    try:
        yield
    except DriftError:
        raise
    except (DataError, ChangedError):  # the rows are others before the next run
        output.discard()
        raise
    except BaseException:
        store = store_of(output.path)
        if not any(store.exists(made) for made in (output.folder, f"{output.partial}/sums")):
            output.release()
        raise


def _remove_behind(path: str, about: Mapping[str, Any]) -> None:
    """Remove what an interrupted run of another request left behind the rows that the manifest names."""
    store, rows = store_of(path), about["rows"]
    _resize(path, about)
    for name in about["arrays"]:
        array, files = groups.open_array(f"{path}/{name}"), store.files(f"{path}/{name}")
        for key in set(chunk_keys(array, _ANY, files)).difference(chunk_keys(array, rows, files)):
            store.remove_file(f"{path}/{name}/{key}")


def claimed(path: str) -> dict[str, Any] | None:
    """The request that is being made at `path`, or that a killed run left unfinished; None if there is none."""
    found = _content_of(_claim_file(path))
    return None if found is None else _record(found)


def clear(path: str) -> None:
    """Remove what lies beside an output, the claim last."""
    store, partial = store_of(path), path + PARTIAL
    for name in sorted(_BESIDE.intersection(_names(partial)), key=lambda name: name == _CLAIM):
        remove = store.remove_folder if name in _FOLDERS else store.remove_file
        remove(f"{partial}/{name}")
    store.remove_empty(partial)


def tidy(path: str) -> None:
    """Remove what lies beside an output if a run left it that was killed right after it published."""
    store = store_of(path)
    if store.exists(path + PARTIAL) or store.exists(path + LOCK):
        with store.writer(path):
            claim = claimed(path) or {}
            if _is_made(path, {key: value for key, value in claim.items() if key != "rows_before"}):
                clear(path)


def _is_made(path: str, record: Mapping[str, Any]) -> bool:
    """Whether the finished output of this request is at the path."""
    about = groups.describe(path)
    return about is not None and all(about.get(key) == value for key, value in record.items())


def check_place(path: str, record: Mapping[str, Any], *, overwrite: bool) -> None:
    """Raise SpecError if output with this record, or this part of one, may not be put at `path`."""
    store, about = store_of(path), groups.describe(path)
    if about is None:
        there = store.exists(path) and not (store.is_folder(path) and not store.names(path))
        if there and (isinstance(store, LocalDisk) or claimed(path) is None):
            raise _foreign(path)
    elif _is_made(path, record):
        return
    elif not overwrite:
        raise SpecError(
            f"{path} already holds {other(about, record)}: choose another output path, or replace it with --overwrite "
            "(overwrite=True in Python)"
        )
    elif about["format"] != record["format"]:
        raise SpecError(
            f"{path} is a bigkpca {groups.named(about['format'])}, which a {groups.named(record['format'])} never "
            "replaces: choose another output path, or remove it yourself"
        )


def _foreign(path: str, maker: str = "bigkpca") -> SpecError:
    return SpecError(
        f"{path} exists and was not made by {maker}, so it is never replaced: choose another output path, or move it "
        "elsewhere yourself"
    )


def _claim(path: str, record: Mapping[str, Any], note: Note) -> bool:
    """Claim a path on a local disk, where this run holds the lock: what other requests left is removed. Return whether
    a run of this request had claimed it."""
    store, before = store_of(path), _check_beside(path)
    if before == _content(record):
        return True
    if before is not None:
        note(f"removed what an interrupted run left of {other(_record(before), record)}")
    clear(path)
    store.make_folder(path + PARTIAL)
    store.write(_claim_file(path), _content(record))
    return False


def _claim_in_place(store: ObjectStore, path: str, record: Mapping[str, Any], *, overwrite: bool, note: Note) -> bool:
    """Claim a path of an object store, where the output is written in place; return whether a run of this request had
    claimed it.

    With `overwrite`, an earlier output is removed first, and so is what another request left. Meanwhile, the claim
    records that a removal is under way, so that the same command can finish one that was interrupted. Two runs cannot
    both remove: the server replaces a claim only if it is still the one that the run has read."""
    claim, content, removing = _claim_file(path), _content(record), _removing(record)
    before = _check_beside(path)
    resumed = before == content
    if before is None:
        there = store.exists(path)
        if there and groups.describe(path) is None:
            raise _foreign(path)
        before = store.claim(claim, removing if there else content)
    elif before not in (content, removing) and overwrite and store.swap(claim, before, removing):
        before = removing
    if before not in (content, removing):
        raise _taken(path, before, record)
    made = _is_made(path, record)
    if (made and not overwrite) or (before == content and (made or groups.describe(path) is None)):
        return resumed
    try:
        check_place(path, record, overwrite=overwrite)  # again, now that no other run changes what is there
    except SpecError:
        store.remove_file(claim)
        raise
    note(f"removing what is at {path} first")
    if store.swap(claim, before, removing):
        store.remove_folder(f"{path}{PARTIAL}/sums")
        store.remove_folder(path)
        if store.swap(claim, removing, content):
            return False
    raise _taken(path, _content_of(claim) or b"", record)


def _claim_growth(store: ObjectStore, path: str, record: Mapping[str, Any]) -> None:
    """Claim a finished output in an object store, to which rows are added in place."""
    _check_beside(path)
    there = store.claim(_claim_file(path), _content(record))
    if there != _content(record):
        raise _taken(path, there, record)
    if (groups.describe(path) or {}).get("rows") != record["rows_before"]:
        store.remove_file(_claim_file(path))
        raise LockedError(f"{path}: another run has just added rows to it: run the same command again")


def _check_beside(path: str) -> bytes | None:
    """The claim of a path, if there is one. Raises SpecError if others have put something where it would be."""
    store, partial = store_of(path), path + PARTIAL
    found, names = _content_of(_claim_file(path)), _names(partial)
    others = not names.issubset(_BESIDE) or (not names and store.exists(partial) and not store.is_folder(partial))
    linked = store.resolved(partial) != store.resolved(path) + PARTIAL
    if linked or (found is None and others):
        raise SpecError(f"{partial} exists and was not made by bigkpca, which writes there: move it elsewhere")
    return found


def _names(folder: str) -> set[str]:
    """Names in a folder; none if it does not exist, as another run of the request may just have removed it."""
    try:
        return set(store_of(folder).names(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _taken(path: str, claim: bytes, record: Mapping[str, Any]) -> LockedError:
    there, remove = _record(claim), "what it made with --overwrite (overwrite=True in Python)"
    if "rows_before" in there:
        remove = _claim_file(path)  # rows that are added are not published before the end
    return LockedError(
        f"{path} is being made, or was left unfinished, by another request, of {other(there, record)}: wait until that "
        f"run ends, finish it by its own command, or remove {remove} once it has ended"
    )


def _claim_file(path: str) -> str:
    return f"{path}{PARTIAL}/{_CLAIM}"


def _content_of(claim: str) -> bytes | None:
    """The content of a claim; None if there is none."""
    try:
        return read_small(claim)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _record(claim: bytes) -> dict[str, Any]:
    """The request in a claim, which may be damaged."""
    try:
        found = parsed(claim)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _content(record: Mapping[str, Any]) -> bytes:
    """A claim of this request; equal requests have equal claims."""
    return json.dumps(record, sort_keys=True, indent=1).encode()


def _removing(record: Mapping[str, Any]) -> bytes:
    """A claim of this request while it removes what is at the path."""
    return _content({**record, "removing": True})


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


def check_file(out: str, maker: str, mark: str = "") -> None:
    """Raise SpecError unless the command `maker` may write a file at `out`: its folder exists and contains no arrays,
    and nothing is there, or a file whose first 2000 bytes contain `mark`."""
    store = store_of(out)
    if not is_url(out) and not store.is_folder(parent(store.absolute(out))):
        raise SpecError(f"{out} cannot be written: its folder does not exist")
    if store.is_folder(out):
        raise SpecError(f"{out} is a folder, where {maker} writes a file: choose another name")
    inner = store.absolute(out)
    while (folder := parent(inner)) != inner:
        if any(store.exists(f"{folder}/{name}") for name in NODE_FILES):
            raise SpecError(f"{out} cannot be written: it would lie in {folder}, a folder of Zarr arrays")
        inner = folder
    if store.exists(out):
        with store.open(out) as file:
            if mark.encode() not in file.read(2000):
                raise _foreign(out, maker)


def other(there: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """What existing output with the record `there`, which may be damaged, is, as opposed to the requested output."""
    what = groups.named(str(there.get("format", "output of another kind")))
    if there.get("format") != record["format"]:
        return f"a bigkpca {what}"
    for key in ("identity", "input"):
        rows, requested = there.get(key), record.get(key)
        if rows != requested and isinstance(rows, dict) and isinstance(requested, dict):
            path, shape = rows.get("path"), rows.get("shape")
            if path and (path, shape) == (requested.get("path"), requested.get("shape")):
                changed = rows.get("weights") == requested.get("weights")
                return f"a {what} of {path} {'before it changed' if changed else 'with other sample weights'}"
            known = [path] if isinstance(path, str) else []
            known += [f"{shape[0]:,} rows"] if isinstance(shape, list) and shape and type(shape[0]) is int else []
            return f"a {what} of other rows" + (f" ({', '.join(known)})" if known else "")
    here, held = _options(record), _options({key: there.get(key) for key in record})
    differing = [key for key in {**here, **held} if here.get(key) != held.get(key)][:3]
    values = [f"{key} is {held.get(key)!r:.80} there and {here.get(key)!r:.80} here" for key in differing]
    return f"a {what} made with other options ({', '.join(values)})"


def _options(record: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a record, with the options of a fit, or of columns, beside the others."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        found |= value if key in ("spec", "options") and isinstance(value, dict) else {key: value}
    return found
