"""Commands: in this process, and in one of its own for what it takes."""

import os
import re
import subprocess
import sys

from click.testing import CliRunner

from bigkpca.cli import main


def run(*arguments):
    """A command in this process; `quiet_signals` keeps its handlers away from the tests."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def finished(*command, code=0, **how):
    """A command in a process of its own that ended with this exit code, and what it printed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **how)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-6000:]
    return done


def run_apart(*arguments):
    """In a process of its own, for exit codes and stderr as a shell sees them."""
    command = [sys.executable, "-m", "bigkpca.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=_environment())


_PEAK = """
import resource, sys
from bigkpca.cli import main
refused = sys.argv.pop(1) == "refused"
if refused:  # a test that fails harms nobody
    resource.setrlimit(resource.RLIMIT_AS, (16 * 10**9, resource.RLIM_INFINITY))
try:
    main(sys.argv[1:], standalone_mode=False)
    code = 0
except SystemExit as error:
    code = error.code
assert bool(code) == refused, f"the command ended with {code}"
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
_SET_BY_CLUSTERS = ("MALLOC_", "OMP_", "MKL_", "OPENBLAS_")  # that Dask puts into the process which starts one


def _environment():
    return {key: value for key, value in os.environ.items() if not key.startswith(_SET_BY_CLUSTERS)}


def peak_bytes(*arguments, how="done"):
    """The peak of resident memory of a command in a process of its own, as a shell would start it, or of one that is to
    be "refused"."""
    done = finished(sys.executable, "-c", _PEAK, how, *arguments, timeout=300, env=_environment())
    return int(done.stdout.split()[-1]) * 1024


def planned_bytes(*arguments):
    """The peak that a command plans for itself, from its refusal of 1 MB."""
    refused = run_apart(*arguments, "--memory", "1 MB").stderr
    found = re.search(r"this needs (\d+) MB in a process, but 1 MB are allowed", refused)
    assert found, refused
    return int(found[1]) * 1_000_000
