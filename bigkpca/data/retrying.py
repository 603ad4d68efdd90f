"""Reads and writes of stored files that are retried after errors that may be temporary.

On a network file system a file may be invisible for a moment, or a read may fail with EIO or ESTALE; a server may
refuse connections while it restarts. None of these is a reason to end a run, or to treat a file as if it had never been
written.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from bigkpca.errors import BigKPCAError, IncompleteError, SpecError

T = TypeVar("T")
SECONDS = 30.0  # seconds of retrying, unless `retrying_for` sets others
_SECONDS: ContextVar[float] = ContextVar("_SECONDS", default=SECONDS)
_MISSING_SECONDS = 60.0  # at most, for a missing file: NFS may keep an old list of a folder for this long
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds between two tries
_QUIET_SECONDS = 60.0  # between two notes about the same path
_noted: dict[str, float] = {}  # when, by path
_log = logging.getLogger("bigkpca")
_MAY_PASS = {
    getattr(errno, name)
    for name in (
        *("EIO", "ESTALE", "ETIMEDOUT", "EMFILE", "ENFILE", "EAGAIN", "EINTR", "EREMOTEIO", "ENOTCONN", "EHOSTDOWN"),
        *("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENODEV", "ENXIO"),
    )
    if hasattr(errno, name)
}


class UnreachableError(IncompleteError):
    """A server does not answer, or answers with an internal error (exit code 6)."""


@contextmanager
def retrying_for(seconds: float) -> Iterator[None]:
    """While entered, `retried` tries for at most this many seconds."""
    token = _SECONDS.set(seconds)
    try:
        yield
    finally:
        _SECONDS.reset(token)


def may_pass(error: BaseException) -> bool:
    """Whether a read or write with this error may succeed at the next try."""
    if isinstance(error, OSError):
        return isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno in _MAY_PASS
    return isinstance(error, UnreachableError)


def error_of(error: OSError, path: str) -> BigKPCAError | None:
    """What a system error means for a user who is writing the output at `path`; None if that is not known."""
    place = error.filename or path
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return IncompleteError(f"the disk is full while writing {path}: make room and run the same command again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return SpecError(
            f"{place}: {error.strerror}: this user needs permission to write {path} and to read its inputs"
        )
    if may_pass(error):
        return IncompleteError(f"{place}: {error.strerror}: run the same command again when it is reachable")
    return None


def retried(action: Callable[[], T], where: str, missing: type[BigKPCAError] | None = IncompleteError) -> T:
    """action(), retried with growing pauses as long as its errors may be temporary. Raises `missing` if a file is still
    missing at the end, or FileNotFoundError at once if that is None; IncompleteError for other errors of this kind."""
    wait, start = _FIRST_WAIT, time.monotonic()
    while True:
        try:
            return action()
        except (OSError, UnreachableError) as error:
            absent = isinstance(error, FileNotFoundError | NotADirectoryError)
            if not may_pass(error) or (absent and missing is None):
                raise
            seconds = min(_SECONDS.get(), _MISSING_SECONDS) if absent else _SECONDS.get()
            if isinstance(error, UnreachableError):
                reason = str(error).partition(": run the same command")[0]
            else:
                reason = f"{error.filename or 'a file'}: {error.strerror or error}"
            now = time.monotonic()
            if now + wait > start + seconds:
                if isinstance(error, UnreachableError):
                    raise
                if absent and missing is not None:
                    raise missing(
                        f"{where}: {error.filename or 'a file'} is missing, and did not reappear within {seconds:g} "
                        "seconds; restore it, or make it again"
                    ) from error
                raise IncompleteError(
                    f"{where}: {reason}, still after {seconds:g} seconds; run the same command again when it is "
                    "reachable"
                ) from error
            if now - _noted.get(where, -_QUIET_SECONDS) >= _QUIET_SECONDS:
                _noted[where] = now
                _log.warning("%s: %s; trying again", where, reason)
        time.sleep(wait)
        wait = min(2 * wait, _LONGEST_WAIT)


def changed(where: str) -> IncompleteError:
    """The error for stored rows that are no longer those that were opened."""
    return IncompleteError(f"{where} changed while it was being read: run again when nothing writes to it")
