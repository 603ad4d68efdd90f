"""Local disks: files that appear whole and survive a power failure, and one writer per output."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from bigkpca.data.retrying import error_of, retried
from bigkpca.data.stores.base import Store, StoredFile, check_metadata, check_name, is_metadata, is_url, parent
from bigkpca.errors import LockedError, SpecError


def _within(inner: str, outer: str) -> bool:
    return os.path.commonpath([inner, outer]) == outer


try:
    import fcntl
except ImportError as error:
    raise ImportError(
        "bigkpca runs on Linux and macOS: it locks outputs with flock, which this system lacks"
    ) from error

_LOCK = ".bigkpca-lock"  # behind the name of an output
_AT_ONCE, _BATCH = 16, 256  # files that are forced to disk
_NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)


def _opened_lock(name: Path, path: str) -> IO[bytes]:
    """The lock file of the output at `path`, created if it does not exist. Raises SpecError if something else is in its
    place, and if it cannot be created."""
    strange = SpecError(f"{name} is not a file, but bigkpca keeps a lock in a file of that name: remove it")
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
        # Without waiting for a reader, as a pipe would.
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
            raise strange from error
        if error.errno not in _NO_PLACE:
            raise
        raise SpecError(
            f"{path} cannot be written, since nothing can be created in {Path(error.filename).parent} "
            f"({error.strerror}): choose another path, or get permission to write there"
        ) from error
    file = os.fdopen(handle, "wb", buffering=0)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise strange
    return file


def local_place(path: str, read_only: bool = False) -> Any:
    """The object that Zarr opens or creates at a path."""
    return _kind()(path, read_only=read_only)


@lru_cache
def _kind() -> type[Any]:
    """The class, created when it is first needed, since Zarr is slow to import."""
    from zarr.storage import LocalStore

    class Bounded(LocalStore):
        """A folder with a limit on metadata, since Zarr reads a file of metadata whole, however large it is."""

        def __reduce__(self) -> Any:
            return local_place, (str(self.root), self.read_only)

        async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
            self._check(key)
            return await super().get(key, *arguments, **options)

        def get_sync(self, key: str, **options: Any) -> Any:
            self._check(key)
            return super().get_sync(key, **options)

        def _check(self, key: str) -> None:
            if is_metadata(key):
                path = f"{self.root}/{key}"
                with suppress(OSError):
                    check_metadata(path, os.stat(path).st_size)

    return Bounded


@dataclass(frozen=True)
class LocalDisk(Store):
    """Files and folders of the system on which this process runs. A rename is never interrupted, and the kernel keeps a
    lock until its process ends, even while it is suspended."""

    def absolute(self, path: str) -> str:
        # What ".." stands behind may be a link, so that only the file system knows what it means.
        return os.path.realpath(path) if os.pardir in Path(path).parts else os.path.abspath(path)

    def resolved(self, path: str) -> str:
        return os.path.realpath(path)

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        out = os.path.expanduser(path)
        # What ".." stands behind may be a link, so that only the file system knows what it means.
        linked = os.path.islink(out.rstrip(os.sep)) or os.pardir in Path(out).parts
        out = os.path.realpath(out) if linked else os.path.normpath(out)
        check_name(out, path)
        real, here = os.path.realpath(out), os.path.realpath(os.curdir)
        if _within(here, real):
            raise SpecError(f"{path} is the current folder or contains it: name a new folder for the output")
        if os.path.ismount(real):
            raise SpecError(f"{path} is a mount point, which cannot be replaced: name a folder in it")
        for other in inputs:
            if is_url(other):
                continue
            taken = os.path.realpath(os.path.expanduser(other))
            if real == taken or (os.path.exists(real) and os.path.exists(taken) and os.path.samefile(real, taken)):
                raise SpecError(f"{path} is an input and would be replaced: choose another output path")
            if _within(real, taken) or _within(taken, real):
                raise SpecError(f"{path} and the input {other} lie inside each other: choose another output path")
        if file := next((str(above) for above in Path(real).parents if above.is_file()), None):
            raise SpecError(f"{path} cannot be written: {file} is a file, not a folder")
        return out

    def zarr(self, path: str) -> Any:
        return local_place(self.absolute(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def names(self, path: str) -> list[str]:
        return os.listdir(path)

    def file(self, path: str) -> StoredFile:
        return stored_file(os.stat(path))

    def files(self, path: str) -> dict[str, StoredFile]:
        # A file that its folder lists but that is not found may just have been removed, or be invisible: the next
        # listing shows which.
        return retried(lambda: dict(_below(path, "")), path)

    def open(self, path: str) -> IO[bytes]:
        return Path(path).open("rb")

    def read(self, path: str, start: int = 0, stop: int | None = None) -> tuple[bytes, StoredFile]:
        with Path(path).open("rb", buffering=0) as file:
            found = stored_file(os.fstat(file.fileno()))
            first = start if start >= 0 else max(0, found.bytes + start)
            file.seek(first)
            left = (found.bytes if stop is None else min(stop, found.bytes)) - first
            pieces = []
            while left > 0 and (piece := file.read(left)):  # one read returns 2 GB at most
                pieces.append(piece)
                left -= len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces), found

    def make_folder(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def make_new_folder(self, path: str) -> None:
        os.mkdir(path)  # which follows no link

    def write(self, path: str, content: bytes) -> None:
        with self.writing(path) as file:
            file.write(content)

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        # The same name in each run, so that the next one removes what a killed one left.
        with _moved_to(path, f"{path}.partial") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _sync_entry(_folder_of(path))

    def put(self, path: str, content: bytes) -> None:
        _make_folders_of_key(_folder_of(path))
        with _moved_to(path, f"{path}.{uuid4().hex}.partial") as file:
            file.write(content)

    def sync(self, path: str) -> None:
        # Neither Zarr nor the kernel guarantees that written data survives.
        if os.path.isfile(path):
            _sync_entry(path)
            _sync_entry(_folder_of(path))
            return
        for partial in Path(path).rglob("*.partial"):
            partial.unlink(missing_ok=True)
        entries = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in (*names, ""))
        # Several at once: a busy disk takes hardly longer for them than for one.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while some := list(islice(entries, _BATCH)):
                list(pool.map(_sync_listed, some))

    def move(self, source: str, target: str) -> None:
        os.rename(source, target)
        _sync_entry(_folder_of(target))

    def exchange(self, a: str, b: str) -> bool:
        mac = sys.platform == "darwin"
        exchange = getattr(ctypes.CDLL(None, use_errno=True), "renamex_np" if mac else "renameat2", None)
        if exchange is None:
            return False
        sys.audit("os.rename", a, b, -1, -1)  # as Python does for its own
        flag = 2  # RENAME_EXCHANGE of renameat2, and RENAME_SWAP of renamex_np
        here = () if mac else (-100,)  # AT_FDCWD: relative paths start at the current folder
        if exchange(*here, os.fsencode(a), *here, os.fsencode(b), ctypes.c_uint(flag)) == 0:
            _sync_entry(_folder_of(b))
            return True
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):  # not supported by this kernel or this file system
            return False
        raise OSError(code, os.strerror(code), a, None, b)

    def remove_file(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        if os.path.islink(path):
            self.remove_file(path)
        else:
            shutil.rmtree(path, ignore_errors=True)

    def remove_links(self, path: str, *, below: bool) -> None:
        if os.path.islink(path):
            self.remove_file(path)
        for folder, folders, names in os.walk(path) if below else ():
            for name in (*folders, *names):
                if os.path.islink(found := os.path.join(folder, name)):
                    self.remove_file(found)

    def discard(self, path: str, trash: str) -> None:
        if os.path.lexists(path):
            self.move(path, trash)
            self.remove_folder(trash)

    @contextmanager
    def writer(self, path: str) -> Iterator[None]:
        name = Path(path + _LOCK)
        locked = LockedError(f"another run is writing {path}: wait until it ends (its lock is {name})")
        try:
            with _opened_lock(name, path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released even by SIGKILL
                except OSError as error:
                    raise locked from error
                if not name.exists() or os.fstat(file.fileno()).st_ino != name.stat().st_ino:
                    raise locked  # its holder ended and removed it between this open and this lock
                try:
                    yield
                finally:
                    name.unlink(missing_ok=True)
        except OSError as error:
            if (known := error_of(error, path)) is not None:
                raise known from error
            raise


@contextmanager
def _moved_to(path: str, partial: str) -> Iterator[IO[bytes]]:
    """A new file `partial` to write, which is renamed to `path` at the end, and removed on an error. Anything already
    at `partial`, left by a killed write or put there by someone else, is removed, not written to: a link is never
    followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            handle = os.open(partial, flags, 0o666)
        except FileExistsError:
            os.unlink(partial)
            handle = os.open(partial, flags, 0o666)
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(partial, path)
    except BaseException:  # e.g. on a full disk, which needs the space
        Path(partial).unlink(missing_ok=True)
        raise


def stored_file(status: os.stat_result) -> StoredFile:
    return StoredFile(status.st_size, f"{status.st_size} {status.st_mtime_ns}")


def _below(folder: str, prefix: str) -> Iterator[tuple[str, StoredFile]]:
    """The files below a folder, with their names from `prefix` on; nothing if there is no folder. Broken links are
    skipped. Raises OSError if a folder or file cannot be read: a chunk that is left out would represent the fill
    value."""
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        if prefix:  # the folder above lists it
            raise
        return
    with entries:
        for entry in entries:
            try:
                if entry.is_dir():
                    yield from _below(entry.path, f"{prefix}{entry.name}/")
                else:
                    yield prefix + entry.name, stored_file(entry.stat())
            except OSError as error:
                if not (entry.is_symlink() and error.errno in (errno.ENOENT, errno.ELOOP)):
                    raise


def _make_folders_of_key(folder: str, above: int = 1) -> None:
    """Make the folders in the key of a chunk, such as c/5 for c/5/0, but not that of its array: if that is missing, its
    disk may be missing, too, and files written below its mount point would be lost."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if not above:
            raise
        _make_folders_of_key(_folder_of(folder), above - 1)
        with suppress(FileExistsError):
            os.mkdir(folder)


def _folder_of(path: str) -> str:
    return parent(os.path.abspath(path))


def _sync_entry(path: str) -> None:
    """Force the content of a file, or the list of names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_listed(path: str) -> None:
    """The same for a path from a listing; that of a folder ends with a slash."""
    try:
        _sync_entry(path)
    except FileNotFoundError:
        if path.endswith(os.sep):
            raise  # otherwise it was a partial file, which its writer has renamed or discarded meanwhile
