"""The operations that bigkpca needs of a place that holds data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from os import PathLike
from typing import IO, Any, NamedTuple, Protocol

AnyPath = str | PathLike[str]  # as users give them


class StoredFile(NamedTuple):
    """Size of a stored file in bytes, and a stamp that changes when its content does."""

    bytes: int
    stamp: str


class Store(Protocol):
    """A place that holds files below paths; `/` separates the names in a path.

    All of bigkpca reads and writes stored data through these operations, and tells apart no places. Whoever adds a
    place writes them in a file of its own, and adds it to `store_of`.
    """

    def canonical(self, path: str) -> str:
        """The full path, the same wherever a process runs."""

    def linked(self, path: str) -> str:
        """The full path with links followed."""

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        """The path of an output as it is meant. Raises SpecError where none may be: one of the `inputs` lies there, in
        it or around it, or what is there can never be replaced."""

    def zarr(self, path: str) -> Any:
        """What Zarr opens or makes as the group or array at `path`."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there."""

    def names(self, path: str) -> list[str]:
        """Names directly in a folder."""

    def files(self, path: str) -> Mapping[str, StoredFile]:
        """All files below `path` by their names from there; by the name "" where `path` itself is a file. Lists, and
        reads no content."""

    def open(self, path: str) -> IO[bytes]:
        """A file to read from, with seek. Raises OSError where there is none."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, unless they are there."""

    def write(self, path: str, content: bytes) -> None:
        """Write a file so that readers see all of it or none, also after a power failure."""

    def sync(self, path: str) -> None:
        """Force a file, or all below a folder, to stay after a power failure. Partial files that killed writes left in
        a folder are removed."""

    def move(self, source: str, target: str) -> None:
        """Let the folder `source` appear at `target`, where nothing is, all of it at once."""

    def exchange(self, a: str, b: str) -> bool:
        """Exchange two folders at once, so that neither path is ever empty; False where this place cannot."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder and all below it; nothing happens where nothing is."""

    def writer(self, path: str) -> AbstractContextManager[None]:
        """While entered, no other run writes the output at `path`.

        Raises LockedError where another run does already, IncompleteError where space runs out.
        """


def last_name(path: str) -> str:
    """The last name in a path."""
    return path.rstrip("/").rpartition("/")[2]


def parent(path: str) -> str:
    """The folder that a path lies in."""
    return path.rstrip("/").rpartition("/")[0]
