"""Progress that remembers what it was told, and progress that does something in the middle of a run."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Recorder:
    """Keeps titles with their numbers of rows, how many rows were done, how many passes ended, and every note."""

    started: list[tuple[str, int]] = field(default_factory=list)
    rows: int = 0
    finished: int = 0
    notes: list[str] = field(default_factory=list)

    def start(self, title, rows):
        self.started.append((title, rows))

    def advance(self, rows):
        self.rows += rows

    def finish(self):
        self.finished += 1

    def note(self, message):
        self.notes.append(message)


def stop(*_, **__):
    """What Ctrl-C does."""
    raise KeyboardInterrupt


@dataclass
class Once(Recorder):
    """Does something once: as soon as more than `after` rows are done, in a pass whose title holds `title`."""

    what: Callable[[], object] | None = stop
    after: int = 0
    title: str = ""

    def advance(self, rows):
        super().advance(rows)
        if self.what and self.rows > self.after and self.title in self.started[-1][0]:
            what, self.what = self.what, None
            what()
