"""Moves in an object store: copies and then deletes, which the next run finishes where one was cut off.

While a move lasts, an object beside the output, `<output>.bigkpca-moving`, says what moves where. All places of an
output (the output, what is being made of it, what it replaced) share this one marker, since an output has one writer
and that makes one move at a time.

    marker: copying      the source is whole       cut off here: copied again, or undone if the source is gone
    marker: removing     the target is whole       cut off here: the source is removed

Files that readers look at first are copied last and removed first, so that no reader takes a part for the whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from bigkpca.data.stores.base import OURS, Store, last_name, parent

_MARK = ".bigkpca-moving"  # behind the name of an output
_AT_ONCE, _BATCH = 16, 256
_FIRST = (  # what readers look at, in the order in which they do
    lambda name: name == "zarr.json",
    lambda name: name.endswith("/manifest.json"),
    lambda name: name.endswith("/zarr.json"),
)


class Copying(Store, Protocol):
    """A store that copies, and removes many files at once."""

    def copy_file(self, source: str, target: str) -> None:
        """Copy a file within the store."""

    def remove_files(self, paths: list[str]) -> None:
        """Remove files, those that exist."""


def move(store: Copying, source: str, target: str) -> None:
    """Move a folder. Raises LockedError where this process is no longer the writer of the output."""
    _carry_out(store, source, target, len(store.files(source)))


def recover(store: Copying, path: str) -> None:
    """Finish, or undo, a move between the places of the output at `path` that was cut off."""
    try:
        with store.open(mark(path)) as file:
            told = json.load(file)
    except FileNotFoundError:
        return
    source, target = (f"{parent(path)}/{told[name]}" for name in ("source", "target"))
    if told["copied"]:
        _remove_source(store, source, target)
    elif len(store.files(source)) == told["files"]:
        _carry_out(store, source, target, told["files"])
    else:  # an error, not a kill, ended the move, and the source was removed after it
        store.remove_folder(target)
        store.remove_file(mark(path))


def is_moving(store: Copying, path: str) -> bool:
    """Whether a move between the places of the output at `path` has not ended."""
    try:
        store.file(mark(path))
    except FileNotFoundError:
        return False
    return True


def in_reading_order(names: Iterable[str]) -> list[list[str]]:
    """Names in batches: what readers look at first, and at last all other files."""
    left = sorted(names)
    batches = []
    for first in _FIRST:
        batches.append([name for name in left if first(name)])
        left = [name for name in left if not first(name)]
    batches += [left[at : at + _BATCH] for at in range(0, len(left), _BATCH)]
    return [batch for batch in batches if batch]


def mark(path: str) -> str:
    """The marker of a move to or from `path`."""
    return output_of(path) + _MARK


def output_of(path: str) -> str:
    """The output that a place belongs to."""
    name = last_name(path)
    return f"{parent(path)}/{name.partition(OURS)[0]}"


def _carry_out(store: Copying, source: str, target: str, files: int) -> None:
    _write_mark(store, source, target, files, copied=False)

    def copy(name: str) -> None:
        store.copy_file(f"{source}/{name}", f"{target}/{name}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for batch in reversed(in_reading_order(store.files(source))):
            store.check_writer(output_of(target))
            _all(pool, copy, batch)
    _write_mark(store, source, target, files, copied=True)
    _remove_source(store, source, target)


def _remove_source(store: Copying, source: str, target: str) -> None:
    for batch in in_reading_order(store.files(source)):
        store.check_writer(output_of(target))
        store.remove_files([f"{source}/{name}" for name in batch])
    store.remove_file(mark(target))


def _write_mark(store: Copying, source: str, target: str, files: int, *, copied: bool) -> None:
    store.check_writer(output_of(target))
    told = {"source": last_name(source), "target": last_name(target), "files": files, "copied": copied}
    store.write(mark(target), json.dumps(told).encode())


def _all(pool: ThreadPoolExecutor, work: Callable[[str], None], names: list[str]) -> None:
    for done in [pool.submit(work, name) for name in names]:
        done.result()
