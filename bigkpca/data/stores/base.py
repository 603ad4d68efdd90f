"""Addresses of stores, and the operations that bigkpca needs from a place that stores data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import IO, NamedTuple, Protocol

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
PARTIAL, LOCK = ".partial", ".bigkpca-lock"  # endings of the names of what may lie beside an output


class StoredFile(NamedTuple):
    """Size of a stored file in bytes, and a stamp that changes when its content does."""

    bytes: int
    stamp: str


class Store(Protocol):
    """A place that stores files at paths; `/` separates the names in a path.

    All of bigkpca reads and writes stored data through these operations, except files of other formats that `ingest`
    and labels read, and zip archives. A new place needs a subclass, and a line in `store_of`. The operations with a
    body here suffice for a store without folders and links.
    """

    def absolute(self, path: str) -> str:
        """The full path, the same in every folder that a process may run in."""

    def resolved(self, path: str) -> str:
        """The full path, with links followed."""
        return self.absolute(path)

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        """The normalised path of an output. Raises SpecError where no output may be: at, in or around one of the
        `inputs`, where nothing can be replaced, or with a name reserved for what lies beside an output."""

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

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, if they do not exist."""
        return

    def write(self, path: str, content: bytes) -> None:
        """Write or replace a file in an existing folder, so that readers see all of it or none, even after a power
        failure."""

    def writing(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file to write to, which appears at `path` as with `write` when the context ends; on an error it is
        removed."""

    def sync(self, path: str) -> None:
        """Make all files below a folder survive a power failure. Partial files of killed writes are removed."""
        return

    def remove_file(self, path: str) -> None:
        """Remove a file, if it exists."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and everything below it, if it exists, its metadata first; a file of that name stays, and so
        does the target of a link."""

    def remove_empty(self, path: str) -> None:
        """Remove a folder if nothing is in it."""
        return

    def writer(self, path: str) -> AbstractContextManager[None]:
        """While entered, no other run on this store writes the output at `path`. Raises LockedError if another run
        does. Object stores have no such lock: there, claims tell requests apart."""
        return nullcontext()


def check_name(path: str, given: str) -> None:
    """Raise SpecError if an output would have a name reserved for what lies beside an output."""
    if path.endswith((PARTIAL, LOCK)):
        raise SpecError(
            f"{given}: {PARTIAL} and {LOCK} end the names of what bigkpca keeps beside an output while it is made: "
            "choose another name for the output"
        )


def is_metadata(path: str) -> bool:
    """Whether a file is one of Zarr's metadata."""
    return last_name(path) in (*NODE_FILES, ".zattrs", ".zmetadata")


def check_metadata(path: str, size: int) -> None:
    """Raise CorruptionError if a file of metadata, which Zarr reads whole, is larger than arrays can need."""
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
