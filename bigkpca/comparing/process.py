"""Run each fit in a process of its own, so that its peak memory is measured alone.

Processes are forked from a server process that has imported the package and done nothing else; that takes milliseconds,
a new interpreter a second. Unlike those of `multiprocessing`, they do not import the user's script.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from bigkpca.errors import IncompleteError

_SERVE = "import sys; from bigkpca import comparing; comparing.process.serve(*map(int, sys.argv[1:]))"
_WATCH_SECONDS = 0.5


class ProcessDiedError(IncompleteError):
    """A process ended before it returned a result, most often because memory ran out."""


class ProcessRunner:
    """Context manager that runs functions of the package, each in a fresh process, and waits for the result."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> ProcessRunner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._server and self._connection:
            self._connection.close()
            self._server.terminate()
            self._server.wait()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(*arguments) in a fresh process. Raises what the function raises, and ProcessDiedError."""
        connection = self._connection or self._started()
        try:
            connection.send((function, arguments))
            answer = connection.recv()
        except (EOFError, OSError) as error:
            raise ProcessDiedError("processes cannot be started here") from error
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _started(self) -> Connection:
        """Start the server process, and return the connection to it."""
        self._connection, there = Pipe()
        command = [sys.executable, "-c", _SERVE, str(there.fileno()), str(os.getpid())]
        self._server = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
        there.close()
        return self._connection


def serve(handle: int, parent: int) -> None:
    """Run (function, arguments) received on the connection with this file handle, until it is closed.

    No child outlives this process or `parent`, the process that asks, unless this process is ended by SIGKILL.
    """
    connection = Connection(handle)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the waiting process, which ends this one
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        read_end, write_end = os.pipe()  # end of file once the child has ended
        # SIGTERM is blocked until its handler knows the child; otherwise it could end this process and leave the child.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about threads: BLAS restarts its own after a fork
            child = os.fork()
        if child:
            signal.signal(signal.SIGTERM, partial(_end, child))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if not child:
            os.close(read_end)
            _answer(connection, *request)
        os.close(write_end)
        while not wait([read_end], _WATCH_SECONDS):
            if os.getppid() != parent:
                _end(child)
        os.close(read_end)
        _, status = os.waitpid(child, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if status:
            code = os.waitstatus_to_exitcode(status)
            connection.send(ProcessDiedError(f"its process died (exit code {code}): memory may have run out"))


def _answer(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Run the function, send the result or the error, and end this process."""
    try:
        answer = function(*arguments)
    except Exception as error:
        error.add_note(traceback.format_exc())
        answer = error
    connection.send(answer)
    os._exit(0)


def _end(child: int, *_: object) -> None:
    """End the child, then this process."""
    with suppress(ProcessLookupError):  # it may have ended already
        os.kill(child, signal.SIGKILL)
    os._exit(1)


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
