"""Who is told how far a pass is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """Told of every pass: its title and number of rows, then of the rows of each finished block; and of what
    the user should know besides the result."""

    def start(self, title: str, rows: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def finish(self) -> None: ...

    def note(self, message: str) -> None: ...


@dataclass(frozen=True)
class Silent:
    """Progress for nobody."""

    def start(self, title: str, rows: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def finish(self) -> None: ...

    def note(self, message: str) -> None: ...
