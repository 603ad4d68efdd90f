"""The rows of a table as rows of numbers: what has to be learnt from its columns first, and errors of columns that
cannot be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    OTHER,
    ColumnOptions,
    Encoding,
    Fault,
    Kind,
    TableColumn,
    TableFrame,
    Unreadable,
    encode,
    marks_of,
    single_numbers,
    texts_of,
    unread_values,
    whole_texts_of,
)
from bigkpca.ingesting.formats.base import Batches, Table, cast, name_of_column
from bigkpca.ingesting.notation import (
    ISO,
    DateOptions,
    Remedy,
    notations_of,
    quoted,
    remedy,
    written_dates,
    written_numbers,
)
from bigkpca.numerics.random_streams import MEDIANS, random_stream

MOST_CATEGORIES = 1000  # of one column
_MOST_TEXTS = 1_000_000  # distinct ones of a column of which the most frequent become categories
_SAMPLE = 100_000  # values of a column used for its median,
_SAMPLE_BYTES = 64_000_000  # or as many as fit in this for all columns, with 16 bytes each
_MOST_FAULTS = 20  # columns that one message lists
_MOST_READ = 1000  # texts of a column that an advised option must read


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
    choice: ColumnOptions | None,
) -> Table:
    """The rows of a frame as numbers, with the values beside them. Reading them raises a DataError that lists every
    invalid column.

    whose: the owner of the encoding, in messages. dtype: of the rows; None for the common dtype of the columns, which
    must hold every whole number. choice: the options, None if the encoding is that of an existing dataset.
    """
    places = encoding.places(frame, whose)
    common = encoding.dtype(frame, places)
    in_file = tuple(j for j, column in places.items() for _ in column.names)
    names = None if frame.names is None else encoding.names

    def batches() -> Batches:
        import pyarrow as pa

        first = 0
        try:
            for batch in _pieces(frame.read(columns_to_read(frame, places)), encoding.width):
                kept = kept_rows(batch, len(places), encoding)
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
                beside = zip(frame.beside.items(), batch.columns[len(places) :], strict=True)
                yield X, {kind: each.values(part.filter(pa.array(kept)), rows) for (kind, each), part in beside}
                counts.rows_dropped += len(kept) - len(rows)
                first += len(batch)
        except (Unreadable, pa.ArrowInvalid) as error:
            raise DataError(problems(frame, places, encoding, progress, choice)) from error

    return Table(
        where=frame.where,
        dtype=common if dtype is None else dtype,
        row_shape=(encoding.width,),
        rows=None if encoding.missing == "drop" else frame.rows,
        beside={kind: each.dtype for kind, each in frame.beside.items()},
        batches=batches(),
        names=names,
        notes=(*frame.notes, *_notes(frame, places)),
        numbers=in_file,
    )


def _notes(frame: TableFrame, places: Mapping[int, TableColumn]) -> Iterator[str]:
    """Notes on how columns are read that no option names."""
    for j, (kind, note) in frame.notes_as.items():
        if j in places and places[j].kind == kind and not places[j].notation.signs:
            yield note


def columns_to_read(frame: TableFrame, places: Mapping[int, TableColumn]) -> Mapping[int, TableColumn]:
    """The columns of an encoding, followed by those with values beside the rows, by their numbers in the file."""
    return {**places, **{each.number: each.read_as for each in frame.beside.values()}}


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
    import pyarrow as pa

    X = np.empty((len(batch), encoding.width), dtype)
    strange = np.zeros(len(batch), bool)
    whole: list[tuple[int, Array]] = []
    at = 0
    for k, column in enumerate(columns):
        found, missing, unknown = encode(batch.column(k), column)
        strange |= unknown
        if (
            dtype.kind == "f"
            and column.kind == "number"
            and found.dtype.itemsize == 8
            and not pa.types.is_floating(batch.column(k).type)
        ):
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
        exact = 2 ** (np.finfo(dtype).nmant + 1)  # the dtype holds all whole numbers below this
        if -exact < values.min(initial=0) and values.max(initial=0) < exact:
            continue
        for i in map(int, np.flatnonzero(((values >= exact) | (values <= -exact)) & kept)):
            written = _whole_number(batch.column(k)[i].as_py(), columns[k].notation.thousands)
            if written is not None and int(dtype.type(written)) != written:
                return X[kept], kept, (i, k, written)
    return X[kept], kept, None


def _whole_number(value: Any, thousands: str) -> int | None:
    """The integer that a value is or writes without a point or exponent; None for any other."""
    if isinstance(value, str):
        written = value.strip().replace(thousands, "")
        return int(written) if re.fullmatch(r"[+-]?[0-9]{1,4000}", written) else None
    return value if isinstance(value, int) else None


def kept_rows(batch: Any, first: int, encoding: Encoding, missing: Iterable[Array] = ()) -> Array:
    """Which rows (k,) of a batch are used, given which values (k,) of its columns are missing; the columns from number
    `first` on have the values beside the rows."""
    kept = np.ones(len(batch), bool)
    if encoding.missing == "drop":
        beside = (texts_of(values, encoding.columns[0].notation)[1] for values in batch.columns[first:])
        for absent in (*missing, *beside):
            kept &= ~absent
    return kept


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
    choice: ColumnOptions | None,
) -> str:
    """A message that lists the unreadable values in each column of a file, and what to do. One pass over the file."""
    import pyarrow as pa

    found: dict[int, Fault] = {}
    read: dict[int, list[str]] = {j: [] for j in places}  # texts of each column, more if options say how it is written
    refuse, first = encoding.missing == "refuse", 0
    batches = _shown(frame.read(columns_to_read(frame, places)), progress, "searching for errors", frame)
    for batch in _pieces(batches, encoding.width):
        marks = [marks_of(batch.column(k), column) for k, column in enumerate(places.values())]
        kept = kept_rows(batch, len(places), encoding, [each.missing for each in marks])
        for k, (j, column) in enumerate(places.items()):
            most = _MOST_READ if column.notation != ISO else 1
            if len(read[j]) < most:
                good = batch.column(k).filter(pa.array(~marks[k].missing & ~marks[k].unread)).unique()[:most]
                read[j] += (str(value).strip() for value in good.to_pylist())
            fault = marks[k].fault(batch.column(k), column, first, kept, missing_too=refuse)
            if fault is not None:
                found[j] = found[j].joined(fault) if j in found else fault
        first += len(batch)
    lines = []
    for j, fault in list(found.items())[:_MOST_FAULTS]:
        others = f", and {fault.count - 1:,} more such rows" if fault.count > 1 else ""
        lines.append(f"row {fault.row}, {column_called(j, frame.names)} is {fault.what}{others}")
    more = len(found) - len(lines)
    all_advice = ADVICE_OF_DATASET if choice is None else ADVICE
    advice = " ".join(all_advice[why] for why in all_advice if any(fault.reason == why for fault in found.values()))
    if choice is not None and (own := _remedies(frame, places, found, read, choice)):
        advice = f"{own[0].upper()}{own[1:]}. Otherwise: {advice[0].lower()}{advice[1:]}"
    if len(lines) == 1:
        return f"{frame.where}: {lines[0]} (rows of data and columns are counted from 0). {advice}"
    head = f"{frame.where}: {len(found)} columns cannot be read (rows of data and columns are counted from 0):"
    return "\n".join([head, *(f"  {line}" for line in lines), *([f"  and {more} more"] if more else []), advice])


def _remedies(
    frame: TableFrame,
    places: Mapping[int, TableColumn],
    found: Mapping[int, Fault],
    read: Mapping[int, Sequence[str]],
    choice: ColumnOptions,
) -> str:
    """What reads the unreadable columns for which something is likely, in words."""

    def with_names(for_all: Collection[int]) -> dict[Remedy, list[str]]:
        remedies: dict[Remedy, list[str]] = {}
        for j, fault in found.items():
            column, own = places[j], None
            if fault.reason == "missing" and not read[j]:
                own = Remedy(f"use --drop {quoted(column.name)}")
            elif fault.reason == "unread":
                number = column.kind in ("number", "date")
                dates = _date_options(column.name, choice, places.values(), for_all=j in for_all)
                own = remedy(column.name, fault.examples, column.notation, dates, number=number, others=read[j])
            if own is not None:
                remedies.setdefault(own, []).append(repr(column.name))
        return remedies

    remedies = with_names(frame.from_first_rows)
    if sum("--date-format" in each.before for each in remedies) > 1:  # there can be one for all columns only
        remedies = with_names(())
    return "; ".join(own.said(", ".join(names[:5])) for own, names in remedies.items())


def _date_options(name: str, choice: ColumnOptions, columns: Iterable[TableColumn], *, for_all: bool) -> DateOptions:
    """How the date format of a column is given: without its name if that can be done (`for_all`) and no other column
    has a format, and otherwise with all names, since a format for all columns excludes one for a single column."""
    single, named = choice.notation.date_format, dict(choice.date_formats)
    kept = [each.name for each in columns if single and each.notation.date_format and each.name != name]
    new = "".join(f"--date-format '{other}={single}' " for other in kept)
    own = f"{name}={named[name]}" if name in named else single
    return DateOptions(
        f"{new}--date-format '{'' if for_all and not kept and not named.keys() - {name} else name + '='}",
        f"--date-format '{own}'" if own else "",
        name in named,
    )


def learnt(
    frames: Sequence[TableFrame], encoding: Encoding, whose: str, progress: Progress, choice: ColumnOptions
) -> Encoding:
    """The encoding with the categories of its text columns, and with the replacements for missing values.

    Dropped rows do not count. One pass over the files, if there is something to learn. With `categories`, a column
    whose first rows are of another kind becomes text if later rows have words, which takes two more passes. A note
    describes columns of text files that hold numbers and words. Raises a DataError that lists unreadable values,
    columns without values or with too many categories, and columns that consist mostly of numbers or dates, unless
    `categorical` names them.
    """
    filled = encoding.missing in ("mean", "median")
    words = choice.categories is not None
    unsure = words and any(frame.from_first_rows for frame in frames)
    if not (filled or unsure or any(column.of_text for column in encoding.columns)):
        return encoding
    found: dict[str, _Word] = {}
    while True:
        try:
            learners = _look_at_all(frames, encoding, whose, progress, choice.max_categories)
            break
        except _Misfit as misfit:
            if found or not words or not (found := _words(frames, encoding, whose, progress)):
                message = problems(misfit.frame, misfit.places, encoding, progress, choice)
                raise DataError(message) from misfit.__cause__
        columns = [replace(each, kind="text") if each.name in found else each for each in encoding.columns]
        encoding = replace(encoding, columns=tuple(columns))
    pairs = list(zip(learners, encoding.columns, strict=True))
    refused = _check_mixed(frames, pairs, encoding, whose, found, progress, choice) if unsure else {}
    faults = [
        f"{fault} ({found[column.name].place})" if column.name in found else fault
        for learner, column in pairs
        if column.name not in refused and (fault := learner.fault(column, filled=filled))
    ]
    messages = list(refused.values())
    if faults:
        advice = "" if encoding.columns[0].kind == "characters" else ": leave these columns out with --drop"
        if any(isinstance(learner, _Texts) and learner.too_many for learner in learners):
            advice += ", or keep the most frequent texts with --max-categories 100"
        messages.append(f"{whose}: {'; '.join(faults)}{advice}")
    if messages:
        raise DataError("\n".join(messages))
    columns_learnt = [learner.learnt(column, encoding.missing) for learner, column in pairs]
    for learner, column in zip(learners, columns_learnt, strict=True):
        if column.other and isinstance(learner, _Texts):
            progress.note(learner.merged(column))
    return replace(encoding, columns=tuple(columns_learnt))


def _check_mixed(
    frames: Sequence[TableFrame],
    pairs: Sequence[tuple[_Learner, TableColumn]],
    encoding: Encoding,
    whose: str,
    found: dict[str, _Word],
    progress: Progress,
    choice: ColumnOptions,
) -> dict[str, str]:
    """Note the columns of text that hold numbers or dates, too; return messages that refuse those that mostly do.

    found: columns whose first word is known, to which the others are added, in one pass over the files.
    """
    seen = {
        column.name: learner.numbers_and_words(column)
        for learner, column in pairs
        if isinstance(learner, _Texts) and column.name not in choice.categorical
    }
    sought = {name: each.kind for name, each in seen.items() if (each.rows or each.mostly) and name not in found}
    if sought:
        columns = [replace(each, kind=sought.get(each.name, "text")) for each in encoding.columns]
        found |= _words(frames, replace(encoding, columns=tuple(columns)), whose, progress)
    refused = {}
    for name in (name for name in seen if name in found):
        each, word = seen[name], found[name]
        message = word.place + (f"; {each.others}" if each.rows else "")
        if not each.mostly:
            progress.note(message)
            continue
        column = next(column for _, column in pairs if column.name == name)
        of_files = any(name == frame.names[j] for frame in frames if frame.names for j in frame.from_first_rows)
        dates = _date_options(name, choice, encoding.columns, for_all=of_files or not encoding.named)
        own = remedy(name, each.words or (word.text,), column.notation, dates, number=True, others=each.fitting)
        said = "" if own is None else own.said()
        instead = f" instead of {dates.old}" if dates.named else ""
        refused[name] = (
            f"{message}. " + (f"{said[0].upper()}{said[1:]}. " if said else "") + "To make categories of its texts, "
            f"use --categorical {quoted(name)}{each.limit}{instead}; to leave it out, --drop {quoted(name)}{instead}"
        )
    return refused


class _Misfit(Exception):
    """A file has a value that the encoding cannot read; the value is searched for afterwards."""

    def __init__(self, frame: TableFrame, places: dict[int, TableColumn]) -> None:
        super().__init__(frame.where)
        self.frame, self.places = frame, places


def _look_at_all(
    frames: Sequence[TableFrame], encoding: Encoding, whose: str, progress: Progress, max_categories: int | None
) -> list[_Learner]:
    """What is learnt about each column from the kept rows, in one pass over all files. Raises _Misfit."""
    import pyarrow as pa

    most = int(min(_SAMPLE, max(5000, _SAMPLE_BYTES // 16 // len(encoding.columns))))
    learners: list[_Learner] = []
    for k, column in enumerate(encoding.columns):
        if column.of_text:
            learners.append(_Texts(max_categories) if column.kind == "text" else _Characters())
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
                    taken = [_taken(batch.column(k), column) for k, column in enumerate(encoding.columns)]
                    kept = kept_rows(batch, len(places), encoding, [missing for _, missing, _ in taken])
                    for learner, (values, missing, strange) in zip(learners, taken, strict=True):
                        if strange is not None and (strange & kept & ~missing).any():
                            raise Unreadable
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


def _taken(values: Any, column: TableColumn) -> tuple[Any, Array, Array | None]:
    """(texts or numbers, which are missing (k,), which are infinite or not a level (k,)) of an Arrow array."""
    if column.kind == "characters":
        return (*whole_texts_of(values), None)
    return (*texts_of(values, column.notation), None) if column.of_text else single_numbers(values, column)


@dataclass(frozen=True)
class _Word:
    """The first value of a column that is not of the kind of the others, and where it is, as a sentence."""

    text: str
    place: str


def _words(frames: Sequence[TableFrame], encoding: Encoding, whose: str, progress: Progress) -> dict[str, _Word]:
    """The columns, of those that are not text, with a value of another kind. One pass."""
    found: dict[str, _Word] = {}
    for frame in (each for each in frames if each.from_first_rows):
        places = encoding.places(frame, whose)
        first = 0
        batches = frame.read(columns_to_read(frame, places))
        for batch in _shown(batches, progress, "searching for words", frame):
            for k, (j, column) in enumerate(places.items()):
                if column.of_text or column.name in found:
                    continue
                unread = unread_values(batch.column(k), column.kind, column.notation)
                if unread.any():
                    i = int(unread.argmax())
                    word = batch.column(k)[i].as_py()
                    called = column_called(j, frame.names)
                    place = f"{frame.where}: {called} is read as text since row {first + i:,}: {word!r:.60}"
                    found[column.name] = _Word(word, place)
            first += len(batch)
    return found


@dataclass(frozen=True)
class _Mixed:
    """The numbers or dates (`kind`) among the texts of a column: the number of rows with them, whether they, with those
    in other notations, make at least half of the distinct texts, these texts (`fitting`), and the others. complete:
    whether all rows were counted."""

    kind: Kind
    rows: int
    mostly: bool
    fitting: tuple[str, ...]
    words: tuple[str, ...]
    complete: bool

    @property
    def others(self) -> str:
        if self.rows == 1:
            return f"1 other is a {self.kind}"
        return f"{self.rows:,} others are {self.kind}s" if self.complete else f"over 1,000 others are {self.kind}s"

    @property
    def limit(self) -> str:
        return "" if self.complete else " --max-categories 100"


@dataclass
class _Texts:
    """The texts of a column, in the spelling of categories, and the number of rows with each; none if there are too
    many. kept: how many of the most frequent become categories; None for all."""

    kept: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    too_many: bool = False

    @property
    def most(self) -> int:
        return MOST_CATEGORIES if self.kept is None else _MOST_TEXTS

    def add(self, texts: Any, kept: Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.too_many:
            return
        found = pc.value_counts(texts.filter(pa.array(kept)))
        for text, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            self.counts[text] += count
        self.too_many = len(self.counts) > self.most

    def numbers_and_words(self, column: TableColumn) -> _Mixed:
        """Which texts are numbers, or dates in ISO 8601 or in the format of the column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pa.array(self.counts, pa.string())
        dates = pc.match_substring_regex(texts, r"^\d{4}-\d\d-\d\d([T ]|$)")
        if given := column.notation.date_format:
            dates = pc.or_(dates, pa.array(written_dates(self.counts, given), pa.bool_()))
        numbers = pc.or_(written_numbers(texts, ISO), written_numbers(texts, column.notation))
        numbers = pc.and_not(numbers, dates)  # 20130517
        count = pc.sum(dates).as_py() or 0
        kind: Kind = "date" if count and count >= pc.sum(numbers).as_py() else "number"
        of_kind = (dates if kind == "date" else numbers).to_numpy(zero_copy_only=False)
        fitting, words = (tuple(texts.filter(pa.array(which)).to_pylist()) for which in (of_kind, ~of_kind))
        rows = sum(count for count, one in zip(self.counts.values(), of_kind, strict=True) if one)
        mostly = bool(2 * of_kind.sum() >= len(texts) > 0 or notations_of(list(self.counts)))
        return _Mixed(kind, rows, mostly, fitting, words, not self.too_many)

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        if self.too_many:
            return f"column {column.name!r} has more than {self.most} distinct texts"
        return None if self.counts else f"column {column.name!r} has no value"

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with its categories, in alphabetical order, and last that of all others."""
        categories, counts = sorted(self.counts), Counter(self.counts)
        other = self.kept is not None and len(counts) > self.kept
        if other:
            ranked = sorted((text for text in counts if text != OTHER), key=lambda text: (-counts[text], text))
            categories = [*sorted(ranked[: self.kept]), OTHER]
            counts[OTHER] = counts.total() - sum(counts[text] for text in categories[:-1])
        shares = np.array([counts[text] for text in categories]) / self.counts.total()
        fills = {"mean": shares, "median": (shares > 0.5).astype(float)}.get(missing, np.empty(0))
        return replace(column, categories=tuple(categories), fills=tuple(fills.tolist()), other=other)

    def merged(self, column: TableColumn) -> str:
        """A note on the texts that have no category."""
        rows = self.counts.total() - sum(self.counts[text] for text in column.categories[:-1])
        return (
            f"column {column.name!r}: keeping the {len(column.categories) - 1:,} most frequent of {len(self.counts):,} "
            f"texts; the others, in {rows:,} rows, become {column.names[-1]!r}"
        )


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
        """Add the kept numbers, which are finite."""
        found = values[kept].astype(np.float64)
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
