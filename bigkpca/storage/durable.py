"""Files that appear whole and stay after a power failure."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bigkpca.errors import IncompleteError

_EXCHANGE = 2  # the flag of renameat2 on Linux, and of renamex_np on macOS


def exchanged(a: str, b: str) -> bool:
    """Exchange two folders at once, so that neither path is ever empty; False where the system cannot."""
    mac = sys.platform == "darwin"
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renamex_np" if mac else "renameat2", None)
    if exchange is None:
        return False
    sys.audit("os.rename", a, b, -1, -1)  # as Python does for its own
    here = () if mac else (-100,)  # AT_FDCWD: relative paths start at the current folder
    if exchange(*here, os.fsencode(a), *here, os.fsencode(b), ctypes.c_uint(_EXCHANGE)) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):  # of this kernel, or this file system
        return False
    raise OSError(code, os.strerror(code), a, None, b)


@contextmanager
def room_on_disk(path: str) -> Iterator[None]:
    """Turn a full disk into IncompleteError: what was published before is untouched, and the run can go on."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise IncompleteError(
            f"the disk is full while writing {path}: make room and run the same command again"
        ) from error


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(root: Path) -> None:
    """Force every file and folder below `root` to disk: neither Zarr nor the kernel promises that by itself."""
    for folder, _, names in os.walk(root):
        for name in names:
            handle = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_folder(Path(folder))


def remove_partials(root: str) -> None:
    """Remove the files below `root` that a write left behind which was killed before its rename."""
    for partial in Path(root).rglob("*.partial"):
        partial.unlink(missing_ok=True)


def publish_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file so that readers see all of it or none, also after a power failure."""
    publish_text(path, json.dumps(values, indent=1))


def publish_text(path: Path, text: str) -> None:
    """Write a file so that readers see all of it or none, also after a power failure."""
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
