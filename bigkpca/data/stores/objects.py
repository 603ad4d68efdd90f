"""Object stores (S3, Google Cloud Storage, Azure): keys instead of folders.

One request makes an object appear whole and permanently. A folder is every key below its name and "/". Nothing can be
renamed, so outputs are written in place, and a claim names the request that they belong to (`storage.output`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from bigkpca.data.stores import clients
from bigkpca.data.stores.base import StoredFile, address, check_name, is_url
from bigkpca.data.stores.clients import Conflict, client, plain_errors
from bigkpca.errors import BigKPCAError, SpecError

if TYPE_CHECKING:
    from bigkpca.data.stores.clients import Client


_WHOLE = 2**20  # bytes of an object that is read at once
_PART = 2**25  # bytes of a part of an object that is written in parts, while two more are under way
_MOST_REMOVED = 1000  # objects in one request


@dataclass(frozen=True)
class ObjectStore:
    """The objects of one bucket, with the operations of `LocalDisk`. A folder exists as soon as something is in it, and
    whatever the server has confirmed is permanent. Every operation raises the errors of `clients.plain_errors`."""

    scheme: str
    bucket: str

    @property
    def _client(self) -> Client:
        return client(self.scheme, self.bucket)

    def absolute(self, path: str) -> str:
        return address(path).url

    resolved = absolute

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        out = address(path)
        if not out.key:
            raise SpecError(f"{path} is a whole bucket, which cannot be replaced: name a folder in it")
        check_name(out.url, path)
        for other in filter(is_url, inputs):
            taken = address(other).url
            if taken == out.url:
                raise SpecError(f"{path} is an input and would be replaced: choose another output path")
            if f"{taken}/".startswith(f"{out.url}/") or out.url.startswith(f"{taken}/"):
                raise SpecError(f"{path} and the input {other} lie inside each other: choose another output path")
        return out.url

    def exists(self, path: str) -> bool:
        try:
            self.file(path)
        except FileNotFoundError:
            return self.is_folder(path)
        return True

    def is_folder(self, path: str) -> bool:
        with plain_errors(path):
            return any(self._client.list(address(path).key or None, chunk_size=1))

    def names(self, path: str) -> list[str]:
        key = address(path).key
        with plain_errors(path):
            found = self._client.list_with_delimiter(key or None)
        names = {*found["common_prefixes"], *(held["path"] for held in found["objects"])} - {key}  # some list it, too
        if not names:
            raise FileNotFoundError(f"{path} does not exist")
        return [name.rpartition("/")[2] for name in sorted(names)]

    def file(self, path: str) -> StoredFile:
        key = address(path).key
        if not key:
            raise FileNotFoundError(f"{path} is a bucket")
        with plain_errors(path):
            return _stored(self._client.head(key))

    def files(self, path: str) -> dict[str, StoredFile]:
        key = address(path).key
        with plain_errors(path):
            found = [held for batch in self._client.list(key or None) for held in batch]
        start = len(key) + 1 if key else 0
        return {held["path"][start:]: _stored(held) for held in found}

    def open(self, path: str) -> IO[bytes]:
        with plain_errors(path):
            found = self._client.get(address(path).key)
            if found.meta["size"] <= _WHOLE:
                return io.BytesIO(bytes(found.bytes()))
        return io.BufferedReader(_Ranges(self._client, path, found.meta["size"]), _WHOLE)

    def make_folder(self, path: str) -> None:
        """Nothing to do, nor for the next two: folders are parts of names, and what is written is permanent."""

    def remove_empty(self, path: str) -> None: ...

    def sync(self, path: str) -> None: ...

    def writer(self, path: str) -> AbstractContextManager[None]:
        """Nothing is locked: claims tell requests apart."""
        return nullcontext()

    def write(self, path: str, content: bytes) -> None:
        with plain_errors(path):
            self._client.put(address(path).key, content)

    def claim(self, path: str, content: bytes) -> bytes:
        """Write a file unless there is one, and return what it then contains."""
        try:
            self._create(path, content)
        except Conflict:
            return self.open(path).read()
        try:
            self._create(path, content)  # which a server that honours conditions refuses
        except Conflict:
            return content
        self.remove_file(path)
        raise SpecError(
            f"{path}: this server ignores conditional writes (If-None-Match), so two runs could write one output at "
            "once: write to another server or to a local path"
        )

    def _create(self, path: str, content: bytes) -> None:
        """Write an object. Raises Conflict if there is one."""
        with plain_errors(path):
            self._client.put(address(path).key, content, mode="create", use_multipart=False)

    def swap(self, path: str, before: bytes, content: bytes) -> bool:
        """Replace a file with the content `before`, which another run may do at the same time; whether it has the other
        content then."""
        key = address(path).key
        try:
            with plain_errors(path):
                found = self._client.get(key)
                held = bytes(found.bytes())
            if held == before:
                known: Any = {name: found.meta[name] for name in ("e_tag", "version") if found.meta[name] is not None}
                # Not where another request replaced it meanwhile. The library repeats requests, and this one may have
                # done it.
                with suppress(Conflict), plain_errors(path):
                    self._client.put(key, content, mode=known, use_multipart=False)
                held = self.open(path).read()
        except FileNotFoundError:
            return False
        return held == content

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        upload = clients.upload(path, _PART)
        try:
            yield cast("IO[bytes]", _Parts(upload, path))
        except BaseException as error:
            with suppress(BigKPCAError, OSError), plain_errors(path):
                upload.__exit__(type(error), error, error.__traceback__)  # which discards the parts
            raise
        with plain_errors(path):
            upload.close()

    def remove_file(self, path: str) -> None:
        with suppress(FileNotFoundError), plain_errors(path):
            self._client.delete(address(path).key)

    def remove_folder(self, path: str) -> None:
        self.remove_file(f"{path}/zarr.json")  # so that no reader takes what is left for the whole
        key = address(path).key
        while names := list(self.files(path))[:_MOST_REMOVED]:
            # Some servers raise an error for a key that another run has removed, and may stop there.
            with suppress(FileNotFoundError), plain_errors(path):
                self._client.delete([f"{key}/{name}" for name in names])


def _stored(held: Any) -> StoredFile:
    return StoredFile(held["size"], f"{held['size']} {held['e_tag'] or held['version'] or held['last_modified']}")


class _Ranges(io.RawIOBase):
    """A large object, of which the requested ranges are read."""

    def __init__(self, of: Client, url: str, size: int) -> None:
        self._of, self._url, self._size, self._at = of, url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        if stop <= self._at:
            return 0
        with plain_errors(self._url):
            found = self._of.get_range(address(self._url).key, start=self._at, end=stop)
        count = stop - self._at
        buffer[:count] = memoryview(found)
        self._at = stop
        return count


class _Parts(io.RawIOBase):
    """An object that is written in parts, and visible once all are there."""

    def __init__(self, upload: Any, url: str) -> None:
        self._upload, self._url = upload, url

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        with plain_errors(self._url):
            return int(self._upload.write(bytes(content)))
