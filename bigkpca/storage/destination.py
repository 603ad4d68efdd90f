"""Where a run writes: what already exists, what may be replaced, and how finished output is published."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from bigkpca.data.json_files import run_folder, run_folders, scratch_folder, scratch_folders
from bigkpca.data.stores import NODE_FILES, AnyPath, expanded, is_url, last_name, parent, store_of
from bigkpca.errors import IncompleteError, SpecError
from bigkpca.storage.groups import describe, is_finished, named

_OTHER_FORMATS = (
    *(".npy", ".npz", ".csv.gz", ".csv", ".tsv", ".txt", ".parquet", ".feather", ".arrow", ".h5", ".hdf5"),
    *(".html", ".json"),
)


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


# Beside an output, in addition to scratches, run folders and the lock: what it replaced, and what is being removed,
# with names that nothing else has.
_OLD, _TRASH = ".bigkpca-old", ".bigkpca-trash"


@dataclass(frozen=True)
class Destination:
    """Where a run writes: into a folder beside `path`, which takes its place by one rename when it is finished.

    `path` never contains a partial output.
    """

    path: str
    work: str  # the folder beside it
    done: bool  # this output is finished at `path`
    free: bool = False  # nothing was at `path`
    note: str | None = None  # a note for the user

    @contextmanager
    def made(self) -> Iterator[str]:
        """A scratch folder that becomes `work` by one rename; on an error it is removed."""
        store, scratch = store_of(self.path), scratch_folder(self.path)
        try:
            store.make_new_folder(scratch)
        except FileExistsError as error:
            raise SpecError(f"{scratch} exists, where this run writes its unfinished output: remove it") from error
        try:
            yield scratch
            if self.work != scratch:
                store.sync(scratch)
                store.move(scratch, self.work)
        except BaseException:
            store.check_writer(self.path)  # otherwise its new writer may be finishing a move of what lies there
            store.remove_folder(scratch)
            raise

    def put_in_place(self) -> None:
        """Publish finished output at `path`; earlier output stays until it is replaced."""
        store = store_of(self.path)
        store.check_writer(self.path)
        if not store.exists(self.path):
            store.move(self.work, self.path)
            return
        if self.free and (not store.is_folder(self.path) or store.names(self.path)):  # it was invisible for a moment
            raise IncompleteError(
                f"{self.path} did not exist when this run began, but does now: run the same command again"
            )
        if not store.exchange(self.work, self.path):
            store.move(self.path, self.path + _OLD)  # `open_destination` handles a stop between these two
            store.move(self.work, self.path)
        for replaced in (self.work, self.path + _OLD):
            _discard(replaced, self.path)

    def clear(self) -> None:
        """Remove the folder beside the output, since nothing in it is needed."""
        _discard(self.work, self.path)


def _discard(folder: str, path: str) -> None:
    """Remove a folder beside `path`, if it exists."""
    store_of(path).discard(folder, path + _TRASH)


def open_destination(path: str, record: Mapping[str, Any], *, overwrite: bool, whole: bool = False) -> Destination:
    """Determine what is at `path`, given the record that identifies the output of this run.

    If nothing is there, the output is to be made. Output with the same record is done if it is finished. Anything else
    raises SpecError, naming the difference; with `overwrite`, bigkpca's own output of the same kind (never anything
    else) is replaced, but only once its successor is finished. Output is made block by block, in a folder that the same
    run finds again, or else `whole`. What killed runs left beside the path is removed or put back.
    """
    store = store_of(path)
    store.recover(path)
    _remove_links(path)
    if describe(path + _OLD) is not None and not store.exists(path):  # otherwise a removal left it
        store.move(path + _OLD, path)  # it was killed between the two renames of put_in_place
    for left in (*scratch_folders(path), path + _OLD, path + _TRASH):
        store.remove_folder(left)
    check_place(path, record, overwrite=overwrite)
    state, work = _state(path, record), scratch_folder(path) if whole else run_folder(path, record)
    note = _remove_runs(path, work, all_others=state != "done")
    if state == "half" and not whole and not store.exists(work):
        store.move(path, work)  # where earlier versions made it
    return Destination(path, work, state == "done", state == "new", note)


def check_place(path: str, record: Mapping[str, Any], *, overwrite: bool) -> None:
    """Raise SpecError if output with this record, or this part of one, may not be put at `path`."""
    state = _state(path, record)
    if state == "foreign":
        raise SpecError(
            f"{path} exists and was not made by bigkpca, so it is never replaced: choose another output path, or move "
            "it elsewhere yourself"
        )
    if state != "other":
        return
    about = describe(path) or {}
    if not overwrite:
        raise SpecError(
            f"{path} already holds {other(about, record)}: choose another output path, or replace it with --overwrite "
            "(overwrite=True in Python)"
        )
    if about.get("format") != record["format"]:
        raise SpecError(
            f"{path} is a bigkpca {named(str(about.get('format')))}, which a {named(record['format'])} never replaces: "
            "choose another output path, or remove it yourself"
        )


def destination_of_rows(path: str, record: Mapping[str, Any]) -> Destination:
    """Where a run makes blocks to be added to the finished output at `path`; `record` identifies the run.

    What killed runs left beside the path is removed, except blocks of the same run.
    """
    work = run_folder(path, record)
    _remove_links(path)
    for left in scratch_folders(path):
        store_of(path).remove_folder(left)
    _remove_runs(path, work, all_others=True)
    return Destination(path, work, done=False)


def remove_all_runs(path: str) -> None:
    """Remove everything that runs left beside the finished output at `path`."""
    for left in (*scratch_folders(path), path + _TRASH):
        store_of(path).remove_folder(left)
    for folder in run_folders(path):
        _discard(folder, path)


def _remove_links(path: str) -> None:
    """Remove links from where only runs write beside `path`: otherwise runs would write to wherever a foreign link
    points."""
    for folder in (*scratch_folders(path), *run_folders(path)):
        store_of(path).remove_links(folder, below=True)
    for folder in (path + _OLD, path + _TRASH):  # which may contain earlier output, with links of its owner
        store_of(path).remove_links(folder, below=False)


def _remove_runs(path: str, work: str, *, all_others: bool) -> str | None:
    """Remove run folders that no run continues (what a run replaced, and what disconnected workers wrote); with
    `all_others`, also unfinished output of runs other than that in `work`. Returns a note if there was such output."""
    removed = []
    for folder in run_folders(path):
        about = describe(folder) or {}
        resumable = run_folder(path, {key: about[key] for key in about if key != "format_version"}) == folder
        if not resumable or (all_others and folder != work):
            _discard(folder, path)
            removed += [last_name(folder)] if resumable else []
    return f"removed unfinished output of other runs: {', '.join(removed)}" if removed else None


def _state(path: str, record: Mapping[str, Any]) -> Literal["new", "half", "done", "other", "foreign"]:
    store = store_of(path)
    if not store.exists(path) or (store.is_folder(path) and not store.names(path)):
        return "new"
    about = describe(path)
    if about is None:
        return "foreign"
    if any(about.get(key) != value for key, value in record.items()):
        return "other"
    return "done" if is_finished(path) else "half"


def other(there: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """What existing output with the record `there` is, as opposed to the requested output."""
    what = named(str(there.get("format")))
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
    for key, of in (("coordinates", "rows"), ("column_labels", "columns")):
        if key in record and there.get(key) != record[key]:
            return f"a {what} of {of} with other coordinates ({_difference(there.get(key), record[key])})"
    here, held = dict(_flat(record)), dict(_flat({key: there.get(key) for key in record}))
    differing = [key for key in {**here, **held} if here.get(key) != held.get(key)][:3]
    values = [
        f"{key.removeprefix('spec.')} is {held.get(key)!r:.80} there and {here.get(key)!r:.80} here"
        for key in differing
    ]
    return f"a {what} made with other options ({', '.join(values)})"


def _difference(there: Any, here: Any) -> str:
    """How coordinates that are stored, in a record that may be damaged, differ from those of a run."""
    held, given = (each if isinstance(each, dict) else {} for each in (there, here))
    if not (held and given):
        return f"there are none {'here' if held else 'there'}"
    if held.get("dim") != given["dim"]:
        return f"the dim is {held.get('dim')!r:.80} there and {given['dim']!r} here"
    stored = found if isinstance(found := held.get("coords"), dict) else {}
    names = [name for name in {**stored, **given["coords"]} if stored.get(name) != given["coords"].get(name)]
    return f"the difference is in {', '.join(names) or 'the levels'}"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
