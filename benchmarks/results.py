"""What a benchmark finds: tables, and figures that a target stands beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Table:
    """Rows of cells under a title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def printed(self) -> str:
        """As text, columns aligned."""
        cells = self._cells()
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.header))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([self.title, *(line.rstrip() for line in lines)])

    def markdown(self) -> str:
        """As Markdown, the title above it."""
        return f"{self.title}:\n\n{markdown_rows(*self._cells())}"

    def _cells(self) -> list[list[str]]:
        return [[*map(str, self.header)], *[[as_cell(value) for value in row] for row in self.rows]]


@dataclass(frozen=True)
class Target:
    """A bound that a figure is to keep."""

    what: str
    better: Literal["less", "more"]
    bound: float
    unit: str

    def measured(self, value: float | None) -> Measured:
        """The target with the figure that was found; None where there is none."""
        return Measured(self, None if value is None else float(value))


@dataclass(frozen=True)
class Measured:
    """A target and the figure found."""

    target: Target
    value: float | None

    @property
    def reached(self) -> bool:
        """Whether the figure keeps the bound."""
        if self.value is None:
            return False
        return self.value <= self.target.bound if self.target.better == "less" else self.value >= self.target.bound


@dataclass(frozen=True)
class Results:
    """What one benchmark found."""

    tables: tuple[Table, ...]
    measured: tuple[Measured, ...] = ()


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table, which is printed at once."""
    made = Table(title, header, rows)
    print(f"\n{made.printed()}", flush=True)
    return made


def markdown_rows(header: Sequence[str], *rows: Sequence[str]) -> str:
    """Cells as a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def as_cell(value: Any) -> str:
    """A value as tables show it."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
