"""The rows of a table as rows of numbers: what has to be learnt from its columns first, and errors of columns that
cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, column_called
from bigkpca.execution.progress import Progress, shown_pass
from bigkpca.ingesting.columns import (
    ADVICE,
    ADVICE_OF_DATASET,
    Encoding,
    Fault,
    Kind,
    TableColumn,
    TableFrame,
    Unreadable,
    encode,
    kind_of,
    marks_of,
    numbers,
    texts_of,
    unread_values,
)
from bigkpca.ingesting.formats.base import Batches, Table, cast, name_of_column
from bigkpca.numerics.random_streams import MEDIANS, random_stream

MOST_CATEGORIES = 1000  # of one column
_SAMPLE = 100_000  # values of a column used for its median,
_SAMPLE_BYTES = 64_000_000  # or as many as fit in this for all columns, with 16 bytes each
_MOST_FAULTS = 20  # columns that one message lists


@dataclass
class MissingCounts:
    """Numbers of missing values in each column and of rows dropped for them, counted while reading."""

    values: Counter[str] = field(default_factory=Counter)
    rows_dropped: int = 0


def rows_of(
    frame: TableFrame,
    encoding: Encoding,
    whose: str,
    counts: MissingCounts,
    dtype: np.dtype[Any] | None,
    progress: Progress,
    *,
    of_dataset: bool,
) -> Table:
    """The rows of a frame as numbers, with its labels. Reading them raises a DataError that lists every invalid column.

    whose: the owner of the encoding, in messages. dtype: of the rows; None for the common dtype of the columns, which
    must hold every whole number. of_dataset: whether the encoding is that of an existing dataset.
    """
    places = encoding.places(frame, whose)
    common = encoding.dtype(frame, places)
    labels = frame.labels
    in_file = tuple(j for j, column in places.items() for _ in column.names)
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
                X = X if dtype is None else cast(X, dtype, rows, frame.where, partial(name_of_column, in_file, names))
                of_rows = None
                if labels is not None:
                    of_rows = labels.values(batch.column(len(places)).filter(pa.array(kept)), rows)
                yield X, of_rows
                counts.rows_dropped += len(kept) - len(rows)
                first += len(batch)
        except (Unreadable, pa.ArrowInvalid) as error:
            raise DataError(problems(frame, places, encoding, progress, of_dataset=of_dataset)) from error

    return Table(
        where=frame.where,
        dtype=common if dtype is None else dtype,
        row_shape=(encoding.width,),
        rows=None if encoding.missing == "drop" else frame.rows,
        label_dtype=None if labels is None else labels.dtype,
        batches=batches(),
        names=names,
        notes=frame.notes,
        numbers=in_file,
    )


def columns_to_read(frame: TableFrame, places: Mapping[int, TableColumn]) -> dict[int, Kind]:
    """The columns of an encoding, followed by the column of labels, by their numbers in the file."""
    kinds: dict[int, Kind] = {j: column.kind for j, column in places.items()}
    return kinds if frame.labels is None else {**kinds, frame.labels.column: "text"}


def _pieces(batches: Iterable[Any], width: int) -> Iterator[Any]:
    """The batches in pieces whose rows of numbers, of this width, take at most 4 MB."""
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
    """(kept rows of numbers (m, width), which rows are kept (k,), (row, column, value) of the first whole number that
    the dtype rounds) of a batch that begins with these columns. Raises Unreadable for values that cannot be read."""
    X = np.empty((len(batch), encoding.width), dtype)
    strange = np.zeros(len(batch), bool)
    whole: list[tuple[int, Array]] = []
    at = 0
    for k, column in enumerate(columns):
        found, missing, unknown = encode(batch.column(k), column)
        strange |= unknown
        if dtype.kind == "f" and found.dtype.kind in "iu" and found.dtype.itemsize == 8:
            whole.append((k, found[:, 0]))
        with np.errstate(over="ignore"):  # of infinity, in a row that is rejected or dropped
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
        exact = 2 ** (np.finfo(dtype).nmant + 1)  # the dtype holds all whole numbers up to this
        for i in map(int, np.flatnonzero(((values > exact) | (values < -exact)) & kept)):
            if int(dtype.type(values[i])) != int(values[i]):
                return X[kept], kept, (i, k, int(batch.column(k)[i].as_py()))
    return X[kept], kept, None


def kept_rows(batch: Any, missing: Sequence[Array], encoding: Encoding, frame: TableFrame) -> Array:
    """Which rows (k,) of a batch are used, given which values (k,) of each column are missing."""
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
    """The error for a file without rows, or for which every row would be dropped."""
    if dropped:
        return DataError(f"{where}: no row has a value in every column, so all rows would be dropped")
    return DataError(f"{where} is empty: it has no rows")


def _shown(batches: Iterable[Any], progress: Progress, title: str, frame: TableFrame) -> Iterator[Any]:
    """The batches of a file, as a pass that is shown."""
    with shown_pass(progress, title, frame.rows or 0) as advance:
        for batch in batches:
            yield batch
            advance(len(batch))


def problems(
    frame: TableFrame,
    places: Mapping[int, TableColumn],
    encoding: Encoding,
    progress: Progress,
    *,
    of_dataset: bool,
) -> str:
    """A message that lists the unreadable values in each column of a file, and what to do. One pass over the file."""
    found: dict[int, Fault] = {}
    refuse, first = encoding.missing == "refuse", 0
    batches = _shown(frame.read(columns_to_read(frame, places)), progress, "searching for errors", frame)
    for batch in _pieces(batches, encoding.width):
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


def learnt(
    frames: Sequence[TableFrame], encoding: Encoding, whose: str, progress: Progress, *, words: bool
) -> Encoding:
    """The encoding with the categories of its text columns, and with the replacements for missing values.

    Dropped rows do not count. One pass over the files, if there is something to learn. words: whether a column whose
    first rows are of another kind becomes text if later rows have words, which takes two more passes. Raises a
    DataError that lists unreadable values, and columns without values or with more than 1000 categories.
    """
    filled = encoding.missing in ("mean", "median")
    unsure = words and any(frame.from_first_rows for frame in frames)
    if not (filled or unsure or any(column.of_text for column in encoding.columns)):
        return encoding
    found: dict[str, str] = {}
    while True:
        try:
            learners = _look_at_all(frames, encoding, whose, progress)
            break
        except _Misfit as misfit:
            if found or not words or not (found := _words(frames, encoding, whose, progress)):
                message = problems(misfit.frame, misfit.places, encoding, progress, of_dataset=False)
                raise DataError(message) from misfit.__cause__
        for where in found.values():
            progress.note(f"{where}: reading the column as text")
        columns = [replace(each, kind="text") if each.name in found else each for each in encoding.columns]
        encoding = replace(encoding, columns=tuple(columns))
    pairs = list(zip(learners, encoding.columns, strict=True))
    faults = [
        fault + (f" ({found[column.name]})" if column.name in found else "")
        for learner, column in pairs
        if (fault := learner.fault(column, filled=filled))
    ]
    if faults:
        alone = encoding.columns[0].kind == "characters"
        raise DataError(f"{whose}: {'; '.join(faults)}" + ("" if alone else ": leave these columns out with --drop"))
    columns_learnt = (learner.learnt(column, encoding.missing) for learner, column in pairs)
    return replace(encoding, columns=tuple(columns_learnt))


class _Misfit(Exception):
    """A file has a value that the encoding cannot read; the value is searched for afterwards."""

    def __init__(self, frame: TableFrame, places: dict[int, TableColumn]) -> None:
        super().__init__(frame.where)
        self.frame, self.places = frame, places


def _look_at_all(frames: Sequence[TableFrame], encoding: Encoding, whose: str, progress: Progress) -> list[_Learner]:
    """What is learnt about each column from the kept rows, in one pass over all files. Raises _Misfit."""
    import pyarrow as pa

    most = int(min(_SAMPLE, max(5000, _SAMPLE_BYTES // 16 // len(encoding.columns))))
    learners: list[_Learner] = []
    for k, column in enumerate(encoding.columns):
        if column.of_text:
            learners.append(_Texts() if column.kind == "text" else _Characters())
        else:
            learners.append(_Numbers(most, random_stream(k, MEDIANS)))
    counts = [frame.rows or 0 for frame in frames]
    progress.start("inspecting columns", sum(counts) if all(counts) else 0)
    try:
        for frame in frames:
            places = encoding.places(frame, whose)
            rows = left = 0
            try:
                for batch in frame.read(columns_to_read(frame, places)):
                    taken = [
                        texts_of(batch.column(k)) if column.of_text else numbers(batch.column(k), column.kind)
                        for k, column in enumerate(encoding.columns)
                    ]
                    kept = kept_rows(batch, [missing for _, missing in taken], encoding, frame)
                    for learner, (values, missing) in zip(learners, taken, strict=True):
                        learner.add(values, kept & ~missing)
                    rows, left = rows + len(batch), left + int(kept.sum())
                    progress.advance(len(batch))
            except (Unreadable, pa.ArrowInvalid) as error:
                raise _Misfit(frame, places) from error
            if not left:
                raise no_rows(frame.where, dropped=rows > 0)
    finally:
        progress.finish()
    return learners


def _words(frames: Sequence[TableFrame], encoding: Encoding, whose: str, progress: Progress) -> dict[str, str]:
    """Columns whose later rows have words, unlike the first rows, with the first word, for messages. One pass."""
    found: dict[str, str] = {}
    for frame in (each for each in frames if each.from_first_rows):
        places = encoding.places(frame, whose)
        first = 0
        batches = frame.read(columns_to_read(frame, places))
        for batch in _shown(batches, progress, "searching for words", frame):
            for k, (j, column) in enumerate(places.items()):
                if column.of_text or column.name in found:
                    continue
                unread = unread_values(batch.column(k), column.kind)
                if unread.any():
                    i = int(unread.argmax())
                    called = f"row {first + i}, {column_called(j, frame.names)}"
                    word = batch.column(k)[i].as_py()
                    found[column.name] = f"{frame.where}: {called}, is {word!r}, unlike the first rows"
            first += len(batch)
    return found


@dataclass
class _Texts:
    """The texts of a column, and the number of rows with each; none if there are too many."""

    counts: Counter[str] = field(default_factory=Counter)
    too_many: bool = False

    def add(self, texts: Any, kept: Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.too_many:
            return
        found = pc.value_counts(texts.filter(pa.array(kept)))
        for text, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            self.counts[text] += count
        self.too_many = len(self.counts) > MOST_CATEGORIES

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        if self.too_many:
            return f"column {column.name!r} has more than {MOST_CATEGORIES} distinct texts"
        return None if self.counts else f"column {column.name!r} has no value"

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with its categories, in alphabetical order."""
        categories = tuple(sorted(self.counts))
        shares = np.array([self.counts[text] for text in categories]) / self.counts.total()
        fills = {"mean": shares, "median": (shares > 0.5).astype(float)}.get(missing, np.empty(0))
        return replace(column, categories=categories, fills=tuple(fills.tolist()))


@dataclass
class _Characters:
    """The characters of the texts of a column, and the length of the longest text."""

    found: set[str] = field(default_factory=set)
    longest: int = 0

    def add(self, texts: Any, kept: Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = texts.filter(pa.array(kept))
        self.found.update("".join(texts.to_pylist()))
        self.longest = max(self.longest, pc.max(pc.utf8_length(texts)).as_py() or 0)

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        if "\0" in self.found:
            return f"column {column.name!r} has texts with the null character (number 0), which marks the end of a text"
        return None if self.longest else f"column {column.name!r} has no value"

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with its characters, in Unicode order."""
        return replace(column, categories=tuple(sorted(self.found)), length=self.longest)


@dataclass
class _Numbers:
    """Sum, count and a uniform sample of the values of a column: those with the smallest random keys."""

    most: int
    rng: np.random.Generator
    count: int = 0
    total: float = 0.0
    drawn: Array = field(default_factory=lambda: np.empty((2, 0)))  # keys and values
    further: list[Array] = field(default_factory=list)  # the same for the last batches

    def add(self, values: Array, kept: Array) -> None:
        """Add the kept numbers. Raises Unreadable if one is infinite."""
        found = values[kept].astype(np.float64)
        if not np.isfinite(found).all():
            raise Unreadable
        self.count += len(found)
        self.total += float(found.sum())
        self.further.append(np.stack([self.rng.random(len(found)), found]))
        if sum(each.shape[1] for each in self.further) > self.most:
            self._draw()

    def _draw(self) -> None:
        """Keep the values with the smallest keys."""
        drawn = np.concatenate([self.drawn, *self.further], axis=1)
        if drawn.shape[1] > self.most:
            drawn = drawn[:, np.argpartition(drawn[0], self.most)[: self.most]]
        self.drawn, self.further = drawn, []

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        return f"column {column.name!r} has no value" if filled and not self.count else None

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with its replacement for missing values."""
        if missing not in ("mean", "median"):
            return column
        self._draw()
        value = self.total / self.count if missing == "mean" else float(np.median(self.drawn[1]))
        return replace(column, fills=(value,))


_Learner = _Texts | _Characters | _Numbers
