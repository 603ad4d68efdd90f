"""Progress that remembers what it was told."""

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
