"""Groups of processes that the kernel gives so much memory, and kills when they take more."""

from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from tests.helpers.dask_processes import wait_until


@contextmanager
def memory_group(most_bytes):
    """A memory control group of version 1 that may use so much; skips the test where none can be made.

    `command` is what starts a command inside, and `kills()` how many of these the kernel has killed.
    """
    folder = Path("/sys/fs/cgroup/memory", f"bigkpca-{uuid4().hex[:12]}")

    def kills():
        told = dict(line.split() for line in (folder / "memory.oom_control").read_text().splitlines())
        return int(told["oom_kill"])

    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(most_bytes))
        kills()
    except (OSError, KeyError):
        with suppress(FileNotFoundError):
            folder.rmdir()
        pytest.skip("the memory of processes needs the right to make control groups (version 1)")
    command = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]
    try:
        yield SimpleNamespace(command=command, kills=kills)
    finally:  # the kernel lets go of processes a moment after they ended
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), 5)
        folder.rmdir()
