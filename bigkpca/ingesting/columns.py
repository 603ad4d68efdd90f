"""Columns of a table as numbers: the meaning of types, values that are missing or unreadable, and the encoding of all
columns, which is determined by options and first rows and stored with a dataset.

| kind | becomes |
|---|---|
| number | itself |
| boolean | 0 and 1 |
| date, also with a time of day | days since 1970-01-01, in UTC if it has a time zone |
| time of day, duration | hours |
| text, categories | one column of 0 and 1 for each category |
| ordinal | the number of its level, from 0 |
| characters of a text | one column for each position: the number of the character, 0 after the last |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from bigkpca.data.beside import Beside
from bigkpca.errors import Array, DataError, SpecError, column_called, names_apart, require, unknown_name
from bigkpca.ingesting.notation import (
    ISO,
    Notation,
    parsed_dates,
    parsed_numbers,
    spelled,
    without_missing,
    written_dates,
    written_numbers,
)

Kind = Literal["number", "boolean", "date", "time", "ordinal", "text", "characters"]

Missing = Literal["refuse", "drop", "mean", "median"]
UNITS = {"date": "days since 1970-01-01", "time": "hours"}
OTHER = "(other)"
"""The category of all texts that are not among the most frequent."""

_DAY, _HOUR = 86_400e6, 3_600e6  # in microseconds
_FITS: dict[Kind, tuple[Kind, ...]] = {  # kinds of stored values that a kind accepts, besides texts
    "number": ("number", "boolean"),
    "boolean": ("boolean", "number"),
    "date": ("date",),
    "time": ("time",),
}
_WORDS = {"number": "a number", "boolean": "true or false", "date": "a date", "time": "a time of day"}


@dataclass(frozen=True)
class TableColumn:
    """How one column of a table becomes columns of numbers.

    categories: the texts that each have a column of 0 and 1, the levels, or the characters, numbered from 1. length: of
    the longest text, for characters only. fills: the replacements for missing values in each column of numbers, or
    empty. other: whether the last category is that of all other texts.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fills: tuple[float, ...] = ()
    length: int = 0
    other: bool = False
    notation: Notation = ISO

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns of numbers."""
        if self.kind == "characters":
            return tuple(f"{self.name}[{place}]" for place in range(self.length))
        return tuple(f"{self.name}={each}" for each in self.categories) if self.kind == "text" else (self.name,)

    @property
    def of_text(self) -> bool:
        return self.kind in ("text", "characters")

    @property
    def unit(self) -> str | None:
        return UNITS.get(self.kind)

    def to_json(self) -> dict[str, Any]:
        own = {
            "name": self.name,
            "kind": self.kind,
            "categories": list(self.categories),
            "fills": list(self.fills),
            "length": self.length,
        }
        if self.other:
            own["other"] = True
        return own | ({"notation": self.notation.to_json()} if self.notation != ISO else {})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TableColumn:
        return cls(
            values["name"],
            values["kind"],
            tuple(values["categories"]),
            tuple(values["fills"]),
            values["length"],
            values.get("other", False),
            Notation.from_json(values.get("notation", {})),
        )


AS_TEXT = TableColumn("", "text")
"""How labels are read, and columns whose kind is not yet known."""


Reason = Literal["missing", "unread", "infinite", "unknown"]
ADVICE: dict[Reason, str] = {
    "missing": "Drop these rows with --missing drop, or fill in values with --missing mean or median.",
    "unread": "Turn text into columns of 0 and 1 with --categories one-hot, name labels with --labels, or leave these "
    "columns out with --drop.",
    "infinite": "Remove or repair these rows first.",
    "unknown": "List every level with --ordinal, and texts that mean a missing value with --na-values.",
}
ADVICE_OF_DATASET: dict[Reason, str] = {
    "missing": "The dataset was made without missing values: remove or repair these rows, or make a new dataset.",
    "unread": "A dataset keeps the kinds of its columns: remove or repair these rows, or make a new dataset.",
    "infinite": ADVICE["infinite"],
    "unknown": "A dataset keeps its original categories and characters: remove these rows, or make a new dataset.",
}


_MOST_EXAMPLES = 1000


@dataclass(frozen=True)
class Fault:
    """Why some values of a column cannot be read: the first such value, its row, the number of such values, and some
    distinct texts among them."""

    reason: Reason
    what: str
    row: int
    count: int
    examples: tuple[str, ...] = ()

    def joined(self, later: Fault) -> Fault:
        """Both faults combined. If there are values of another kind, only these count."""
        if self.reason != later.reason and "unread" in (self.reason, later.reason):
            return self if self.reason == "unread" else later
        examples = tuple(dict.fromkeys(self.examples + later.examples))[:_MOST_EXAMPLES]
        return replace(self, count=self.count + later.count, examples=examples)


def kind_of(kind: Any) -> Kind | None:
    """The kind of values of an Arrow type; None if they cannot become numbers."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return "number"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if types.is_time(kind) or types.is_duration(kind):
        return "time"
    return "text" if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) else None


def numbers(values: Any, kind: Kind, notation: Notation = ISO) -> tuple[Array, Array]:
    """(numbers (k,), missing (k,)) of an Arrow array of this kind, which is not text, or of texts in this notation; 0
    where missing.

    Raises pyarrow.ArrowInvalid for a text that is not of this kind, and for values of another kind, such as dates for
    numbers."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    own = kind_of(values.type)
    if own == "number" and kind == "date" and notation.date_format:  # 20130517
        own, values = "text", values.cast(pa.string())
        whole = without_missing(values.unique(), notation).drop_null().to_pylist()
        if not all(written_dates(whole, notation.date_format, again=True)):
            raise pa.ArrowInvalid("a number is not a date with all its digits")  # 1022013, which has lost a zero
    if own == "text":
        values = _parsed(values.cast(pa.large_string()), kind, notation)
    elif not pa.types.is_null(values.type) and own not in _FITS[kind]:
        raise pa.ArrowInvalid(f"{values.type} is not {_WORDS[kind]}")  # Arrow would convert them with another meaning
    missing = values.is_null().to_numpy(zero_copy_only=False)
    found: Array
    if kind == "date":
        found = _microseconds(values, pa.timestamp("us", getattr(values.type, "tz", None))) / _DAY
    elif kind == "time":
        to = pa.time64("us") if pa.types.is_time(values.type) else values.type
        found = _microseconds(values, pa.duration("us") if pa.types.is_duration(to) else to) / _HOUR
    else:
        if pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
            values = values.cast(pa.float64())
        filled = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
        found = filled.to_numpy(zero_copy_only=False)
    if kind == "boolean" and own == "number" and not np.isin(found, (0, 1)).all():
        raise pa.ArrowInvalid("a number is not true or false")
    absent = np.isnan(found) if found.dtype.kind == "f" else np.zeros(len(found), bool)
    if kind == "number" and notation.na_values:
        absent |= np.isin(found, notation.numbers.astype(np.result_type(found.dtype, np.float32)))
    if absent.any():
        missing = missing | absent
        found = np.where(missing, 0, found).astype(found.dtype)
    return found, missing


def _parsed(texts: Any, kind: Kind, notation: Notation) -> Any:
    """Texts as values of a kind, null where they mean a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "number":
        return parsed_numbers(texts, notation)
    if kind == "date":
        return parsed_dates(texts, notation)
    texts = without_missing(texts, notation)
    if kind == "time":  # on the first day, to microseconds, since Arrow does not cast text to times of day
        texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
        day, space = (pa.scalar(text, texts.type) for text in ("1970-01-01", " "))
        return pc.binary_join_element_wise(day, texts, space).cast(pa.timestamp("us"))
    return texts.cast(pa.bool_())


def _microseconds(values: Any, to: Any) -> Array:
    """Times in microseconds; 0 where missing."""
    import pyarrow as pa

    found: Array = values.cast(to, safe=False).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def texts_of(values: Any, notation: Notation = ISO) -> tuple[Any, Array]:
    """(texts as a dictionary in the spelling of categories, which of them are missing (k,), i.e. null, NaN, empty or
    among the `na_values`) of an Arrow array. The dictionary can hold a text twice."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    coded, written = values.cast(pa.string()).dictionary_encode(), _written(values, notation)
    words = spelled(coded.dictionary, written)
    absent = pc.is_in(words, spelled(pa.array(["", *notation.na_values], pa.string()), written)).take(coded.indices)
    missing = pc.or_kleene(pc.is_null(values, nan_is_null=True), absent).to_numpy(zero_copy_only=False)
    return pa.DictionaryArray.from_arrays(coded.indices, words), missing


def _written(values: Any, notation: Notation) -> Notation:
    """The notation of the texts of an Arrow array: the given one unless Arrow writes them, from typed values."""
    return notation if kind_of(values.type) == "text" else ISO


def codes(values: Any, column: TableColumn) -> tuple[Array, Array, Array]:
    """(category number (k,), missing (k,), unknown category (k,)) of texts; the number is -1 for the last two."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, missing = texts_of(values, column.notation)
    known = pa.array(column.categories, pa.string())
    if column.kind == "ordinal":  # as the user wrote them
        known = spelled(known, _written(values, column.notation))
    found = pc.index_in(texts.dictionary, known).take(texts.indices).fill_null(-1).to_numpy()
    if column.other:
        found = np.where((found < 0) & ~missing, len(column.categories) - 1, found)
    return found, missing, (found < 0) & ~missing


def whole_texts_of(values: Any) -> tuple[Any, Array]:
    """(texts as they are, which of them are missing (k,)) of an Arrow array, for rows of characters."""
    import pyarrow as pa

    return values.cast(pa.string()), texts_of(values)[1]


def characters(values: Any, column: TableColumn) -> tuple[Array, Array, Array]:
    """(numbers of characters (k, length), missing (k,), longer or with other characters (k,)) of texts."""
    import pyarrow.compute as pc

    texts, missing = whole_texts_of(values)
    cut = pc.utf8_slice_codeunits(texts.fill_null(""), 0, column.length)
    padded = np.array(cut.to_pylist(), dtype=f"<U{column.length}")
    points = padded.view(np.uint32).reshape(len(padded), column.length)
    known = np.array([0, *(ord(each) for each in column.categories)], np.uint32)
    at = np.minimum(np.searchsorted(known, points), len(known) - 1)
    strange = (known[at] != points).any(axis=1)
    longer = pc.utf8_length(texts).fill_null(0).to_numpy() > column.length
    return at, missing, (strange | longer) & ~missing


@dataclass(frozen=True)
class Marks:
    """Which values (k,) of a column are missing, of another kind, and infinite or of an unknown category."""

    missing: Array
    unread: Array
    strange: Array

    def fault(self, values: Any, column: TableColumn, first: int, kept: Array, *, missing_too: bool) -> Fault | None:
        """The first value that is not of the kind of the column, or else the first other fault in a kept row."""
        import pyarrow as pa

        bad = self.unread if self.unread.any() else (self.strange | (self.missing & missing_too)) & kept
        if not bad.any():
            return None
        i = int(np.argmax(bad))
        reason: Reason = "unread" if self.unread[i] else "missing" if self.missing[i] else "unknown"
        if reason == "unknown" and not column.of_text and column.kind != "ordinal":
            reason = "infinite"
        examples: tuple[str, ...] = ()
        if reason == "unread" and kind_of(values.type) == "text":
            examples = tuple(values.filter(pa.array(bad)).unique()[:_MOST_EXAMPLES].to_pylist())
        what = _said(values[i].as_py(), column, reason)
        return Fault(reason, what, first + i, int(bad.sum()), examples)


def marks_of(values: Any, column: TableColumn) -> Marks:
    """The unreadable values of an Arrow array. A slow search, for messages only."""
    import pyarrow as pa

    nothing = np.zeros(len(values), bool)
    if column.of_text or column.kind == "ordinal":
        read = characters(values, column) if column.kind == "characters" else codes(values, column)
        return Marks(read[1], nothing, read[2])
    unread = unread_values(values, column.kind, column.notation)
    found, missing = np.zeros(len(values)), nothing
    if not unread.all():
        found[~unread], missing[~unread] = numbers(values.filter(pa.array(~unread)), column.kind, column.notation)
    return Marks(missing, unread, ~np.isfinite(found))


def unread_values(values: Any, kind: Kind, notation: Notation = ISO) -> Array:
    """Which values of an Arrow array are not of a kind."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def fails(part: Any) -> bool:
        try:
            numbers(part, kind, notation)
        except pa.ArrowInvalid:
            return True
        return False

    if not fails(values):
        return np.zeros(len(values), bool)
    own = kind_of(values.type)
    if own != "text" and own not in _FITS[kind]:
        return np.ones(len(values), bool)
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    of_distinct = np.ones(len(coded.dictionary), bool)
    unsure = of_distinct.copy()
    if own == "text" and kind == "number":  # most at once: there can be a hundred thousand
        texts = without_missing(coded.dictionary.cast(pa.large_string()), notation)
        of_distinct = ~written_numbers(texts, notation).fill_null(True).to_numpy(zero_copy_only=False)
        infinite = pc.match_substring_regex(texts, "(?i)^[+-]?(inf|nan)").fill_null(False)
        unsure = of_distinct & infinite.to_numpy(zero_copy_only=False)
    of_distinct[unsure] = [fails(coded.dictionary.slice(i, 1)) for i in np.flatnonzero(unsure)]
    at = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return of_distinct[at] & coded.is_valid().to_numpy(zero_copy_only=False)


def _said(value: Any, column: TableColumn, reason: Reason) -> str:
    if reason == "unread":
        written = f" of the format {column.notation.date_format!r}" if column.notation.date_format else ""
        return f"{value!r}, not {_WORDS[column.kind]}{written}"
    if reason == "infinite":
        return "infinity"
    if reason == "unknown" and column.kind == "characters":
        longer = len(value) > column.length
        what = f"longer than the {column.length} characters" if longer else f"not made of the {len(column.categories)}"
        return f"{value!r:.40}, {what} of the dataset"
    if reason == "unknown" and column.kind == "ordinal":
        return f"{value!r}, not one of its levels {', '.join(column.categories)}"
    if reason == "unknown":
        return f"{value!r}, not one of the {len(column.categories)} categories of the dataset"
    if value is None:
        return "missing"
    if isinstance(value, str) and not value.strip():
        return "empty"
    return "NaN" if value in ("NaN", "nan") or isinstance(value, float) else f"{value!r}, which means a missing value"


@dataclass(frozen=True)
class BesideColumn:
    """A column of a frame with values beside the rows: its number, the dtype of the values, a function that makes them
    (k,) from a part of the column and its row numbers (k,), and how the column is read."""

    number: int
    dtype: np.dtype[Any]
    values: Callable[[Any, Array], Array]
    read_as: TableColumn = AS_TEXT


@dataclass(frozen=True)
class TableFrame:
    """The columns of a file.

    columns: their numbers in the file, without row names and columns of values beside the rows. names: of all columns
    of the file. kinds, types: of the columns, the latter as named by the file; the kind is None if values cannot become
    numbers. read: batches (pyarrow.RecordBatch) of the columns with these numbers, in this order; columns of a text
    file are texts. from_first_rows: numbers of the columns whose kinds are inferred from the first rows, so later rows
    can contain words. formatted: numbers of the columns whose first rows have dates of the given format. notes_as:
    notes on columns, by their numbers, for users who do not name them, if they are read as this kind.
    """

    where: str
    columns: tuple[int, ...]
    names: tuple[str, ...] | None
    kinds: tuple[Kind | None, ...]
    types: tuple[str, ...]
    dtypes: tuple[np.dtype[Any] | None, ...]
    rows: int | None
    beside: Mapping[Beside, BesideColumn]
    read: Callable[[Mapping[int, TableColumn]], Iterator[Any]]
    notes: tuple[str, ...] = ()
    text: str | None = None  # the column whose characters are the rows, unless options differ
    from_first_rows: frozenset[int] = frozenset()
    formatted: frozenset[int] = frozenset()
    notes_as: Mapping[int, tuple[Kind, str]] = field(default_factory=dict)

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names of the columns that can be features."""
        return None if self.names is None else tuple(self.names[j] for j in self.columns)


class Unreadable(Exception):
    """A batch has a value that the encoding cannot read; the value is searched for afterwards."""


@dataclass(frozen=True)
class Encoding:
    """The used columns of a table, in the order of their numbers, and the treatment of missing values.

    left_out: names of the other columns of the files; None if any names are allowed. named: whether the columns have
    names.
    """

    columns: tuple[TableColumn, ...]
    missing: Missing = "refuse"
    left_out: tuple[str, ...] | None = ()
    named: bool = True

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns of numbers."""
        return tuple(name for column in self.columns for name in column.names) if self.named else None

    @property
    def notation(self) -> Notation:
        """The notation of text files, by which their first lines are inspected."""
        date_format = next((each.notation.date_format for each in self.columns if each.notation.date_format), "")
        return replace(self.columns[0].notation, date_format=date_format, signs=False)

    @property
    def width(self) -> int:
        return sum(len(column.names) for column in self.columns)

    @property
    def says_nothing(self) -> bool:
        """Whether all columns are numbers, used unchanged, so their names describe them completely."""
        return self.plain and all(column.kind == "number" for column in self.columns)

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers or booleans, used unchanged."""
        as_they_are = all(
            column.kind in ("number", "boolean") and not column.fills and column.notation == ISO
            for column in self.columns
        )
        return as_they_are and self.missing == "refuse" and self.left_out == ()

    def places(self, frame: TableFrame, whose: str) -> dict[int, TableColumn]:
        """The columns by their numbers in a file. Raises SpecError if the file has other columns than `whose`, and
        DataError if a column has a type that cannot be numbers or text."""
        if frame.names is None or not self.named:
            if self.left_out != ():
                raise SpecError(f"{frame.where} has no column names, by which columns could be chosen")
            if len(frame.columns) != len(self.columns):
                raise SpecError(f"{frame.where} has {len(frame.columns)} columns, but {whose} has {len(self.columns)}")
            places = dict(zip(frame.columns, self.columns, strict=True))
        else:
            places = self._by_name(frame, frame.names, whose)
        for j, column in places.items():
            at = frame.columns.index(j)
            if frame.kinds[at] is None:
                raise DataError(
                    f"{frame.where}: column {j} ({column.name!r}) is of type {frame.types[at]}, not of kind "
                    f"{column.kind}"
                )
        return places

    def _by_name(self, frame: TableFrame, names: Sequence[str], whose: str) -> dict[int, TableColumn]:
        here = [names[j] for j in frame.columns]
        wanted = [column.name for column in self.columns]
        expected = [*wanted, *(self.left_out or ())]
        if twice := next((name for name in wanted if name and here.count(name) > 1), None):
            at = [str(j) for j in frame.columns if names[j] == twice]
            raise SpecError(
                f"{frame.where}: columns {' and '.join(at)} (counted from 0) are called {twice!r}: give each a "
                "unique name, since columns are matched by name, or leave out all with this name using --drop"
            )
        found = here if self.left_out is not None else [name for name in here if name in wanted]
        if sorted(found) != sorted(expected):
            raise SpecError(
                f"{frame.where} {names_apart(found, expected, whose)}: columns are matched by name, so all files must "
                "have the same names; rename, add or remove columns first"
            )
        if all(here.count(name) == 1 for name in wanted):
            number = dict(zip(here, frame.columns, strict=True))
            return {number[column.name]: column for column in self.columns}
        if self.left_out or here != expected:
            raise SpecError(
                f"{frame.where} {names_apart(here, expected, whose)}, and several have no name: give each column a "
                "name, since columns are matched by name"
            )
        return dict(zip(frame.columns, self.columns, strict=True))

    def dtype(self, frame: TableFrame, places: Mapping[int, TableColumn]) -> np.dtype[Any]:
        """The common dtype of the columns of numbers of a file."""
        own = dict(zip(frame.columns, frame.dtypes, strict=True))
        found = []
        for j, column in places.items():
            dtype: np.dtype[Any] = np.dtype(np.float64)
            if column.of_text or column.kind == "ordinal":
                dtype = np.min_scalar_type(1 if column.kind == "text" else len(column.categories))
            elif column.kind in ("number", "boolean"):
                dtype = own[j] or dtype
            found.append(np.result_type(dtype, np.float32) if column.fills else dtype)
        return np.result_type(*found)

    def to_json(self) -> dict[str, Any]:
        return {
            "missing": self.missing,
            "left_out": None if self.left_out is None else list(self.left_out),
            "named": self.named,
            "columns": [column.to_json() for column in self.columns],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Encoding:
        left_out = values["left_out"]
        return cls(
            tuple(TableColumn.from_json(each) for each in values["columns"]),
            values["missing"],
            None if left_out is None else tuple(left_out),
            values["named"],
        )


def encode(values: Any, column: TableColumn) -> tuple[Array, Array, Array]:
    """(numbers (k, columns of numbers), missing (k,), strange (k,)) of an Arrow array. Missing values are filled in if
    the column has fills. Strange values are infinite numbers, and texts whose category or characters the column lacks.
    Raises pyarrow.ArrowInvalid if a value is not of the kind of the column."""
    if column.kind == "text":
        found, missing, strange = codes(values, column)
        X = (found[:, None] == np.arange(len(column.categories))).astype(np.uint8)
    elif column.kind == "characters":
        X, missing, strange = characters(values, column)
    else:
        found, missing, strange = single_numbers(values, column)
        X = found[:, None]
    if column.fills and missing.any():
        X = np.where(missing[:, None], column.fills, X)
    return X, missing, strange


def single_numbers(values: Any, column: TableColumn) -> tuple[Array, Array, Array]:
    """`encode`, as numbers (k,) that are not filled in, for a column that becomes one column of numbers."""
    if column.kind == "ordinal":
        return codes(values, column)
    found, missing = numbers(values, column.kind, column.notation)
    return found, missing, ~np.isfinite(found)


@dataclass(frozen=True)
class ColumnOptions:
    """Column options: only these, all but these, the treatment of missing values and text, columns of a given kind, the
    way in which texts write values, or the text column whose characters are the rows.

    ordinal: the levels of columns. date_formats: the formats of single columns.
    """

    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    missing: Missing = "refuse"
    categories: Literal["one-hot"] | None = None
    text: str | None = None
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    ordinal: tuple[tuple[str, tuple[str, ...]], ...] = ()
    max_categories: int | None = None
    notation: Notation = ISO
    date_formats: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.columns is not None and self.drop:
            raise SpecError("columns lists the columns to keep, and drop those to leave out: use only one of them")
        if self.text is not None and (
            self.columns is not None or self.drop or self.categories or any(self.given.values())
        ):
            raise SpecError("text makes rows from the characters of one column: leave out columns, drop and categories")
        if self.text is not None and self.missing in ("mean", "median"):
            raise SpecError(f"missing texts have no {self.missing}: drop their rows with missing='drop'")
        for what, value, known in (
            ("missing", self.missing, get_args(Missing)),
            ("categories", self.categories, ("one-hot", None)),
        ):
            if value not in known:
                raise unknown_name(what, str(value), [name for name in known if name])
        _check_levels(self)
        for _, date_format in self.date_formats:
            Notation(date_format=date_format)  # checks it
        if self.max_categories is not None and self.max_categories < 1:
            raise SpecError(f"max_categories={self.max_categories}: must be at least 1")
        if self.max_categories is not None and not (self.categories or self.categorical):
            raise SpecError("max_categories limits categories: use it with categories='one-hot' or categorical")
        named = [name for group in self.given.values() for name in group]
        if twice := next((name for name in named if named.count(name) > 1), None):
            options = " and ".join(option for option, group in self.given.items() if twice in group)
            raise SpecError(f"column {twice!r} is named by {options}: name it once")
        for option, group in self.given.items():
            for name in group:
                if name in self.drop or (self.columns is not None and name not in self.columns):
                    raise SpecError(f"{option} names the column {name!r}, which is left out")

    @property
    def given(self) -> dict[str, tuple[str, ...]]:
        """The columns whose kind is given, by option."""
        return {
            "categorical": self.categorical,
            "numeric": self.numeric,
            "ordinal": tuple(name for name, _ in self.ordinal),
            "date_format": tuple(name for name, _ in self.date_formats),
        }

    @property
    def identity(self) -> dict[str, Any]:
        """The options that differ from the defaults, JSON-ready, which are part of the identity of a dataset."""
        own = {
            "columns": None if self.columns is None else list(self.columns),
            "drop": list(self.drop) or None,
            "missing": None if self.missing == "refuse" else self.missing,
            "categories": self.categories,
            "text": self.text,
            "categorical": list(self.categorical) or None,
            "numeric": list(self.numeric) or None,
            "ordinal": {name: list(levels) for name, levels in self.ordinal} or None,
            "max_categories": self.max_categories,
            "date_formats": dict(self.date_formats) or None,
            **self.notation.to_json(),
        }
        return {key: value for key, value in own.items() if value is not None}


def chosen(frames: Sequence[TableFrame], choice: ColumnOptions, names: tuple[str, ...] | None) -> Encoding:
    """The encoding of files according to the options; categories and fills, if any, have yet to be learnt.

    names: of the columns, if already known; otherwise those of the first file that has names. Raises SpecError for a
    name that no column has, and DataError if a column has a type that cannot be numbers.
    """
    first = next((frame for frame in frames if frame.names is not None), frames[0])
    known = names if names is not None else first.column_names
    if first.text is not None and choice == ColumnOptions(missing=choice.missing):
        choice = replace(choice, text=first.text)
    named = [name for group in choice.given.values() for name in group]
    if known is None:
        if choice.columns is not None or choice.drop or choice.text is not None or named:
            raise SpecError(f"{first.where} has no column names, by which columns could be chosen")
        kinds = _kinds(frames, [str(k) for k in range(len(first.columns))], by_name=False)
        return Encoding(tuple(_column(choice, *each) for each in kinds), choice.missing, (), named=False)
    for name in (*(choice.columns or ()), *choice.drop, *([] if choice.text is None else [choice.text]), *named):
        if name not in known:
            raise unknown_name(f"column of {first.where}", name, known)
    if choice.text is not None:
        return Encoding((TableColumn(choice.text, "characters"),), choice.missing, None)
    kept = choice.columns or tuple(name for name in known if name not in choice.drop)
    if not kept:
        raise SpecError(f"no column of {first.where} is left: drop fewer columns")
    left_out = None if choice.columns is not None else tuple(name for name in known if name in choice.drop)
    columns = tuple(_column(choice, *each) for each in _kinds(frames, kept, by_name=True))
    return Encoding(columns, choice.missing, left_out)


def _check_levels(choice: ColumnOptions) -> None:
    """Raise SpecError for levels that are equal, also as numbers or truth values, or mean a missing value."""
    if not choice.ordinal:
        return
    require("pyarrow", "tables", "ordinal")
    import pyarrow as pa

    for name, levels in choice.ordinal:
        different = set(spelled(pa.array(levels, pa.string()), choice.notation).to_pylist())
        if len(different) < max(2, len(levels)) or "" in levels:
            raise SpecError(f"ordinal: column {name!r} needs two or more different levels, lowest first")
        if absent := next((level for level in levels if level in choice.notation.na_values), None):
            raise SpecError(f"ordinal: the level {absent!r} of column {name!r} is also one of na_values")


def _kinds(frames: Sequence[TableFrame], names: Sequence[str], *, by_name: bool) -> list[tuple[str, Kind, bool]]:
    """The kind of each column: text if any file has text, otherwise that of the first file; and whether a file has
    dates of the given format there. Raises DataError."""
    found: dict[str, list[Kind]] = {name: [] for name in names}
    formatted, unfit = set(), []
    for frame in frames:
        own = frame.column_names if by_name and frame.column_names is not None else names
        for name, number, kind, type_ in zip(own, frame.columns, frame.kinds, frame.types, strict=False):
            if name in found and kind is None:
                unfit.append(f"{frame.where}: {column_called(number, frame.names)} is of type {type_}")
            elif name in found and kind is not None and type_ != "null":
                found[name].append(kind)
            if number in frame.formatted:
                formatted.add(name)
    if unfit:
        raise DataError("; ".join(unfit) + ": not numbers, booleans, times or text; leave it out with --drop")
    return [
        (name, "text" if "text" in found[name] else next(iter(found[name]), "number"), name in formatted)
        for name in names
    ]


def _column(choice: ColumnOptions, name: str, kind: Kind, formatted: bool) -> TableColumn:
    """A column of a kind, unless an option names it. Text that does not become categories is read as numbers, which
    some files store as text. formatted: whether its texts are dates of the format given for all columns."""
    levels, date_format = dict(choice.ordinal).get(name, ()), dict(choice.date_formats).get(name)
    if date_format is None:
        date_format = choice.notation.date_format if formatted and kind in ("date", "text") else ""
    if name in choice.categorical:
        kind = "text"
    elif levels:
        kind = "ordinal"
    elif date_format and name not in choice.numeric:
        kind = "date"
    elif name in choice.numeric or (kind == "text" and choice.categories is None):
        kind = "number"
    notation = replace(choice.notation, date_format=date_format if kind == "date" else "", signs=name in choice.numeric)
    return TableColumn(name, kind, levels, notation=notation)
