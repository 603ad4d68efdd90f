"""Progress of passes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

WARNING = "warning: "  # notes that begin so are shown in any case


class Progress(Protocol):
    """Receives the title and number of rows of each pass, the rows of each finished block, and notes for the user."""

    def start(self, title: str, rows: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def finish(self) -> None: ...

    def note(self, message: str) -> None: ...


@dataclass(frozen=True)
class Silent:
    """No progress."""

    def start(self, title: str, rows: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def finish(self) -> None: ...

    def note(self, message: str) -> None: ...


def shown(progress: Progress | bool | None) -> Progress:
    """The progress that a user asked for: their own, bars and lines on stderr for True, nothing for False."""
    if progress is None or isinstance(progress, bool | int):  # scikit-learn's verbose may be a whole number
        return import_module("bigkpca.execution.shown_progress").ShownProgress(quiet=False) if progress else Silent()
    return progress
