"""What a section of a report is made of: cards with a figure, pictures or tables."""

from __future__ import annotations

from dataclasses import dataclass

from bigkpca.reporting.drawing import Drawing


@dataclass(frozen=True)
class Pictures:
    """A strip of pictures as a data URI, with its text alternative and caption."""

    uri: str
    alt: str
    caption: str


@dataclass(frozen=True)
class ReportTable:
    """Column titles and rows of a table."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False  # whether the first column is text


@dataclass(frozen=True)
class Card:
    """One figure, strip of pictures or table, with a title and a text on how to read it."""

    title: str
    text: str = ""
    drawing: Drawing | None = None
    pictures: tuple[Pictures, ...] = ()
    tables: tuple[ReportTable, ...] = ()


@dataclass(frozen=True)
class Section:
    """A titled group of cards."""

    title: str
    text: str
    cards: tuple[Card, ...]
    table: ReportTable | None = None  # collapsed, below the cards
