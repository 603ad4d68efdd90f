"""Files that survive a power failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
