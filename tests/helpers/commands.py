"""Commands: in this process, and in one of its own for what it takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from bigkpca.cli import main


def run(*arguments: Any) -> Result:
    """A command in this process; `quiet_signals` keeps its handlers away from the tests."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run_apart(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """In a process of its own, for exit codes and stderr as a shell sees them."""
    command = [sys.executable, "-m", "bigkpca.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


_PEAK = """
import sys
from bigkpca.cli import main
main(sys.argv[1:], standalone_mode=False)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


_REFUSED = """
import resource, sys
from bigkpca.cli import main
resource.setrlimit(resource.RLIMIT_AS, (16 * 10**9, resource.RLIM_INFINITY))  # a test that fails harms nobody
try:
    main(sys.argv[1:], standalone_mode=False)
except SystemExit as error:
    assert error.code, "it was not refused"
    print(error.code, next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def peak_of_refusal(*arguments: object) -> int:
    """The peak of resident memory, in bytes, of a command that is refused, in a process of its own."""
    command = [sys.executable, "-c", _REFUSED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return int(done.stdout.split()[-1]) * 1024


_SET_BY_CLUSTERS = ("MALLOC_", "OMP_", "MKL_", "OPENBLAS_")  # that Dask puts into the process which starts one


def peak_bytes(*arguments: object) -> int:
    """The peak of resident memory of a command in a process of its own, as a shell would start it."""
    command = [sys.executable, "-c", _PEAK, *map(str, arguments)]
    env = {key: value for key, value in os.environ.items() if not key.startswith(_SET_BY_CLUSTERS)}
    printed = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True, env=env).stdout
    return int(printed.rstrip().rpartition("\n")[2]) * 1024


def planned_bytes(*arguments: object) -> int:
    """The peak that a command plans for itself, from its refusal of 1 MB."""
    refused = run_apart(*arguments, "--memory", "1 MB").stderr
    found = re.search(r"this needs (\d+) MB in a process, 1 MB are allowed", refused)
    assert found, refused
    return int(found[1]) * 1_000_000
