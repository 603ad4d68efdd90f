"""Progress and notes on stderr."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

stderr = Console(stderr=True, highlight=False, soft_wrap=True)


class Report:
    """Progress on stderr: a bar on a terminal, one line for each finished pass; nothing when quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bars: Bars | None = None
        self._title, self._done, self._started = "", 0, 0.0

    def start(self, title: str, rows: int) -> None:
        self._title, self._done, self._started = title, 0, time.perf_counter()
        if stderr.is_terminal and not self._quiet:
            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}")
            self._bars = Bars(*columns, TimeRemainingColumn(), console=stderr, transient=True)
            self._bars.add_task(title, total=rows or None, rate="")
            self._bars.start()

    def advance(self, rows: int) -> None:
        self._done += rows
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
        if not self._quiet:
            stderr.print(message, markup=False)

    def _rate(self) -> str:
        return f"{self._done / max(time.perf_counter() - self._started, 1e-9):,.0f} rows/s"
