"""Freed memory that the C library keeps goes back to the system, where enough was freed."""

import os
import platform
import subprocess
import sys

import pytest

_CODE = """
import numpy as np
from bigkpca.execution import release_freed_memory

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

pieces = [np.ones(12_000) for _ in range(600)]  # 58 MB in pieces too small for a mapping of their own
last = pieces.pop()  # above them: without `release_freed_memory`, those below stay resident
del pieces
resident = []
for size in (0, 100, 1000):
    release_freed_memory(size)
    resident.append(resident_mb())
print(*resident)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the C library that keeps freed memory")
def test_memory_below_what_is_in_use_returns_only_after_work_with_many_features():
    env = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True, env=env)
    before, few, many = map(float, done.stdout.split())
    assert abs(few - before) < 1  # a page more or less is the interpreter's own
    assert many < before - 30
