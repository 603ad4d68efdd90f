"""A process that waits, is stopped in the middle of its work and later goes on."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def suspended(code, *argv):
    """Run code until it prints a line, and stop it. The call given wakes it, sends a line, and tells its exit code."""
    command = [sys.executable, "-c", code, *argv]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline()
        os.kill(process.pid, signal.SIGSTOP)

        def wake():
            os.kill(process.pid, signal.SIGCONT)
            process.communicate("go on\n", timeout=120)
            return process.returncode

        try:
            yield wake
        finally:
            process.kill()
