"""Where a run writes: what exists already, what may be replaced, and how finished output is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from bigkpca.data.stores import parent, store_of
from bigkpca.data.zarr import MAIN, SCRATCH
from bigkpca.errors import SpecError
from bigkpca.storage.groups import describe, is_finished, manifest_path, named

# Beside an output, besides SCRATCH and the lock: a successor that is filled block by block, what it replaced, what is
# being removed; names that nobody gives to anything else.
_SUCCESSOR, _OLD, _TRASH = ".bigkpca-next", ".bigkpca-old", ".bigkpca-trash"


@dataclass(frozen=True)
class Destination:
    """Where a run writes, and what is there: nothing ("new"), its own unfinished output, or its finished output.

    `path` never holds half an output: what is written block by block appears with all its arrays, still empty, and
    anything else appears finished.
    """

    path: str
    work: str  # path itself, or a folder beside it that takes its place at the end
    state: Literal["new", "resume", "done"]

    @contextmanager
    def made(self) -> Iterator[str]:
        """A scratch folder that becomes `work` by one rename; an error removes it."""
        store, scratch = store_of(self.path), self.path + SCRATCH
        try:
            yield scratch
            if self.work != scratch:
                store.sync(scratch)
                store.move(scratch, self.work)
        except BaseException:
            store.remove_folder(scratch)
            raise

    def put_in_place(self) -> None:
        """Publish finished output at `path`; what was there stays until it is replaced."""
        if self.work == self.path:
            return
        store = store_of(self.path)
        store.check_writer(self.path)
        if not store.exists(self.path):
            store.move(self.work, self.path)
            return
        if self.work == self.path + _SUCCESSOR:  # so that `open_destination` can tell what it replaced from a successor
            store.write(_mark(self.work), b"")
        if not store.exchange(self.work, self.path):
            store.move(self.path, self.path + _OLD)  # `open_destination` takes up what stops between these two
            store.move(self.work, self.path)
        _settle(self.path, self.work)


def _mark(path: str) -> str:
    """The file that marks block-wise output as the replacement of older output."""
    return f"{parent(manifest_path(path))}/replacing"


def _settle(path: str, work: str) -> None:
    """Remove what was replaced at `path`: it lies at `work`, or aside."""
    for replaced in (work, path + _OLD):
        _discard(replaced, path)
    if work == path + _SUCCESSOR:
        store_of(path).remove_file(_mark(path))


def _discard(folder: str, path: str) -> None:
    """Remove a folder beside `path`, if it exists; renamed first, so that no half of it stays under its name."""
    store = store_of(path)
    if store.exists(folder):
        store.move(folder, path + _TRASH)
        store.remove_folder(path + _TRASH)


def open_destination(path: str, record: Mapping[str, Any], *, overwrite: bool, whole: bool = False) -> Destination:
    """Find out what is at `path`, given the record that identifies the output of this run.

    Nothing there: new. Our own work with the same record: resume it, or it is done. Anything else: SpecError
    naming what differs; with `overwrite`, work of ours of the same kind (never anything else) is replaced, but only
    once its successor is finished. With `whole` the work appears at `path` only when it is finished. What a killed run
    left beside the path is removed, or put back.
    """
    store = store_of(path)
    store.recover(path)
    if store.exists(path + _OLD) and not store.exists(path):
        store.move(path + _OLD, path)  # it was killed between the two renames of put_in_place
    if (describe(path) or {}).get("format") in MAIN and store.exists(_mark(path)):
        _settle(path, path + _SUCCESSOR)
    for left in (SCRATCH, _OLD, _TRASH):
        store.remove_folder(path + left)
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
    store = store_of(path)
    if not store.exists(path) or (store.is_folder(path) and not store.names(path)):
        return "new"
    about = describe(path)
    if about is None:
        return "foreign"
    if any(about.get(key) != value for key, value in record.items()):
        return "other"
    return "done" if is_finished(path) else "resume"


def difference(there: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """How the record of existing output differs from that of the output asked for, in words."""
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
