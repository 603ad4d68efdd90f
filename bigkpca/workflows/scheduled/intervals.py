"""Which rows a run extracts: those that are new, or some of the earlier ones again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block
from bigkpca.errors import Array, SpecError
from bigkpca.numerics.random_streams import COMPARED, random_stream


@dataclass(frozen=True)
class Interval:
    """The rows first..stop that a run extracts."""

    first: int
    stop: int
    resumed: bool  # pinned by an earlier run, which did not end

    def __len__(self) -> int:
        return max(0, self.stop - self.first)

    def meets(self, block: Block) -> bool:
        """Whether some of the rows are in a block."""
        return block.stop > self.first and block.start < self.stop


@dataclass(frozen=True)
class Asked:
    """What the user asks of a run besides new rows: rows a to b, rows since a date, or all of them."""

    rows: tuple[int | None, int | None] | None = None
    since: date | None = None
    full: bool = False

    def __post_init__(self) -> None:
        if sum((self.rows is not None, self.since is not None, self.full)) > 1:
            raise SpecError("rows, since and full exclude each other: give one of them")

    @classmethod
    def parsed(cls, rows: str | tuple[int, int] | None, since: str | date | None, full: bool) -> Asked:
        """From the options of a command. Raises SpecError for what is no range, or no date."""
        return cls(_parsed_rows(rows), _parsed_date(since), full)

    def start(self, records: Sequence[Mapping[str, Any]], done: int) -> int:
        """The first row to extract, where `done` rows are extracted. Raises SpecError where rows before it are not."""
        first = done
        if self.full:
            first = 0
        elif self.rows is not None and self.rows[0] is not None:
            first = self.rows[0]
        elif self.since is not None:
            first = min([done, *(record["extracted"][0] for record in records if _since(record, self.since))])
        if first > done:
            raise SpecError(f"rows {done} to {first - 1} are not extracted yet: start at row {done} or before")
        return first

    def stop(self, rows: int) -> int:
        """The row before which to end. Raises SpecError where there are not so many."""
        if self.rows is None or self.rows[1] is None:
            return rows
        if self.rows[1] > rows:
            raise SpecError(f"rows up to {self.rows[1]} are asked for, and the input has {rows:,}")
        return self.rows[1]


def rows_drawn(first: int, stop: int, most: int, seed: int) -> Array:
    """The numbers of at most so many of the rows first..stop, ascending: all of them, or drawn without replacement."""
    if stop - first <= most:
        return np.arange(first, stop)
    drawn = random_stream(seed, COMPARED).choice(stop - first, most, replace=False)
    found: Array = first + np.sort(drawn)
    return found


def _since(record: Mapping[str, Any], day: date) -> bool:
    """Whether a run that extracted rows ended on this day or later."""
    return (
        record.get("status") == "done"
        and bool(record.get("extracted"))
        and datetime.fromisoformat(record["finished"]).astimezone(UTC).date() >= day
    )


def _parsed_rows(rows: str | tuple[int, int] | None) -> tuple[int | None, int | None] | None:
    if rows is None:
        return None
    first, colon, last = rows.partition(":") if isinstance(rows, str) else (rows[0], ":", rows[1])
    try:
        start, stop = (int(text) if text != "" else None for text in (first, last))
    except (TypeError, ValueError):
        start, stop, colon = None, None, ""
    if not colon or (start or 0) < 0 or (stop is not None and stop <= (start or 0)):
        raise SpecError(
            f"rows {rows!r}: give the first row and the row after the last as A:B, e.g. 2000:4000, or A: for all from "
            "A on"
        )
    return start, stop


def _parsed_date(since: str | date | None) -> date | None:
    if isinstance(since, datetime):
        return since.date()
    if since is None or isinstance(since, date):
        return since
    try:
        return date.fromisoformat(since)
    except ValueError:
        raise SpecError(f"since {since!r}: give a date as YYYY-MM-DD, e.g. 2026-11-01") from None
