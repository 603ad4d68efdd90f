"""Progress and notes on stderr."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from bigkpca.execution.progress import WARNING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

_LINE_SECONDS = 60.0  # between two lines about a pass that is not shown as a bar


@cache
def stderr() -> Console:
    """Where progress, notes and errors are printed."""
    from rich.console import Console  # here, so that commands with nothing to say start without it

    return Console(stderr=True, highlight=False, soft_wrap=True)


class ShownProgress:
    """Progress on stderr: a bar on a terminal, else a line a minute; a line for each finished pass; warnings alone when
    quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bars: Bars | None = None
        self._title, self._rows, self._done = "", 0, 0
        self._started = self._told = 0.0  # when the pass began, and when a line was last printed

    def start(self, title: str, rows: int) -> None:
        self._title, self._rows, self._done = title, rows, 0
        self._started = self._told = time.perf_counter()
        if self._bar():
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}")
            self._bars = Bars(*columns, TimeRemainingColumn(), console=stderr(), transient=True)
            self._bars.add_task(title, total=rows or None, rate="")
            self._bars.start()

    def _bar(self) -> bool:
        return not self._quiet and stderr().is_terminal

    def advance(self, rows: int) -> None:
        self._done += rows
        if not self._bars and time.perf_counter() - self._told >= _LINE_SECONDS:
            self._told = time.perf_counter()
            known = self._rows >= self._done > 0
            done = f"{self._done:,} of {self._rows:,}" if known else f"{self._done:,}"
            self.note(f"{self._title}: {done} rows ({self._rate()})" + (f", {self._left()}" if known else ""))
        if self._bars:
            self._bars.update(self._bars.task_ids[0], completed=self._done, rate=self._rate())

    def finish(self) -> None:
        if self._bars:
            self._bars.stop()
            self._bars = None
        if self._done:
            seconds = time.perf_counter() - self._started
            self.note(f"{self._title}: {self._done:,} rows in {seconds:.1f} s ({self._rate()})")

    def note(self, message: str) -> None:
        if not self._quiet or message.startswith(WARNING):
            stderr().print(message, markup=False)

    def _left(self) -> str:
        seconds = (time.perf_counter() - self._started) * (self._rows / self._done - 1)
        return f"{timedelta(seconds=round(seconds))} left"

    def _rate(self) -> str:
        return f"{self._done / max(time.perf_counter() - self._started, 1e-9):,.0f} rows/s"


class JsonProgress(ShownProgress):
    """Progress as one JSON object a line, for those who collect logs: never a bar."""

    def _bar(self) -> bool:
        return False

    def note(self, message: str) -> None:
        if not self._quiet or message.startswith(WARNING):
            print_json(message=message)


def print_json(**values: Any) -> None:
    """One JSON object on a line of stderr."""
    stderr().print(json_line(**values), markup=False)


def json_line(**values: Any) -> str:
    """A line of a log: the time, and these values."""
    return json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **values})
