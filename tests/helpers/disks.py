"""What lies on disk, and small disks that fill up."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest


def tree_bytes(root: str | Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(Path(root).rglob("*")) if file.is_file()}


HARMS = {  # what can happen to a stored file
    "flipped": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 4]) + path.read_bytes()[1:]),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
}


@dataclass(frozen=True)
class Restored:
    """A folder that was made once, and that every test finds as it was made, with the times of its files."""

    folder: Path
    kept: Path

    @classmethod
    def made(cls, folder: Path) -> Self:
        """Keep what is in the folder now."""
        kept = folder.with_name(folder.name + "-kept")
        shutil.copytree(folder, kept, symlinks=True)
        return cls(folder, kept)

    def again(self) -> Path:
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept, self.folder, symlinks=True)
        return self.folder


@contextmanager
def mounted(limits: str, folder: Path) -> Iterator[Path]:
    """A real, empty file system with these limits at a new folder; skips the test where none can be mounted."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", limits, "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("a small disk needs the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
