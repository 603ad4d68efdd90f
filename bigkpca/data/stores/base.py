"""Addresses of stores, and the names of what they hold."""

from __future__ import annotations

from os import PathLike
from typing import NamedTuple

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


AnyPath = str | PathLike[str]  # as users give them
MOST_JSON_BYTES = 64_000_000  # of metadata or a manifest: half a million blocks
NODE_FILES = ("zarr.json", ".zarray", ".zgroup")  # which describe the content of a Zarr folder
PARTIAL, LOCK = ".partial", ".bigkpca-lock"  # endings of the names of what may lie beside an output


class StoredFile(NamedTuple):
    """Size of a stored file in bytes, and a stamp that changes when its content does."""

    bytes: int
    stamp: str


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
