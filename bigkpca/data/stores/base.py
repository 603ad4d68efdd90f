"""Addresses of stores, and the operations that bigkpca needs of a place that holds data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from os import PathLike
from typing import IO, Any, NamedTuple, Protocol

from bigkpca.errors import CorruptionError, SpecError

SCHEMES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}  # and how the environment variables of each begin


class Address(NamedTuple):
    """A key in a bucket; "" is the bucket itself."""

    scheme: str
    bucket: str
    key: str

    @property
    def root(self) -> str:
        """The URL of the bucket."""
        return f"{self.scheme}://{self.bucket}"

    @property
    def url(self) -> str:
        """The URL, without a slash at its end."""
        return f"{self.root}/{self.key}" if self.key else self.root


def is_url(path: str) -> bool:
    """Whether a path is a URL."""
    return "://" in path


def address(url: str) -> Address:
    """The parts of a URL. Raises SpecError for other schemes, and for URLs that carry secrets or no bucket."""
    scheme, _, rest = url.partition("://")
    # These are refused first, since other messages would show the secret.
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise SpecError(
            f"a {scheme}:// URL with user:password@ or ?query may hold secrets, which outputs and messages would show: "
            "leave that part out, and set credentials in the environment"
        )
    if scheme == "file":
        raise SpecError(f"{url}: leave file:// out: local paths are given as they are")
    if scheme not in SCHEMES:
        raise SpecError(f"{url}: only local paths and s3://, gs:// and az:// can be read and written")
    bucket, _, key = rest.partition("/")
    key = key.rstrip("/")
    if not bucket:
        raise SpecError(f"{url} names no bucket: write {scheme}://BUCKET/NAME")
    if key and any(name in ("", ".", "..") for name in key.split("/")):
        raise SpecError(f"{url}: an empty name, . or .. in a path means nothing in an object store: leave it out")
    return Address(scheme, bucket, key)


def inside(inner: str, outer: str) -> bool:
    """Whether a URL is another one, or lies below it; both normalised."""
    return f"{inner}/".startswith(f"{outer}/")


AnyPath = str | PathLike[str]  # as users give them
MOST_JSON_BYTES = 64_000_000  # of metadata or a manifest: half a million blocks
NODE_FILES = ("zarr.json", ".zarray", ".zgroup")  # which say what a folder of Zarr holds
OURS = ".bigkpca-"  # how the endings of all names beside an output begin


class StoredFile(NamedTuple):
    """Size of a stored file in bytes, and a stamp that changes when its content does."""

    bytes: int
    stamp: str


class Store(Protocol):
    """A place that holds files below paths; `/` separates the names in a path.

    All of bigkpca reads and writes stored data through these operations, except files of other formats that `ingest`
    and labels read, and zip archives. A new place is a subclass, and a line in `store_of`. The operations
    with a body here do as much as a store without folders and links needs, or one whose moves and locks are atomic.
    """

    def absolute(self, path: str) -> str:
        """The full path, the same in every folder that a process may run in."""

    def resolved(self, path: str) -> str:
        """The full path, with links followed."""
        return self.absolute(path)

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        """The path of an output, normalised. Raises SpecError where no output may be: at, in or around one of the
        `inputs`, where nothing can be replaced, or with a name as of things of ours beside an output."""

    def zarr(self, path: str) -> Any:
        """What Zarr opens or makes as the group or array at `path`."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there."""

    def names(self, path: str) -> list[str]:
        """Names directly in a folder."""

    def file(self, path: str) -> StoredFile:
        """Size and stamp of a file. Raises OSError where there is none."""

    def files(self, path: str) -> Mapping[str, StoredFile]:
        """All files below a folder, by their names from there; empty where no folder is. Reads no content."""

    def open(self, path: str) -> IO[bytes]:
        """A file to read from, with seek. Raises OSError where there is none."""

    def read(self, path: str, start: int = 0, stop: int | None = None) -> tuple[bytes, StoredFile]:
        """Bytes start..stop of a file, a negative start counted from its end, and which version of the file they are
        of. Raises OSError where there is none."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, unless they are there."""
        return

    def make_new_folder(self, path: str) -> None:
        """Make a folder in another one, where nothing is, also no link. Raises FileExistsError."""
        return

    def write(self, path: str, content: bytes) -> None:
        """Write a file into an existing folder, so that readers see all of it or none, also after a power failure."""

    def writing(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file to write to, which appears at `path` as by `write` when the context ends; an error removes it."""

    def replace(self, path: str, content: bytes) -> None:
        """Write or replace a file below an output that this process is the writer of. As `write`, and where the lock
        of a writer may expire, whatever a later writer wrote there stays, even if this process is suspended meanwhile.
        Raises LockedError then."""
        self.write(path, content)

    def put(self, path: str, content: bytes) -> None:
        """Write a chunk of an array, with the folders of its key, so that readers see all of it or none. Several
        processes may write it at once. It stays after a power failure once `sync` has run. Raises FileNotFoundError
        where the folder of the array is not there."""

    def sync(self, path: str) -> None:
        """Force a file, or all below a folder, to stay after a power failure. Partial files that killed writes left in
        a folder are removed."""
        return

    def move(self, source: str, target: str) -> None:
        """Move a folder to a path where nothing is, or an empty folder: by one rename, or so that `recover` finishes
        what was cut off. Source and target are places of one output: its path, or that with an ending of ours."""

    def recover(self, path: str) -> None:
        """Finish a move between places of the output at `path` that was cut off, if there is one. For its writer."""
        return

    def is_moving(self, path: str) -> bool:
        """Whether a move between places of the output at `path` has begun and not ended."""
        return False

    def exchange(self, a: str, b: str) -> bool:
        """Exchange two folders at once, so that neither path is ever empty; False if the store cannot."""
        return False

    def remove_file(self, path: str) -> None:
        """Remove a file, if it exists."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all below it, if it exists; a file of that name stays, and what a link leads to."""

    def remove_links(self, path: str, *, below: bool) -> None:
        """Remove a link at a path beside an output where only runs write, and those `below` it; what they lead to
        stays. For its writer."""
        return

    def discard(self, path: str, trash: str) -> None:
        """Remove a folder, if it exists, so that what a killed removal leaves is never taken for a whole: nothing at
        `path`, or no metadata. Nothing is at `trash`; both are places of one output."""

    def writer(self, path: str) -> AbstractContextManager[None]:
        """While entered, no other run writes the output at `path`. Raises LockedError where another run does already,
        IncompleteError where space runs out."""

    def holder(self, path: str) -> str:
        """What tells this process, as the writer of the output at `path`, from those before and after it that may still
        write: hexadecimal digits, or nothing where the lock of a process holds while that is suspended."""
        return ""

    def check_writer(self, path: str, *, ask: bool = True) -> None:
        """Raise LockedError where this process entered `writer` of the output that a place belongs to, and another run
        may have done so since. To be called before output is published; without `ask` it costs nothing as long as the
        lock is fresh, and can be called often."""
        return


def check_name(path: str, given: str) -> None:
    """Raise SpecError where an output would have a name as of things of ours beside an output."""
    if OURS in last_name(path):
        raise SpecError(
            f"{given}: {OURS} in a name marks what belongs to the output whose name stands before it: choose another "
            "name for the output"
        )


def is_metadata(path: str) -> bool:
    """Whether a file is one of Zarr's metadata."""
    return last_name(path) in (*NODE_FILES, ".zattrs", ".zmetadata")


def check_metadata(path: str, size: int) -> None:
    """Raise CorruptionError where a file of metadata has more bytes than any that arrays need."""
    if size > MOST_JSON_BYTES:
        raise CorruptionError(
            f"{path} has more than {MOST_JSON_BYTES:,} bytes, so that it does not describe an array or a group: "
            "restore it"
        )


def last_name(path: str) -> str:
    """The last name in a path."""
    return path.rstrip("/").rpartition("/")[2]


def parent(path: str) -> str:
    """The folder that a path lies in: "." for a name alone, "/" at the root, and a bucket for itself."""
    above, slash, _ = path.rstrip("/").rpartition("/")
    if above.endswith(":/"):
        return path.rstrip("/")
    return above or slash or "."
