"""Local disks: files that appear whole and survive a power failure, and one writer per output."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bigkpca.data.stores.base import LOCK, PARTIAL, StoredFile, check_name, is_url, parent
from bigkpca.errors import LockedError, SpecError, meaning_of

try:
    import fcntl
except ImportError as error:
    raise ImportError(
        "bigkpca runs on Linux and macOS: it locks outputs with flock, which this system lacks"
    ) from error

_AT_ONCE = 16  # files that are forced to disk
_NO_PLACE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL),
    *(errno.EISDIR, errno.ELOOP),  # where a folder or a link is
)


@dataclass(frozen=True)
class LocalDisk:
    """Files and folders. A rename is never interrupted, and the kernel keeps a lock until its process ends."""

    def absolute(self, path: str) -> str:
        """The full path, the same in every folder that a process may run in."""
        # What ".." stands behind may be a link, so that only the file system knows what it means.
        return os.path.realpath(path) if os.pardir in Path(path).parts else os.path.abspath(path)

    def resolved(self, path: str) -> str:
        """The full path, with links followed."""
        return os.path.realpath(path)

    def output_path(self, path: str, inputs: tuple[str, ...]) -> str:
        """The normalised path of an output. Raises SpecError where no output may be: at, in or around one of the
        `inputs`, where nothing can be replaced, or with a name reserved for what lies beside an output."""
        out = os.path.expanduser(path)
        linked = os.path.islink(out.rstrip(os.sep)) or os.pardir in Path(out).parts  # as in `absolute`
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

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def names(self, path: str) -> list[str]:
        """Names directly in a folder."""
        return os.listdir(path)

    def file(self, path: str) -> StoredFile:
        """Size and stamp of a file. Raises OSError if there is none."""
        return stored_file(os.stat(path))

    def files(self, path: str) -> dict[str, StoredFile]:
        """All files below a folder, by their names from there; empty if there is no folder. Reads no content."""
        return dict(_below(path, "")) if os.path.isdir(path) else {}

    def open(self, path: str) -> IO[bytes]:
        """A file to read from, with seek. Raises OSError if there is none."""
        return Path(path).open("rb")

    def make_folder(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: bytes) -> None:
        """Write or replace a file in an existing folder: readers see all of it or none, even after a power failure."""
        with self.writing(path) as file:
            file.write(content)

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        """A file to write to, which appears at `path`, as with `write`, unless the context ends with an error."""
        partial = f"{path}{PARTIAL}"  # the same name in each run, so that the next one removes what a killed one left
        Path(partial).unlink(missing_ok=True)  # and never follows a link
        with replacing(path, partial) as file:
            yield file

    def sync(self, path: str) -> None:
        """Make all files below a folder survive a power failure, and remove partial files of killed writes."""
        entries = []
        for folder, _, names in os.walk(path):
            entries.append(folder)
            for each in (os.path.join(folder, name) for name in names):
                if each.endswith(PARTIAL):  # of Zarr
                    self.remove_file(each)
                else:
                    entries.append(each)
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # a busy disk takes hardly longer for several files than for one
            list(pool.map(force, entries))

    def move(self, source: str, target: str, aside: str) -> None:
        """Move a finished folder to a path; what is there is moved to `aside` before, in place of what is there. Each
        move is one rename."""
        if os.path.exists(target):
            self.remove_folder(aside)
            os.rename(target, aside)
        os.rename(source, target)
        force(parent(os.path.abspath(target)))

    def remove_file(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        """Remove a folder and everything below it, if it exists; a file, and what a link leads to, stay."""
        if os.path.islink(path):
            self.remove_file(path)
        elif os.path.isdir(path):
            self.remove_file(f"{path}/zarr.json")  # so that no reader takes what is left for the whole
            shutil.rmtree(path)

    def remove_empty(self, path: str) -> None:
        with suppress(OSError):
            os.rmdir(path)

    @contextmanager
    def writer(self, path: str) -> Iterator[None]:
        """While entered, no other run writes the output at `path`. Raises LockedError if another run does."""
        name = Path(path + LOCK)
        locked = LockedError(f"another run is writing {path}: wait until it ends (its lock is {name})")
        try:
            with _opened_lock(name, path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released even by SIGKILL
                    if not os.path.samestat(os.fstat(file.fileno()), os.stat(name)):
                        raise locked
                except (BlockingIOError, FileNotFoundError) as error:  # or its holder has just removed it
                    raise locked from error
                except OSError as error:
                    raise SpecError(
                        f"{name} cannot be locked ({error.strerror}): choose an output path on another file system"
                    ) from error
                try:
                    yield
                finally:
                    name.unlink(missing_ok=True)
        except OSError as error:
            if (known := meaning_of(error, path)) is not None:
                raise known from error
            raise


def force(path: str) -> None:
    """Force the content of a file, or the list of names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: str, partial: str) -> Iterator[IO[bytes]]:
    """A file to write to at `partial`, where nothing is. When the context ends, it is forced to disk and put at `path`
    by one rename; on an error it is removed."""
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:  # e.g. on a full disk, which needs the space
        Path(partial).unlink(missing_ok=True)
        raise
    force(os.path.dirname(os.path.abspath(path)))


def stored_file(status: os.stat_result) -> StoredFile:
    return StoredFile(status.st_size, f"{status.st_size} {status.st_mtime_ns}")


def _within(inner: str, outer: str) -> bool:
    return os.path.commonpath([inner, outer]) == outer


def _below(folder: str, prefix: str) -> Iterator[tuple[str, StoredFile]]:
    """The files below a folder, with their names from `prefix` on. Links to nowhere, or in circles, are skipped."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir():
                    yield from _below(entry.path, f"{prefix}{entry.name}/")
                else:
                    yield prefix + entry.name, stored_file(entry.stat())
            except OSError as error:
                if not (entry.is_symlink() and error.errno in (errno.ENOENT, errno.ELOOP)):
                    raise


def _opened_lock(name: Path, path: str) -> IO[bytes]:
    """The lock file of the output at `path`, created if it does not exist. Raises SpecError if it cannot be created."""
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        raise SpecError(
            f"{path} cannot be written, since {error.filename} cannot be created ({error.strerror}): choose another "
            "path, or get permission to write there"
        ) from error
    return os.fdopen(handle, "wb", buffering=0)
