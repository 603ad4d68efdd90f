"""The rows of a table as rows of numbers, and what is wrong with a table that cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, column_called
from bigkpca.ingesting.formats.base import Batches, Table
from bigkpca.ingesting.tables.columns import ADVICE, Fault, TableColumn, fault_of, kind_of, missing_texts
from bigkpca.ingesting.tables.encoding import Encoding, Unreadable, encode
from bigkpca.ingesting.tables.frame import Frame

_MOST_FAULTS = 20  # columns that one message lists


@dataclass
class MissingCounts:
    """How many values were missing in each column, and how many rows were left out for that; counted while reading."""

    values: Counter[str] = field(default_factory=Counter)
    rows_dropped: int = 0


def rows_of(frame: Frame, encoding: Encoding, whose: str, counts: MissingCounts) -> Table:
    """The rows of a frame as numbers, with its labels; `whose` says what the encoding belongs to.

    Raises SpecError where the frame has other columns. Reading the batches raises DataError that lists what is wrong
    with every column, found by one more pass over the file.
    """
    places = encoding.places(frame, whose)
    dtype = encoding.dtype(frame, places)
    labels = frame.labels
    kinds = {j: column.kind for j, column in places.items()}

    def batches() -> Batches:
        import pyarrow as pa

        first = 0
        try:
            for batch in _pieces(
                frame.read(kinds if labels is None else {**kinds, labels.column: None}), encoding.width
            ):
                X, kept = _encoded(batch, tuple(places.values()), encoding, dtype, counts)
                if labels is None:
                    yield X[kept], None
                else:
                    texts = batch.column(len(places))
                    if encoding.missing == "drop":
                        kept &= ~_unlabelled(texts)
                        texts = texts.filter(pa.array(kept))
                    yield X[kept], labels.values(texts, first)
                counts.rows_dropped += len(kept) - int(kept.sum())
                first += len(batch)
        except (Unreadable, pa.ArrowInvalid) as error:
            raise DataError(problems(frame, places, encoding)) from error

    return Table(
        where=frame.where,
        dtype=dtype,
        row_shape=(encoding.width,),
        rows=None if encoding.missing == "drop" else frame.rows,
        label_dtype=None if labels is None else labels.dtype,
        batches=batches(),
        names=None if frame.names is None else encoding.names,
        notes=frame.notes,
        numbers=tuple(j for j, column in places.items() for _ in column.names),
    )


def _pieces(batches: Iterable[Any], width: int) -> Iterator[Any]:
    """The batches in pieces whose rows of numbers, of this width, take 4 MB at most."""
    step = max(1, READ_BYTES // (8 * max(1, width)))
    for batch in batches:
        for start in range(0, len(batch), step):
            yield batch.slice(start, step)


def _encoded(
    batch: Any, columns: tuple[TableColumn, ...], encoding: Encoding, dtype: np.dtype[Any], counts: MissingCounts
) -> tuple[Array, Array]:
    """(rows of numbers (k, width), which of them are kept (k,)) of a batch whose first columns are these."""
    X = np.empty((len(batch), encoding.width), dtype)
    kept = np.ones(len(batch), bool)
    at = 0
    for k, column in enumerate(columns):
        found, missing = encode(batch.column(k), column)
        X[:, at : at + found.shape[1]] = found
        at += found.shape[1]
        if missing.any():
            if encoding.missing == "refuse":
                raise Unreadable
            counts.values[column.name] += int(missing.sum())
            if encoding.missing == "drop":
                kept &= ~missing
    return X, kept


def _unlabelled(labels: Any) -> Array:
    """Which labels are missing."""
    import pyarrow as pa

    if kind_of(labels.type) == "text":
        missing = missing_texts(labels.cast(pa.string()))
    else:
        missing = labels.is_null(nan_is_null=pa.types.is_floating(labels.type))
    found: Array = missing.to_numpy(zero_copy_only=False)
    return found


def problems(frame: Frame, places: Mapping[int, TableColumn], encoding: Encoding) -> str:
    """What cannot be read in each column of a file, and what to do, in words. One pass over the file."""
    found: dict[int, Fault] = {}
    first = 0
    for batch in _pieces(frame.read(dict.fromkeys(places)), encoding.width):
        for k, (j, column) in enumerate(places.items()):
            fault = fault_of(batch.column(k), column, first, missing_too=encoding.missing == "refuse")
            if fault is not None:
                found[j] = found[j].and_more(fault.count) if j in found else fault
        first += len(batch)
    lines = [_line(j, fault, frame) for j, fault in list(found.items())[:_MOST_FAULTS]]
    more = len(found) - len(lines)
    advice = " ".join(ADVICE[reason] for reason in ADVICE if any(fault.reason == reason for fault in found.values()))
    if len(lines) == 1:
        return f"{frame.where}: {lines[0]} (rows of data and columns are counted from 0). {advice}"
    head = f"{frame.where}: {len(found)} columns cannot be read (rows of data and columns are counted from 0):"
    return "\n".join([head, *(f"  {line}" for line in lines), *([f"  and {more} more"] if more else []), advice])


def _line(number: int, fault: Fault, frame: Frame) -> str:
    """What is wrong with one column."""
    more = f", and {fault.count - 1:,} more such rows" if fault.count > 1 else ""
    return f"row {fault.row}, {column_called(number, frame.names)} is {fault.what}{more}"
