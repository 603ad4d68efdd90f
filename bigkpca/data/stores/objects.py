"""Object stores (S3, Google Cloud Storage, Azure): keys instead of folders, and copies instead of moves.

One request makes an object appear whole and permanently. A folder is every key below its name and "/". Nothing can be
renamed or exchanged; `leases` keeps out a second writer.

During a move, an object beside the output, `<output>.bigkpca-moving`, records the source and target. All places of an
output (the output, its unfinished parts, what it replaced) share this one marker, since an output has one writer, which
makes one move at a time.

    marker: copying      the source is whole       if interrupted here: copied again, or undone if the source is gone
    marker: removing     the target is whole       if interrupted here: the source is removed

Files that readers look at first are copied last and removed first, so no reader mistakes a part for the whole.
"""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import IO, TYPE_CHECKING, Any, cast

from bigkpca.data.stores import clients, leases
from bigkpca.data.stores.base import (
    OURS,
    Address,
    Store,
    StoredFile,
    address,
    check_metadata,
    check_name,
    inside,
    is_metadata,
    is_url,
    last_name,
    parent,
)
from bigkpca.data.stores.clients import client, plain_errors
from bigkpca.errors import BigKPCAError, LockedError, SpecError

if TYPE_CHECKING:
    from bigkpca.data.stores.clients import Client


_MARK = ".bigkpca-moving"  # behind the name of an output
_AT_ONCE, _BATCH = 16, 256
_FIRST = (  # what readers look at, in the order in which they do
    lambda name: name == "zarr.json",
    lambda name: name.endswith("/manifest.json"),
    lambda name: name.endswith("/zarr.json"),
)


def in_reading_order(names: Iterable[str]) -> list[list[str]]:
    """Names in batches: first the files that readers look at first, and finally all other files."""
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


def _zarr_store(scheme: str, bucket: str, key: str, read_only: bool) -> Any:
    """The object that Zarr opens or creates at a key: it sees only what is below that key, and makes no groups above
    it."""
    return _kind()(scheme, bucket, key, read_only)


def root_url(store: Any) -> str | None:
    """The URL behind one of bigkpca's Zarr stores; None for other stores."""
    return getattr(store, "bigkpca_url", None)


@lru_cache
def _kind() -> type[Any]:
    """The class, made when it is first needed: Zarr takes long to import."""
    from zarr.storage import ObjectStore

    class BelowKey(ObjectStore):  # type: ignore[type-arg]  # older ones take no arguments
        """The keys below one key. It is pickled as its name, so no client or credential is sent."""

        def __init__(self, scheme: str, bucket: str, key: str, read_only: bool) -> None:
            super().__init__(client(scheme, bucket, key), read_only=read_only)
            self.bigkpca_url = Address(scheme, bucket, key).url
            self._made_of = scheme, bucket, key

        def __reduce__(self) -> Any:
            return _zarr_store, (*self._made_of, self.read_only)

        def __str__(self) -> str:
            return self.bigkpca_url

        def __eq__(self, other: object) -> bool:
            return isinstance(other, BelowKey) and self.__reduce__() == other.__reduce__()

        __hash__ = None  # type: ignore[assignment]

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            if is_metadata(key) and byte_range is None:  # which would be read whole, however large it is
                try:
                    size = (await self.store.head_async(key))["size"]
                except FileNotFoundError:
                    return None
                check_metadata(f"{self.bigkpca_url}/{key}", size)
            return await super().get(key, prototype, byte_range)

        def with_read_only(self, read_only: bool = False) -> Any:
            return _zarr_store(*self._made_of, read_only)

    for name in ("get", "get_partial_values", "exists", "getsize"):
        setattr(BelowKey, name, _asking(getattr(BelowKey, name), changes=False))
    for name in ("set", "set_if_not_exists", "delete", "delete_dir"):
        setattr(BelowKey, name, _asking(getattr(ObjectStore, name), changes=True))
    for name in ("list", "list_prefix", "list_dir"):
        setattr(BelowKey, name, _listing(getattr(ObjectStore, name)))
    return BelowKey


def _asking(method: Callable[..., Any], *, changes: bool) -> Callable[..., Any]:
    """A method of a Zarr store with errors in plain words; one that makes changes also checks the lease."""

    @wraps(method)
    async def asked(self: Any, *arguments: Any, **options: Any) -> Any:
        url = _named(self, arguments)
        if changes:
            leases.look(url)
        with plain_errors(url):
            return await method(self, *arguments, **options)

    return asked


def _listing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Like `_asking`, for a method that yields names."""

    @wraps(method)
    async def listed(self: Any, *arguments: Any) -> AsyncGenerator[str, None]:
        with plain_errors(_named(self, arguments)):
            async for name in method(self, *arguments):
                yield name

    return listed


def _named(store: Any, arguments: tuple[Any, ...]) -> str:
    """The URL that a request is about, for messages."""
    key = arguments[0] if arguments and isinstance(arguments[0], str) else ""
    return f"{store.bigkpca_url}/{key}".rstrip("/")


_WHOLE = 2**20  # bytes of an object that is read at once
_PART = 2**25  # bytes of a part of an object that is written in parts, while two more are under way
_MOST_PARTS = 10_000  # accepted by S3


@dataclass(frozen=True)
class ObjectStore(Store):
    """The objects of one bucket. A folder exists as soon as something is in it, and whatever the server has confirmed
    is permanent. Every operation raises the errors of `clients.plain_errors`."""

    scheme: str
    bucket: str

    @property
    def _client(self) -> Client:
        return client(self.scheme, self.bucket)

    def absolute(self, path: str) -> str:
        return address(path).url

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        out = address(path)
        if not out.key:
            raise SpecError(f"{path} is a whole bucket, which cannot be replaced: name a folder in it")
        check_name(out.url, path)
        for other in filter(is_url, inputs):
            taken = address(other).url
            if taken == out.url:
                raise SpecError(f"{path} is an input and would be replaced: choose another output path")
            if inside(taken, out.url) or inside(out.url, taken):
                raise SpecError(f"{path} and the input {other} lie inside each other: choose another output path")
        return out.url

    def zarr(self, path: str) -> Any:
        return _zarr_store(*address(path), read_only=False)

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
        names = [*found["common_prefixes"], *(held["path"] for held in found["objects"])]
        if not names:
            raise FileNotFoundError(f"{path} does not exist")
        return [name.rpartition("/")[2] for name in names]

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

    def read(self, path: str, start: int = 0, stop: int | None = None) -> tuple[bytes, StoredFile]:
        wanted: Any = None
        if start < 0 and self.scheme == "az":  # if a range cannot be counted from the end
            start = max(0, self.file(path).bytes + start)
        if start < 0:
            wanted = {"range": {"suffix": -start}}
        elif stop is not None:
            wanted = {"range": (start, stop)}
        elif start:
            wanted = {"range": {"offset": start}}
        with plain_errors(path):
            found = self._client.get(address(path).key, options=wanted)
            return bytes(found.bytes()), _stored(found.meta)

    def write(self, path: str, content: bytes) -> None:
        leases.look(address(path).url)
        with plain_errors(path):
            self._client.put(address(path).key, content)

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        upload = clients.upload(path, _PART)
        try:
            yield cast("IO[bytes]", _Parts(upload, path))
            leases.check(address(path).url)
        except BaseException as error:
            with suppress(BigKPCAError, OSError), plain_errors(path):
                upload.__exit__(type(error), error, error.__traceback__)  # which discards the parts
            raise
        with plain_errors(path):
            upload.close()

    def replace(self, path: str, content: bytes) -> None:
        url = address(path).url
        before = self._version(path)
        leases.check(url)  # after the version was read, which is therefore not that of a later writer
        try:
            clients.put(url, content, before or "create")
        except (clients.Conflict, FileNotFoundError) as error:
            # The library repeats requests, so this one itself may have made the change.
            if self._version(path) is None or self.open(path).read() != content:
                raise LockedError(
                    f"another run took over while this one was suspended, and wrote {url}: nothing of it was replaced; "
                    "run the same command again"
                ) from error

    def _version(self, path: str) -> tuple[str | None, str | None] | None:
        """The version of an object, for conditional writes; None if there is none."""
        try:
            with plain_errors(path):
                found = self._client.head(address(path).key)
        except FileNotFoundError:
            return None
        return found["e_tag"], found["version"]

    def put(self, path: str, content: bytes) -> None:
        self.write(path, content)

    def move(self, source: str, target: str) -> None:
        self._move(source, target, len(self.files(source)))

    def _move(self, source: str, target: str, files: int) -> None:
        """Move a folder with this many files. The marker at its output shows `recover` how far the move got."""
        moved = {"source": last_name(source), "target": last_name(target), "files": files}
        self.check_writer(output_of(target))
        self.write(mark(target), json.dumps({**moved, "copied": False}).encode())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for batch in reversed(in_reading_order(self.files(source))):
                self.check_writer(output_of(target))
                for done in [pool.submit(self.copy_file, f"{source}/{name}", f"{target}/{name}") for name in batch]:
                    done.result()
        self.check_writer(output_of(target))
        self.write(mark(target), json.dumps({**moved, "copied": True}).encode())
        self._remove_source(source, target)

    def _remove_source(self, source: str, target: str) -> None:
        for batch in in_reading_order(self.files(source)):
            self.check_writer(output_of(target))
            self.remove_files([f"{source}/{name}" for name in batch])
        self.remove_file(mark(target))

    def copy_file(self, source: str, target: str) -> None:
        """Copy an object without reading it. Raises FileNotFoundError if there is none."""
        leases.look(address(target).url)
        with plain_errors(target):
            self._client.copy(address(source).key, address(target).key)

    def recover(self, path: str) -> None:
        try:
            with self.open(mark(path)) as file:
                moved = json.load(file)
        except FileNotFoundError:
            return
        source, target = (f"{parent(path)}/{moved[name]}" for name in ("source", "target"))
        if moved["copied"]:
            self._remove_source(source, target)
        elif len(self.files(source)) == moved["files"]:
            self._move(source, target, moved["files"])
        else:  # the move ended with an error, not a kill, and its source was removed afterwards
            self.remove_folder(target)
            self.remove_file(mark(path))

    def is_moving(self, path: str) -> bool:
        try:
            self.file(mark(path))
        except FileNotFoundError:
            return False
        return True

    def remove_file(self, path: str) -> None:
        self.remove_files([path])

    def remove_files(self, paths: list[str]) -> None:
        """Remove objects, those that exist."""
        keys = [address(path).key for path in paths]
        if not keys:
            return
        leases.look(address(paths[0]).url)
        try:
            with plain_errors(paths[0]):
                self._client.delete(keys)
        except FileNotFoundError:  # some servers raise it for a missing key, and may stop there
            for key in keys if len(keys) > 1 else ():
                self.remove_file(f"{self.scheme}://{self.bucket}/{key}")

    def remove_folder(self, path: str) -> None:
        for batch in in_reading_order(self.files(path)):
            self.remove_files([f"{path}/{name}" for name in batch])

    def discard(self, path: str, trash: str) -> None:
        self.remove_folder(path)  # files that readers look at first go first

    @contextmanager
    def writer(self, path: str) -> Iterator[None]:
        with leases.held(address(path).url):
            yield

    def holder(self, path: str) -> str:
        return leases.holder(address(path).url)

    def check_writer(self, path: str, *, ask: bool = True) -> None:
        url = address(path).url
        if ask:
            leases.check(output_of(url))
        else:
            leases.look(url)


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
        self._upload, self._url, self._bytes = upload, url, 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._bytes += len(content)
        if self._bytes > _MOST_PARTS * _PART:
            raise SpecError(
                f"{self._url} would have more than {_MOST_PARTS * _PART:,} bytes, the limit for one object: write it "
                "to a local disk"
            )
        with plain_errors(self._url):
            return int(self._upload.write(bytes(content)))
