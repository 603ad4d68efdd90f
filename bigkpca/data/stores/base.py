"""Addresses of stores, and the operations that bigkpca needs from a place that stores data."""

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
        """The URL, without a trailing slash."""
        return f"{self.root}/{self.key}" if self.key else self.root


def is_url(path: str) -> bool:
    """Whether a path is a URL."""
    return "://" in path


def address(url: str) -> Address:
    """The parts of a URL. Raises SpecError for other schemes, and for URLs that contain secrets or lack a bucket."""
    scheme, _, rest = url.partition("://")
    # These are refused first, since other messages would show the secret.
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise SpecError(
            f"a {scheme}:// URL with user:password@ or ?query may contain secrets, which outputs and messages would "
            "show: omit that part, and set credentials in the environment"
        )
    if scheme == "file":
        raise SpecError(f"{url}: omit file://, since local paths are written without it")
    if scheme not in SCHEMES:
        raise SpecError(f"{url}: only local paths and s3://, gs:// and az:// can be read and written")
    bucket, _, key = rest.partition("/")
    key = key.rstrip("/")
    if not bucket:
        raise SpecError(f"{url} names no bucket: write {scheme}://BUCKET/NAME")
    if key and any(name in ("", ".", "..") for name in key.split("/")):
        raise SpecError(f"{url}: an empty name, . or .. in a path has no meaning in an object store: omit it")
    return Address(scheme, bucket, key)


def inside(inner: str, outer: str) -> bool:
    """Whether a URL equals another one, or lies below it; both normalised."""
    return f"{inner}/".startswith(f"{outer}/")


AnyPath = str | PathLike[str]  # as users give them
MOST_JSON_BYTES = 64_000_000  # of metadata or a manifest: half a million blocks
NODE_FILES = ("zarr.json", ".zarray", ".zgroup")  # which describe the content of a Zarr folder
OURS = ".bigkpca-"  # beginning of the endings of all names beside an output


class StoredFile(NamedTuple):
    """Size of a stored file in bytes, and a stamp that changes when its content does."""

    bytes: int
    stamp: str


class Store(Protocol):
    """A place that stores files at paths; `/` separates the names in a path.

    All of bigkpca reads and writes stored data through these operations, except files of other formats that `ingest`
    and labels read, and zip archives. A new place needs a subclass, and a line in `store_of`. The operations with a
    body here suffice for a store without folders and links, or one whose moves and locks are atomic.
    """

    def absolute(self, path: str) -> str:
        """The full path, the same in every folder that a process may run in."""

    def resolved(self, path: str) -> str:
        """The full path, with links followed."""
        return self.absolute(path)

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        """The normalised path of an output. Raises SpecError where no output may be: at, in or around one of the
        `inputs`, where nothing can be replaced, or with a name reserved for bigkpca's files beside an output."""

    def zarr(self, path: str) -> Any:
        """The object that Zarr opens or creates as the group or array at `path`."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists there."""

    def is_folder(self, path: str) -> bool:
        """Whether a folder exists there."""

    def names(self, path: str) -> list[str]:
        """Names directly in a folder."""

    def file(self, path: str) -> StoredFile:
        """Size and stamp of a file. Raises OSError if there is none."""

    def files(self, path: str) -> Mapping[str, StoredFile]:
        """All files below a folder, by their names from there; empty if there is no folder. Reads no content."""

    def open(self, path: str) -> IO[bytes]:
        """A file to read from, with seek. Raises OSError if there is none."""

    def read(self, path: str, start: int = 0, stop: int | None = None) -> tuple[bytes, StoredFile]:
        """Bytes start..stop of a file (a negative start counts from its end), and the version of the file that they are
        from. Raises OSError if there is none."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, if they do not exist."""
        return

    def make_new_folder(self, path: str) -> None:
        """Make a folder in another one, where nothing exists, not even a link. Raises FileExistsError."""
        return

    def write(self, path: str, content: bytes) -> None:
        """Write a file into an existing folder, so that readers see all of it or none, even after a power failure."""

    def writing(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file to write to, which appears at `path` as with `write` when the context ends; on an error it is
        removed."""

    def replace(self, path: str, content: bytes) -> None:
        """Write or replace a file below an output whose writer is this process. Like `write`, but if the lock of a
        writer may expire, whatever a later writer wrote there stays, even if this process is suspended meanwhile.
        Raises LockedError in that case."""
        self.write(path, content)

    def put(self, path: str, content: bytes) -> None:
        """Write a chunk of an array, with the folders of its key, so that readers see all of it or none. Several
        processes may write it at once. It survives a power failure once `sync` has run. Raises FileNotFoundError if the
        folder of the array does not exist."""

    def sync(self, path: str) -> None:
        """Make a file, or all files below a folder, survive a power failure. Partial files that killed writes left in a
        folder are removed."""
        return

    def move(self, source: str, target: str) -> None:
        """Move a folder to a path where nothing or an empty folder is: by one rename, or in such a way that `recover`
        finishes an interrupted move. Source and target are places of one output: its path, or its path with one of
        bigkpca's endings."""

    def recover(self, path: str) -> None:
        """Finish an interrupted move between places of the output at `path`, if there is one. For its writer."""
        return

    def is_moving(self, path: str) -> bool:
        """Whether a move between places of the output at `path` has begun but not ended."""
        return False

    def exchange(self, a: str, b: str) -> bool:
        """Exchange two folders atomically, so that neither path is ever empty; False if the store cannot."""
        return False

    def remove_file(self, path: str) -> None:
        """Remove a file, if it exists."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and everything below it, if it exists; a file of that name stays, and so does the target of a
        link."""

    def remove_links(self, path: str, *, below: bool) -> None:
        """Remove a link at a path beside an output where only runs write, and the links `below` it; their targets stay.
        For its writer."""
        return

    def discard(self, path: str, trash: str) -> None:
        """Remove a folder, if it exists, in such a way that the remains of a killed removal never look complete:
        nothing at `path`, or no metadata. Nothing is at `trash`; both are places of one output."""

    def writer(self, path: str) -> AbstractContextManager[None]:
        """While entered, no other run writes the output at `path`. Raises LockedError if another run already does,
        IncompleteError if space runs out."""

    def holder(self, path: str) -> str:
        """What distinguishes this process, as the writer of the output at `path`, from earlier and later ones that may
        still write: hexadecimal digits, or nothing if a lock stays valid while its process is suspended."""
        return ""

    def check_writer(self, path: str, *, ask: bool = True) -> None:
        """Raise LockedError if this process entered `writer` for the output that a place belongs to, and another run
        may have done so since. To be called before output is published; without `ask` it costs nothing while the lock
        is fresh, and can be called often."""
        return


def check_name(path: str, given: str) -> None:
    """Raise SpecError if an output would have a name reserved for bigkpca's files beside an output."""
    if OURS in last_name(path):
        raise SpecError(
            f"{given}: {OURS} in a name marks files that belong to the output whose name precedes it: choose another "
            "name for the output"
        )


def is_metadata(path: str) -> bool:
    """Whether a file is one of Zarr's metadata."""
    return last_name(path) in (*NODE_FILES, ".zattrs", ".zmetadata")


def check_metadata(path: str, size: int) -> None:
    """Raise CorruptionError if a file of metadata is larger than arrays can need."""
    if size > MOST_JSON_BYTES:
        raise CorruptionError(
            f"{path} has more than {MOST_JSON_BYTES:,} bytes, so it does not describe an array or a group: restore it"
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
