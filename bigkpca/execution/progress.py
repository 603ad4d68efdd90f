"""Progress of passes, shown on stderr, and bounded waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from bigkpca.errors import IncompleteError

if TYPE_CHECKING:
    from rich.console import Console


WARNING = "warning: "  # notes with this prefix are always shown
_LINE_SECONDS = 60.0  # between two lines about a pass that is not shown as a bar


class Progress:
    """Receives the title and number of rows of each pass, the rows of each finished block, and notes for the user. This
    one shows nothing."""

    def start(self, title: str, rows: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def finish(self) -> None: ...

    def note(self, message: str) -> None: ...


def shown(progress: Progress | bool | None) -> Progress:
    """The progress that a user requested: a custom one, bars and lines on stderr for True, nothing for False."""
    if progress is None or isinstance(progress, bool | int):  # scikit-learn's verbose can be an integer
        return ShownProgress(quiet=False) if progress else Progress()
    return progress


@contextmanager
def shown_pass(progress: Progress, title: str, rows: int = 0) -> Iterator[Callable[[int], None]]:
    """A pass, of this number of rows if it is known, and a function that counts the rows that are done."""
    progress.start(title, rows)
    try:
        yield progress.advance
    finally:
        progress.finish()


@cache
def stderr() -> Console:
    """Where progress, notes and errors are printed."""
    from rich.console import Console  # here, so that commands without output start without it

    return Console(stderr=True, highlight=False, soft_wrap=True)


class ShownProgress(Progress):
    """Progress on stderr: a bar on a terminal, and in a notebook that has ipywidgets, otherwise a line per minute; a
    line for each finished pass; only warnings when quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bars: Any = None
        self._title, self._rows, self._done = "", 0, 0
        self._started = self._told = 0.0  # when the pass began, and when a line was last printed

    def start(self, title: str, rows: int) -> None:
        self._stop_bar()  # of a pass that ends in a search for its error
        self._title, self._rows, self._done = title, rows, 0
        self._started = self._told = time.perf_counter()
        if self._quiet:
            return
        if stderr().is_terminal or (stderr().is_jupyter and find_spec("ipywidgets")):
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]}")
            self._bars = Bars(*columns, TimeRemainingColumn(), console=stderr(), transient=True)
            self._bars.add_task(title, total=rows or None, done="")
            self._bars.start()

    def advance(self, rows: int) -> None:
        self._done += rows
        known, now = self._rows >= self._done > 0, time.perf_counter()
        of = f" of {self._rows:,}" if known else ""
        text = f"{self._done:,}{of} rows ({self._rate()})"
        if self._bars:
            self._bars.update(self._bars.task_ids[0], completed=self._done, done=text)
        elif now - self._told >= _LINE_SECONDS:
            self._told = now
            left = round((now - self._started) * (self._rows / self._done - 1)) if known else 0
            self.note(f"{self._title}: {text}" + (f", {timedelta(seconds=left)} left" if known else ""))

    def finish(self) -> None:
        self._stop_bar()
        if self._done:
            seconds = time.perf_counter() - self._started
            self.note(f"{self._title}: {self._done:,} rows in {seconds:.1f} s ({self._rate()})")
        self._done = 0

    def _stop_bar(self) -> None:
        if self._bars:
            self._bars.stop()
            self._bars = None

    def note(self, message: str) -> None:
        if not self._quiet or message.startswith(WARNING):
            stderr().print(message, markup=False)

    def _rate(self) -> str:
        return f"{self._done / max(time.perf_counter() - self._started, 1e-9):,.0f} rows/s"


T = TypeVar("T")


def within(seconds: float, function: Callable[[], T], late: str) -> T:
    """function(), or IncompleteError with the message `late` if it does not return in time; its thread is abandoned."""
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
