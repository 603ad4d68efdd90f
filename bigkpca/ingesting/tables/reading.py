"""The rows of a table as rows of numbers, and what is wrong with a table that cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, column_called
from bigkpca.ingesting.formats.base import Batches, Table, cast, name_of_column
from bigkpca.ingesting.tables import Encoding, Unreadable, encode
from bigkpca.ingesting.tables.columns import (
    ADVICE,
    ADVICE_OF_DATASET,
    Fault,
    Frame,
    Kind,
    TableColumn,
    kind_of,
    marks_of,
    texts_of,
)

_MOST_FAULTS = 20  # columns that one message lists


@dataclass
class MissingCounts:
    """How many values were missing in each column, and how many rows were left out for that; counted while reading."""

    values: Counter[str] = field(default_factory=Counter)
    rows_dropped: int = 0


def rows_of(
    frame: Frame,
    encoding: Encoding,
    whose: str,
    counts: MissingCounts,
    dtype: np.dtype[Any] | None,
    *,
    of_dataset: bool,
) -> Table:
    """The rows of a frame as numbers, with its labels. Reading them raises DataError that lists every unfit column.

    whose: what the encoding belongs to, in messages. dtype: of the rows; None for the common one of the columns, which
    must hold every whole number. of_dataset: whether the encoding is that of a dataset which is there already.
    """
    places = encoding.places(frame, whose)
    common = encoding.dtype(frame, places)
    labels = frame.labels
    numbers = tuple(j for j, column in places.items() for _ in column.names)
    names = None if frame.names is None else encoding.names

    def batches() -> Batches:
        import pyarrow as pa

        first = 0
        try:
            for batch in _pieces(frame.read(columns_to_read(frame, places)), encoding.width):
                kept = np.ones(len(batch), bool)
                if labels is not None and encoding.missing == "drop":
                    kept = ~_unlabelled(batch.column(len(places)))
                X, kept, rounded = _encoded(batch, tuple(places.values()), encoding, common, kept, counts)
                rows = first + np.flatnonzero(kept)
                if dtype is None and rounded is not None:
                    i, column, value = rounded
                    raise DataError(
                        f"{frame.where}: row {first + i}, {column_called(list(places)[column], frame.names)} (both "
                        f"counted from 0) is {value}, which {common}, the common type of all columns, cannot hold: "
                        f"leave the column out with --drop, or round its numbers with --dtype {common}"
                    )
                X = X if dtype is None else cast(X, dtype, rows, frame.where, partial(name_of_column, numbers, names))
                of_rows = None
                if labels is not None:
                    of_rows = labels.values(batch.column(len(places)).filter(pa.array(kept)), rows)
                yield X, of_rows
                counts.rows_dropped += len(kept) - len(rows)
                first += len(batch)
        except (Unreadable, pa.ArrowInvalid) as error:
            raise DataError(problems(frame, places, encoding, of_dataset=of_dataset)) from error

    return Table(
        where=frame.where,
        dtype=common if dtype is None else dtype,
        row_shape=(encoding.width,),
        rows=None if encoding.missing == "drop" else frame.rows,
        label_dtype=None if labels is None else labels.dtype,
        batches=batches(),
        names=names,
        notes=frame.notes,
        numbers=numbers,
    )


def columns_to_read(frame: Frame, places: Mapping[int, TableColumn]) -> dict[int, Kind]:
    """The columns of an encoding, and behind them that of the labels, by their numbers in the file."""
    kinds: dict[int, Kind] = {j: column.kind for j, column in places.items()}
    return kinds if frame.labels is None else {**kinds, frame.labels.column: "text"}


def _pieces(batches: Iterable[Any], width: int) -> Iterator[Any]:
    """The batches in pieces whose rows of numbers, of this width, take 4 MB at most."""
    step = max(1, READ_BYTES // (8 * max(1, width)))
    for batch in batches:
        for start in range(0, len(batch), step):
            yield batch.slice(start, step)


def _encoded(
    batch: Any,
    columns: tuple[TableColumn, ...],
    encoding: Encoding,
    dtype: np.dtype[Any],
    kept: Array,
    counts: MissingCounts,
) -> tuple[Array, Array, tuple[int, int, int] | None]:
    """(the rows of numbers that are kept (m, width), which they are (k,), (row, column, value) of the first whole
    number that the dtype rounds) of a batch whose first columns are these. Raises Unreadable for what cannot be
    read."""
    X = np.empty((len(batch), encoding.width), dtype)
    strange = np.zeros(len(batch), bool)
    whole: list[tuple[int, Array]] = []
    at = 0
    for k, column in enumerate(columns):
        found, missing, unknown = encode(batch.column(k), column)
        strange |= unknown
        if dtype.kind == "f" and found.dtype.kind in "iu" and found.dtype.itemsize == 8:
            whole.append((k, found[:, 0]))
        with np.errstate(over="ignore"):  # of infinity, in a row that is refused or left out
            X[:, at : at + found.shape[1]] = found
        at += found.shape[1]
        if missing.any():
            if encoding.missing == "refuse":
                raise Unreadable
            counts.values[column.name] += int(missing.sum())
            if encoding.missing == "drop":
                kept = kept & ~missing
    if (strange & kept).any():
        raise Unreadable
    for k, values in whole:
        exact = 2 ** (np.finfo(dtype).nmant + 1)  # up to which the dtype holds all whole numbers
        for i in map(int, np.flatnonzero(((values > exact) | (values < -exact)) & kept)):
            if int(dtype.type(values[i])) != int(values[i]):
                return X[kept], kept, (i, k, int(batch.column(k)[i].as_py()))
    return X[kept], kept, None


def kept_rows(batch: Any, missing: Sequence[Array], encoding: Encoding, frame: Frame) -> Array:
    """Which rows (k,) of a batch are used, where these values (k,) of each of its columns are missing."""
    if encoding.missing != "drop":
        return np.ones(len(batch), bool)
    kept: Array = ~np.logical_or.reduce(missing)
    return kept if frame.labels is None else kept & ~_unlabelled(batch.column(len(missing)))


def _unlabelled(labels: Any) -> Array:
    import pyarrow as pa

    if kind_of(labels.type) == "text":
        return texts_of(labels)[1]
    found: Array = labels.is_null(nan_is_null=pa.types.is_floating(labels.type)).to_numpy(zero_copy_only=False)
    return found


def no_rows(where: str, *, dropped: bool) -> DataError:
    """The error of a file without rows, or of which every row is left out."""
    if dropped:
        return DataError(f"{where}: no row has a value in every column, so that all would be dropped")
    return DataError(f"{where} is empty: it holds no rows")


def problems(frame: Frame, places: Mapping[int, TableColumn], encoding: Encoding, *, of_dataset: bool) -> str:
    """What cannot be read in each column of a file, and what to do, in words. One pass over the file."""
    found: dict[int, Fault] = {}
    refuse, first = encoding.missing == "refuse", 0
    for batch in _pieces(frame.read(columns_to_read(frame, places)), encoding.width):
        marks = [marks_of(batch.column(k), column) for k, column in enumerate(places.values())]
        kept = kept_rows(batch, [each.missing for each in marks], encoding, frame)
        for k, (j, column) in enumerate(places.items()):
            fault = marks[k].fault(batch.column(k), column, first, kept, missing_too=refuse)
            if fault is not None:
                found[j] = found[j].joined(fault) if j in found else fault
        first += len(batch)
    lines = []
    for j, fault in list(found.items())[:_MOST_FAULTS]:
        others = f", and {fault.count - 1:,} more such rows" if fault.count > 1 else ""
        lines.append(f"row {fault.row}, {column_called(j, frame.names)} is {fault.what}{others}")
    more = len(found) - len(lines)
    all_advice = ADVICE_OF_DATASET if of_dataset else ADVICE
    advice = " ".join(all_advice[why] for why in all_advice if any(fault.reason == why for fault in found.values()))
    if len(lines) == 1:
        return f"{frame.where}: {lines[0]} (rows of data and columns are counted from 0). {advice}"
    head = f"{frame.where}: {len(found)} columns cannot be read (rows of data and columns are counted from 0):"
    return "\n".join([head, *(f"  {line}" for line in lines), *([f"  and {more} more"] if more else []), advice])
