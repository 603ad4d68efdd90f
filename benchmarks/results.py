"""What a benchmark finds: tables, and figures with the bounds that they should keep."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Table:
    """Rows of cells under a title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def printed(self) -> str:
        """As text, with aligned columns."""
        cells = self._cells()
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.header))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([self.title, *(line.rstrip() for line in lines)])

    def markdown(self) -> str:
        """As Markdown, below its title."""
        return f"{self.title}:\n\n{markdown_rows(*self._cells())}"

    def _cells(self) -> list[list[str]]:
        return [[*map(str, self.header)], *[[as_cell(value) for value in row] for row in self.rows]]


@dataclass(frozen=True)
class Target:
    """A figure and its bound. The value is None if the benchmark has no such figure."""

    what: str
    value: float | None
    kind: Literal["at most", "at least"]
    bound: float
    unit: str = ""

    @property
    def reached(self) -> bool:
        """Whether the figure keeps the bound."""
        if self.value is None:
            return False
        return self.value <= self.bound if self.kind == "at most" else self.value >= self.bound

    def cells(self) -> list[str]:
        """The target as a line of a table."""
        value = "none" if self.value is None else as_cell(float(self.value))
        sign = {"at most": "≤", "at least": "≥"}[self.kind]
        return [self.what, f"{sign} {self.bound:g} {self.unit}".strip(), value, "yes" if self.reached else "no"]


Found = Iterator[Table | Target]  # what a benchmark yields, one after the other


@dataclass(frozen=True)
class Results:
    """What one benchmark found."""

    tables: tuple[Table, ...]
    targets: tuple[Target, ...] = ()


def markdown_rows(header: Sequence[str], *rows: Sequence[str]) -> str:
    """Cells as a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def as_cell(value: Any) -> str:
    """A value as tables show it."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
