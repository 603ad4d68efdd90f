"""The input of a job: rows that others append to, whether earlier rows changed, and which rows a run extracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, split
from bigkpca.data.opening import open_growing
from bigkpca.data.rows import digest_of_rows
from bigkpca.data.versions import JOB
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import Array, CorruptionError, DataError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.tasks import BlockTasks
from bigkpca.numerics.random_streams import COMPARED, random_stream
from bigkpca.storage import groups
from bigkpca.storage.block_arrays import input_digests
from bigkpca.workflows.scheduled.records import gaps_seen


@dataclass(frozen=True)
class Interval:
    """The rows first..stop that a run extracts."""

    first: int
    stop: int
    resumed: bool  # pinned by an earlier run that did not finish

    def __len__(self) -> int:
        return max(0, self.stop - self.first)

    def meets(self, block: Block) -> bool:
        """Whether some of the rows are in a block."""
        return block.stop > self.first and block.start < self.stop


@dataclass(frozen=True)
class Asked:
    """What the user requests besides new rows: rows a to b, rows since a date, or all rows."""

    rows: tuple[int | None, int | None] | None = None
    since: date | None = None
    full: bool = False

    def __post_init__(self) -> None:
        if sum((self.rows is not None, self.since is not None, self.full)) > 1:
            raise SpecError("rows, since and full exclude each other: use only one of them")

    @classmethod
    def parsed(cls, rows: str | tuple[int, int] | None, since: str | date | None, full: bool) -> Asked:
        """From the options of a command. Raises SpecError for an invalid range or date."""
        of_rows = None
        if rows is not None:
            first, colon, last = rows.partition(":") if isinstance(rows, str) else (rows[0], ":", rows[1])
            try:
                start, stop = of_rows = (int(first) if first != "" else None, int(last) if last != "" else None)
            except (TypeError, ValueError):
                start, stop, colon = None, None, ""
            if not colon or (start or 0) < 0 or (stop is not None and stop <= (start or 0)):
                raise SpecError(
                    f"rows {rows!r}: give the first row and the row after the last one as A:B, e.g. 2000:4000, or A: "
                    "for all rows from A on"
                )
        if isinstance(since, datetime):
            since = since.date()
        elif since is not None and not isinstance(since, date):
            try:
                since = date.fromisoformat(since)
            except ValueError:
                raise SpecError(f"since {since!r}: give a date as YYYY-MM-DD, e.g. 2026-11-01") from None
        return cls(of_rows, since, full)

    def start(self, records: Sequence[Mapping[str, Any]], done: int) -> int:
        """The first row to extract, given that `done` rows are extracted. Raises SpecError if rows before it are
        not."""
        first = done
        if self.full:
            first = 0
        elif self.rows is not None and self.rows[0] is not None:
            first = self.rows[0]
        elif self.since is not None:
            for record in records:
                if record.get("status") == "done" and record.get("extracted"):
                    ended = datetime.fromisoformat(record["finished"]).astimezone(UTC).date()
                    first = min(first, record["extracted"][0]) if ended >= self.since else first
        if first > done:
            raise SpecError(f"rows {done} to {first - 1} are not extracted yet: start at row {done} or earlier")
        return first

    def stop(self, rows: int) -> int:
        """The row to stop before. Raises SpecError if there are fewer rows."""
        if self.rows is None or self.rows[1] is None:
            return rows
        if self.rows[1] > rows:
            raise SpecError(f"rows up to {self.rows[1]} are requested, but the input has only {rows:,}")
        return self.rows[1]


def rows_drawn(first: int, stop: int, most: int, seed: int) -> Array:
    """The numbers of at most `most` of the rows first..stop, ascending: all, or drawn without replacement."""
    if stop - first <= most:
        return np.arange(first, stop)
    drawn = random_stream(seed, COMPARED).choice(stop - first, most, replace=False)
    found: Array = first + np.sort(drawn)
    return found


_MOST_NAMED = 5  # ranges of rows in a message
_GAP = timedelta(hours=1)


def open_input(path: str, array: str | None) -> ZarrRows:
    """Open the rows of a job. Raises SpecError for rows that cannot grow chunk by chunk."""
    about = groups.describe(path) or {}
    if about.get("format") == JOB or about.get("grows"):
        raise SpecError(
            f"{path} is the output of a job, whose last block is computed again whenever rows are added: name the rows "
            "themselves"
        )
    rows = open_growing(path, array)
    if not isinstance(rows, ZarrRows):
        raise SpecError(
            f"{path} is not a Zarr array or dataset, as a job needs for appended rows: make a dataset of it with "
            "bigkpca ingest, and add rows with bigkpca ingest --append"
        )
    return rows


def rows_to_extract(
    rows: ZarrRows, done: int, earlier: Sequence[Mapping[str, Any]], published: Mapping[str, Any] | None
) -> int:
    """The number of rows of which `done` are extracted and the others stored; `earlier` are records of runs, and
    `published` is the manifest of the current version. Appending programs can store later chunks first, so rows end at
    the first gap, unless an earlier run saw the same gap an hour or more ago: then only the fill value was written
    there, which Zarr does not store."""
    found = max(done, rows.stored_rows(done, gaps_seen(earlier, _GAP)))
    if published is not None:
        before, now = published["run"]["input"]["tail"], rows.tail_stamps(published["rows"])
        # If the chunk of the last extracted row is unchanged in some columns, room was made for more rows that are not
        # written yet.
        if not rows.whole and any(each == other for each, other in zip(before, now, strict=False)):
            found = min(found, published["rows"])
    if not found:
        raise DataError(f"{rows.where} has room for {rows.shape[0]:,} rows, but the first of them are not stored yet")
    return found


def tail_of(rows: ZarrRows, count: int, published: Mapping[str, Any] | None) -> list[str]:
    """The stamps of the chunks in which the first `count` rows end, as of when a run first took these rows, since some
    columns can have been written later."""
    if published is not None and published["rows"] == count:
        known: list[str] = published["run"]["input"]["tail"]
        return known
    return rows.tail_stamps(count)


def check_not_shrunk(rows: ZarrRows, manifest: Mapping[str, Any]) -> None:
    """Raise CorruptionError if there are fewer rows than were extracted, or rows of another type."""
    if rows.shape[0] < manifest["rows"]:
        raise CorruptionError(
            f"{rows.where} has {rows.shape[0]:,} rows, but features of {manifest['rows']:,} were extracted: rows were "
            "removed. Restore them, or extract all features again with bigkpca run JOB.toml --full"
        )
    if rows.dtype.str != manifest["input"]["dtype"]:
        raise CorruptionError(
            f"{rows.where} holds {rows.dtype.str}, but features were extracted from {manifest['input']['dtype']}: it "
            "was replaced. Restore it, or extract all features again with bigkpca run JOB.toml --full"
        )


def suspect_blocks(rows: ZarrRows, manifest: Mapping[str, Any]) -> list[Block]:
    """The blocks whose stored chunks were written since their features were extracted. Reads no rows."""
    blocks, known = split(manifest["rows"], manifest["block_rows"]), input_digests(manifest)
    stamps = rows.stamps(blocks)
    if stamps is None:
        return list(blocks)
    return [block for block, stamp, (_, before) in zip(blocks, stamps, known, strict=True) if stamp != before]


def check_unchanged_blocks(
    rows: ZarrRows, manifest: Mapping[str, Any], blocks: Sequence[Block], engine: Engine
) -> None:
    """Raise CorruptionError if rows of these blocks changed since features were extracted. One pass."""
    found = engine.each("comparing rows", BlockTasks(digest_of_rows, rows, blocks, []))
    known = input_digests(manifest)
    other = [block for block, sha256 in zip(blocks, found, strict=True) if sha256 != known[block.number][0]]
    if other:
        ranges = ", ".join(f"{block.start}:{block.stop}" for block in other[:_MOST_NAMED])
        more = f" and {len(other) - _MOST_NAMED} more blocks" if len(other) > _MOST_NAMED else ""
        raise CorruptionError(
            f"{rows.where} changed since features were extracted from it, in the rows {ranges}{more}. Restore them "
            "or, if the change is intended, extract them again with bigkpca run JOB.toml "
            f"--rows {other[0].start}:{other[-1].stop}"
        )
