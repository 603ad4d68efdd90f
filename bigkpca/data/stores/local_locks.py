"""One writer for each output on a local disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigkpca.errors import LockedError

try:
    import fcntl
except ImportError as error:
    raise ImportError(
        "bigkpca runs on Linux and macOS: it locks outputs with flock, which this system lacks"
    ) from error

_LOCK = ".bigkpca-lock"  # behind the name of an output


@contextmanager
def lock(path: str) -> Iterator[None]:
    """Hold the output at `path` against other runs; LockedError if one has it. Released even by SIGKILL."""
    name = Path(path + _LOCK)
    name.parent.mkdir(parents=True, exist_ok=True)
    with name.open("a") as file:
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


def _locked(path: str) -> LockedError:
    return LockedError(f"another run is writing {path}: wait until it ends (its lock is {path}{_LOCK})")
