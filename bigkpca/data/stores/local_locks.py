"""One writer for each output on a local disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bigkpca.errors import LockedError, SpecError

try:
    import fcntl
except ImportError as error:
    raise ImportError(
        "bigkpca runs on Linux and macOS: it locks outputs with flock, which this system lacks"
    ) from error

_LOCK = ".bigkpca-lock"  # behind the name of an output
_NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)


@contextmanager
def lock(path: str) -> Iterator[None]:
    """Hold the output at `path` against other runs; LockedError if one has it. Released even by SIGKILL."""
    name = Path(path + _LOCK)
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
        opened = _opened(name)
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        raise SpecError(
            f"{path} cannot be written, since it cannot be made in {Path(error.filename).parent} ({error.strerror}): "
            "choose another path, or get the right to write there"
        ) from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _locked(path) from error
        if not name.exists() or os.fstat(file.fileno()).st_ino != name.stat().st_ino:
            raise _locked(path)  # its holder ended, and removed it, between our open and our lock
        try:
            yield
        finally:
            name.unlink(missing_ok=True)


def _opened(name: Path) -> IO[bytes]:
    """The file of a lock, made if it is not there. Raises SpecError for anything else at its place."""
    try:
        # Without waiting for a reader, as of a pipe.
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
            raise _no_lock(name) from error
        raise
    file = os.fdopen(handle, "wb", buffering=0)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise _no_lock(name)
    return file


def _no_lock(name: Path) -> SpecError:
    return SpecError(f"{name} is not a file, and bigkpca keeps a lock in a file of that name: remove it")


def _locked(path: str) -> LockedError:
    return LockedError(f"another run is writing {path}: wait until it ends (its lock is {path}{_LOCK})")
