"""Groups of processes that the kernel gives so much memory, and kills when they take more."""

from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.helpers.dask_processes import wait_until


class MemoryGroup:
    """A memory control group of version 1; `command` is what starts a command inside."""

    def __init__(self):
        self.folder = Path("/sys/fs/cgroup/memory", f"bigkpca-{uuid4().hex[:12]}")
        self.command = ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]

    def kills(self):
        """How many of its processes the kernel has killed."""
        told = dict(line.split() for line in (self.folder / "memory.oom_control").read_text().splitlines())
        return int(told["oom_kill"])


@contextmanager
def memory_group(most_bytes):
    """A group that may use so much; skips the test where none can be made. Its processes end before it does."""
    group = MemoryGroup()
    try:
        group.folder.mkdir()
        (group.folder / "memory.limit_in_bytes").write_text(str(most_bytes))
        group.kills()
    except (OSError, KeyError):
        with suppress(FileNotFoundError):
            group.folder.rmdir()
        pytest.skip("the memory of processes needs the right to make control groups (version 1)")
    try:
        yield group
    finally:  # the kernel lets go of processes a moment after they ended
        wait_until(lambda: not (group.folder / "cgroup.procs").read_text(), 5)
        group.folder.rmdir()
