"""What lies on disk, and small disks that fill up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def tree_bytes(root: str | Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(Path(root).rglob("*")) if file.is_file()}


def mount(limits: str, folder: Path) -> None:
    """Mount an empty file system with these limits; skips the test where that is not allowed."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", limits, "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a small disk needs the right to mount one")


@contextmanager
def small_disk(size: str, folder: Path) -> Iterator[Path]:
    """A real file system of this size at a new folder."""
    folder.mkdir()
    mount(f"size={size}", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
