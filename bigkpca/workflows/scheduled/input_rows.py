"""The input of a job: rows that others append to, whether earlier rows changed, and which rows a run extracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
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
            "removed. Restore them, or name another output.path, where all rows are extracted"
        )
    if rows.dtype.str != manifest["input"]["dtype"]:
        raise CorruptionError(
            f"{rows.where} holds {rows.dtype.str}, but features were extracted from {manifest['input']['dtype']}: it "
            "was replaced. Restore it, or name another output.path, where all rows are extracted"
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
            f"{rows.where} changed since features were extracted from it, in the rows {ranges}{more}. Restore them or, "
            "if the change is intended, name another output.path, where all rows are extracted"
        )
