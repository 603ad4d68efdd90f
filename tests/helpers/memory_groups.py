"""Groups of processes that the kernel gives so much memory, and kills when they take more."""

import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

_GROUPS = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class MemoryGroup:
    """A memory control group of version 1."""

    folder: Path

    @property
    def command(self):
        """What starts a command inside."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]

    def kills(self):
        """How many of its processes the kernel has killed."""
        told = dict(line.split() for line in (self.folder / "memory.oom_control").read_text().splitlines())
        return int(told["oom_kill"])


@contextmanager
def memory_group(most_bytes):
    """A group that may use so much; skips the test where none can be made. Its processes end before it does."""
    group = MemoryGroup(_GROUPS / f"bigkpca-{uuid4().hex[:12]}")
    try:
        group.folder.mkdir()
        (group.folder / "memory.limit_in_bytes").write_text(str(most_bytes))
        group.kills()
    except (OSError, KeyError):
        if group.folder.exists():
            group.folder.rmdir()
        pytest.skip("the memory of processes needs the right to make control groups (version 1)")
    try:
        yield group
    finally:
        for _ in range(100):  # the kernel lets go of processes a moment after they ended
            if not (group.folder / "cgroup.procs").read_text():
                break
            time.sleep(0.05)
        group.folder.rmdir()
