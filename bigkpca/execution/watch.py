"""Bounded waits: notice that nothing finishes, and leave calls that do not return."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from time import monotonic
from typing import TypeVar

from bigkpca.errors import IncompleteError

T = TypeVar("T")
POLL_SECONDS = 1.0  # between two looks at what has finished
_MOST_SECONDS = 5.0  # between two looks: more has passed only if this process itself was stopped


class Watch:
    """How long nothing has finished, while this process was running."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._idle, self._looked = 0.0, monotonic()

    def finished(self) -> None:
        """Something has finished."""
        self._idle, self._looked = 0.0, monotonic()

    def look(self, most: float = _MOST_SECONDS) -> bool:
        """Whether nothing has finished for too long; the last look was at most `most` seconds ago."""
        now = monotonic()
        self._idle += min(now - self._looked, most)
        self._looked = now
        return self.stalled

    @property
    def stalled(self) -> bool:
        """Whether nothing had finished for too long at the last look."""
        return self._idle >= self.seconds


def stalled_error(watch: Watch, what: str) -> IncompleteError:
    """The error that ends a run in which nothing finishes; `what` hangs."""
    return IncompleteError(
        f"nothing has finished for {_shown(watch.seconds)}: {what}; run the same command again when that is mended, or "
        "allow more time with --timeout (timeout= in Python)"
    )


def _shown(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} seconds"


def within(seconds: float, function: Callable[[], T], late: str) -> T:
    """function(), or IncompleteError with the message `late` if it does not return in time; its thread is left."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:
            found.set_exception(error)

    Thread(target=run, name="bigkpca-bounded", daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError as error:
        if found.done():  # it is the function's own
            raise
        raise IncompleteError(late) from error
