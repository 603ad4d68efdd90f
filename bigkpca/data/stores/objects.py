"""Object stores (S3, Google Cloud Storage, Azure): keys instead of folders, and moves that are copies.

An object appears whole, and stays, by one request. A folder is every key below its name and "/". Nothing can be renamed
or exchanged; `moves` says how a move that was cut off is finished. `leases` keeps a second writer away.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from bigkpca.data.stores import clients, leases, moves
from bigkpca.data.stores.base import StoredFile, check_name
from bigkpca.data.stores.clients import client, told
from bigkpca.data.stores.object_zarr import zarr_place
from bigkpca.data.stores.urls import address, inside, is_url
from bigkpca.errors import BigKPCAError, LockedError, SpecError

if TYPE_CHECKING:
    from bigkpca.data.stores.clients import Client

_WHOLE = 2**20  # bytes of an object that is read at once
_PART = 2**25  # bytes of a part of an object that is written in parts; two more are under way meanwhile
_MOST_PARTS = 10_000  # that S3 takes


@dataclass(frozen=True)
class ObjectStore:
    """The objects of one bucket. See `Store` for each operation; every one raises as `clients.told`."""

    scheme: str
    bucket: str

    @property
    def _client(self) -> Client:
        return client(self.scheme, self.bucket)

    def absolute(self, path: str) -> str:
        return address(path).url

    def resolved(self, path: str) -> str:
        return address(path).url

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        out = address(path)
        if not out.key:
            raise SpecError(f"{path} is a whole bucket, which cannot be replaced: name a folder in it")
        check_name(out.url, path)
        for other in filter(is_url, inputs):
            taken = address(other).url
            if taken == out.url:
                raise SpecError(f"{path} is an input, and would be replaced: choose another output path")
            if inside(taken, out.url) or inside(out.url, taken):
                raise SpecError(f"{path} and the input {other} lie inside each other: choose another output path")
        return out.url

    def zarr(self, path: str) -> Any:
        return zarr_place(*address(path))

    def exists(self, path: str) -> bool:
        try:
            self.file(path)
        except FileNotFoundError:
            return self.is_folder(path)
        return True

    def is_folder(self, path: str) -> bool:
        with told(path):
            return any(self._client.list(address(path).key or None, chunk_size=1))

    def names(self, path: str) -> list[str]:
        key = address(path).key
        with told(path):
            found = self._client.list_with_delimiter(key or None)
        names = [*found["common_prefixes"], *(held["path"] for held in found["objects"])]
        if not names:
            raise FileNotFoundError(f"{path} does not exist")
        return [name.rpartition("/")[2] for name in names]

    def file(self, path: str) -> StoredFile:
        key = address(path).key
        if not key:
            raise FileNotFoundError(f"{path} is a bucket")
        with told(path):
            return _stored(self._client.head(key))

    def files(self, path: str) -> dict[str, StoredFile]:
        key = address(path).key
        with told(path):
            found = [held for batch in self._client.list(key or None) for held in batch]
        start = len(key) + 1 if key else 0
        return {held["path"][start:]: _stored(held) for held in found}

    def open(self, path: str) -> IO[bytes]:
        with told(path):
            found = self._client.get(address(path).key)
            if found.meta["size"] <= _WHOLE:
                return io.BytesIO(bytes(found.bytes()))
        return io.BufferedReader(_Ranges(self._client, path, found.meta["size"]), _WHOLE)

    def read(self, path: str, start: int = 0, stop: int | None = None) -> tuple[bytes, StoredFile]:
        wanted: Any = None
        if start < 0 and self.scheme == "az":  # where a range cannot be counted from the end
            start = max(0, self.file(path).bytes + start)
        if start < 0:
            wanted = {"range": {"suffix": -start}}
        elif stop is not None:
            wanted = {"range": (start, stop)}
        elif start:
            wanted = {"range": {"offset": start}}
        with told(path):
            found = self._client.get(address(path).key, options=wanted)
            return bytes(found.bytes()), _stored(found.meta)

    def make_folder(self, path: str) -> None:
        """Nothing: a folder is there as soon as something is in it."""

    def make_new_folder(self, path: str) -> None:
        """Nothing: as of `make_folder`."""

    def write(self, path: str, content: bytes) -> None:
        leases.look(address(path).url)
        with told(path):
            self._client.put(address(path).key, content)

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        upload = clients.upload(path, _PART)
        try:
            yield cast("IO[bytes]", _Parts(upload, path))
            leases.check(address(path).url)
        except BaseException as error:
            with suppress(BigKPCAError, OSError), told(path):
                upload.__exit__(type(error), error, error.__traceback__)  # which gives the parts up
            raise
        with told(path):
            upload.close()

    def replace(self, path: str, content: bytes) -> None:
        url = address(path).url
        before = self._version(path)
        leases.check(url)  # after the version was read: so it is not that of a later writer
        try:
            clients.put(url, content, before or "create")
        except (clients.Conflict, FileNotFoundError) as error:
            # The library repeats requests, so that it may have been this one that changed it.
            if self._version(path) is None or self.open(path).read() != content:
                raise LockedError(
                    f"another run has taken over while this one was suspended, and wrote {url}: nothing of it was "
                    "replaced; run the same command again"
                ) from error

    def _version(self, path: str) -> tuple[str | None, str | None] | None:
        """The version of an object, for conditional writes; None where there is none."""
        try:
            with told(path):
                found = self._client.head(address(path).key)
        except FileNotFoundError:
            return None
        return found["e_tag"], found["version"]

    def put(self, path: str, content: bytes) -> None:
        self.write(path, content)

    def sync(self, path: str) -> None:
        """Nothing: what the server has confirmed stays."""

    def move(self, source: str, target: str) -> None:
        moves.move(self, source, target)

    def copy_file(self, source: str, target: str) -> None:
        """Copy an object without reading it. Raises FileNotFoundError where there is none."""
        leases.look(address(target).url)
        with told(target):
            self._client.copy(address(source).key, address(target).key)

    def recover(self, path: str) -> None:
        moves.recover(self, path)

    def is_moving(self, path: str) -> bool:
        return moves.is_moving(self, path)

    def exchange(self, a: str, b: str) -> bool:
        return False

    def remove_file(self, path: str) -> None:
        self.remove_files([path])

    def remove_files(self, paths: list[str]) -> None:
        """Remove objects, those that exist."""
        keys = [address(path).key for path in paths]
        if not keys:
            return
        leases.look(address(paths[0]).url)
        try:
            with told(paths[0]):
                self._client.delete(keys)
        except FileNotFoundError:  # as some servers say of a key that is gone, and may have stopped there
            for key in keys if len(keys) > 1 else ():
                self.remove_file(f"{self.scheme}://{self.bucket}/{key}")

    def remove_folder(self, path: str) -> None:
        for batch in moves.in_reading_order(self.files(path)):
            self.remove_files([f"{path}/{name}" for name in batch])

    def remove_links(self, path: str, *, below: bool) -> None:
        """Nothing: an object store has no links."""

    def discard(self, path: str, trash: str) -> None:
        self.remove_folder(path)  # what readers look at first goes first

    @contextmanager
    def writer(self, path: str) -> Iterator[None]:
        with leases.held(address(path).url):
            yield

    def holder(self, path: str) -> str:
        return leases.holder(address(path).url)

    def check_writer(self, path: str, *, ask: bool = True) -> None:
        url = address(path).url
        if ask:
            leases.check(moves.output_of(url))
        else:
            leases.look(url)


def _stored(held: Any) -> StoredFile:
    return StoredFile(held["size"], f"{held['size']} {held['e_tag'] or held['version'] or held['last_modified']}")


class _Ranges(io.RawIOBase):
    """A large object, read in the ranges that are asked for."""

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
        with told(self._url):
            found = self._of.get_range(address(self._url).key, start=self._at, end=stop)
        count = stop - self._at
        buffer[:count] = memoryview(found)
        self._at = stop
        return count


class _Parts(io.RawIOBase):
    """An object that is written in parts, and seen when all are there."""

    def __init__(self, upload: Any, url: str) -> None:
        self._upload, self._url, self._bytes = upload, url, 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._bytes += len(content)
        if self._bytes > _MOST_PARTS * _PART:
            raise SpecError(
                f"{self._url} would have more than {_MOST_PARTS * _PART:,} bytes, the most that is written to one "
                "object: write it to a local disk"
            )
        with told(self._url):
            return int(self._upload.write(bytes(content)))
