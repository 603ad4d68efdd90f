"""Addresses in object stores: `s3://bucket/key`, `gs://bucket/key` and `az://container/key`."""

from __future__ import annotations

import re
from typing import NamedTuple

from bigkpca.errors import SpecError

SCHEMES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}  # and how the environment variables of each begin
_COLLAPSED = re.compile(rf"({'|'.join(SCHEMES)}):/(?!/)")


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
    # These are refused before anything is told of them, since a message would show the secret.
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


def check_not_collapsed(path: str) -> None:
    """Raise SpecError for a URL that became a path, as `pathlib.Path("s3://a/b")`, which is s3:/a/b."""
    if found := _COLLAPSED.match(path):
        raise SpecError(f"{path}: give {found[1]}:// as text, since pathlib.Path makes another path of it")


def inside(inner: str, outer: str) -> bool:
    """Whether a URL is another one, or lies below it; both normalised."""
    return f"{inner}/".startswith(f"{outer}/")
