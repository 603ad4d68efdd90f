"""Columns of a table as numbers: what a type means, which values are missing, and which cannot be read.

| kind | becomes |
|---|---|
| number | itself |
| boolean | 0 and 1 |
| date, also with a time of day | days since 1970-01-01, UTC where it has a time zone |
| time of day, duration | hours |
| text, categories | one column of 0 and 1 for each category |
| characters of a text | one column for each place: the number of its character, 0 behind the last |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from bigkpca.errors import Array

Kind = Literal["number", "boolean", "date", "time", "text", "characters"]

UNITS = {"date": "days since 1970-01-01", "time": "hours"}
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "#NA", "NULL", "null", "None", "NaN", "nan", "-NaN", "-nan")
"""Texts that stand for a missing value, as pandas and Arrow have them: in text files unless they are quoted, and
wherever numbers, dates and the like are kept as text."""

_DAY, _HOUR = 86_400e6, 3_600e6  # in microseconds
_FITS: dict[Kind, tuple[Kind, ...]] = {  # kinds of stored values that a kind takes, beside texts
    "number": ("number", "boolean"),
    "boolean": ("boolean", "number"),
    "date": ("date",),
    "time": ("time",),
}
_WORDS = {"number": "a number", "boolean": "true or false", "date": "a date", "time": "a time of day"}


@dataclass(frozen=True)
class TableColumn:
    """How one column of a table becomes columns of numbers.

    categories: the texts that have a column of 0 and 1 each, or the characters, whose numbers begin with 1. length: of
    the longest text, of characters only. fills: what stands for a missing value in each column of numbers, or nothing.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fills: tuple[float, ...] = ()
    length: int = 0

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
        return {**asdict(self), "categories": list(self.categories), "fills": list(self.fills)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TableColumn:
        return cls(
            values["name"], values["kind"], tuple(values["categories"]), tuple(values["fills"]), values["length"]
        )


Reason = Literal["missing", "unread", "infinite", "unknown"]
ADVICE: dict[Reason, str] = {
    "missing": "Leave such rows out with --missing drop, or fill them with --missing mean or median.",
    "unread": "Turn text into columns of 0 and 1 with --categories one-hot, name labels with --labels, or leave such "
    "columns out with --drop.",
    "infinite": "Remove or mend such rows first.",
}
ADVICE_OF_DATASET: dict[Reason, str] = {
    "missing": "The dataset was made without missing values: remove or mend such rows, or make a new dataset.",
    "unread": "A dataset keeps the kinds of its columns: remove or mend such rows, or make a new dataset.",
    "infinite": ADVICE["infinite"],
    "unknown": "A dataset keeps the categories and characters it began with: leave such rows out, or make a new one.",
}


@dataclass(frozen=True)
class Fault:
    """Why some values of a column cannot be read: what the first of them is, its row, and how many there are."""

    reason: Reason
    what: str
    row: int
    count: int

    def joined(self, later: Fault) -> Fault:
        """Both in one. Values of another kind count alone: while there are some, others are no matter."""
        if self.reason != later.reason and "unread" in (self.reason, later.reason):
            return self if self.reason == "unread" else later
        return replace(self, count=self.count + later.count)


def kind_of(kind: Any) -> Kind | None:
    """What a type of Arrow holds; None for what cannot be numbers."""
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


def numbers(values: Any, kind: Kind) -> tuple[Array, Array]:
    """(numbers (k,), missing (k,)) of an array of Arrow of this kind, which is not text, or of texts; 0 where missing.

    Raises pyarrow.ArrowInvalid for a text that is not of this kind, and for values of another, such as dates for
    numbers.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    own = kind_of(values.type)
    if own == "text":
        values = _parsed(values.cast(pa.large_string()), kind)
    elif not pa.types.is_null(values.type) and own not in _FITS[kind]:
        raise pa.ArrowInvalid(f"{values.type} is not {_WORDS[kind]}")  # what Arrow would convert has another meaning
    missing = values.is_null().to_numpy(zero_copy_only=False)
    found = _numbers(values, kind)
    if kind == "boolean" and own == "number" and not np.isin(found, (0, 1)).all():
        raise pa.ArrowInvalid("a number is not true or false")
    if found.dtype.kind == "f" and np.isnan(found).any():
        missing = missing | np.isnan(found)
        found = np.where(missing, 0, found)
    return found, missing


def _parsed(texts: Any, kind: Kind) -> Any:
    """Texts as values of a kind, null where they stand for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "number":
        try:
            return texts.cast(pa.float64())
        except pa.ArrowInvalid:  # of blanks, of words, and of what stands for missing values
            pass
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.is_in(texts, pa.array(MISSING, texts.type)), pa.scalar(None, texts.type), texts)
    if kind in ("date", "time"):  # which Arrow reads up to microseconds
        texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    if kind == "date":  # each by itself, since some may have a time zone
        zoned = pc.match_substring_regex(texts, r":.*(Z|[+-]\d\d(:?\d\d)?)$")
        none = pa.scalar(None, texts.type)
        in_utc = pc.if_else(zoned, texts, none).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
        return pc.coalesce(pc.if_else(zoned, none, texts).cast(pa.timestamp("us")), in_utc)
    if kind == "time":  # of the first day, as Arrow casts no text to times of day
        day, space = (pa.scalar(text, texts.type) for text in ("1970-01-01", " "))
        return pc.binary_join_element_wise(day, texts, space).cast(pa.timestamp("us"))
    return texts.cast(pa.float64() if kind == "number" else pa.bool_())


def _numbers(values: Any, kind: Kind) -> Array:
    """Values of a kind as numbers; 0 where one is missing."""
    import pyarrow as pa

    if kind == "date":
        return _microseconds(values, pa.timestamp("us", getattr(values.type, "tz", None))) / _DAY
    if kind == "time":
        to = pa.time64("us") if pa.types.is_time(values.type) else values.type
        return _microseconds(values, pa.duration("us") if pa.types.is_duration(to) else to) / _HOUR
    if pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    filled = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
    found: Array = filled.to_numpy(zero_copy_only=False)
    return found


def _microseconds(values: Any, to: Any) -> Array:
    """Times as microseconds; 0 where one is missing."""
    import pyarrow as pa

    found: Array = values.cast(to, safe=False).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def texts_of(values: Any) -> tuple[Any, Array]:
    """(texts, which of them are missing (k,), as they are null or empty) of an array of Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = values.cast(pa.string())
    return texts, pc.or_kleene(texts.is_null(), pc.equal(texts, "")).to_numpy(zero_copy_only=False)


def codes(values: Any, categories: tuple[str, ...]) -> tuple[Array, Array, Array]:
    """(number of the category (k,), missing (k,), no category (k,)) of texts; the number of the last two is -1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, missing = texts_of(values)
    found = pc.index_in(texts, pa.array(categories, pa.string())).fill_null(-1).to_numpy()
    return found, missing, (found < 0) & ~missing


def characters(values: Any, column: TableColumn) -> tuple[Array, Array, Array]:
    """(numbers of characters (k, length), missing (k,), longer or with other characters (k,)) of texts."""
    import pyarrow.compute as pc

    texts, missing = texts_of(values)
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
    """Which values (k,) of a column are missing, not of its kind, and infinite or of no category."""

    missing: Array
    unread: Array
    strange: Array

    def fault(self, values: Any, column: TableColumn, first: int, kept: Array, *, missing_too: bool) -> Fault | None:
        """The first value that is not of the kind of the column, or else the first other fault of a kept row."""
        bad = self.unread if self.unread.any() else (self.strange | (self.missing & missing_too)) & kept
        if not bad.any():
            return None
        i = int(np.argmax(bad))
        reason: Reason = "unread" if self.unread[i] else "missing" if self.missing[i] else "unknown"
        if reason == "unknown" and not column.of_text:
            reason = "infinite"
        return Fault(reason, _said(values[i].as_py(), column, reason), first + i, int(bad.sum()))


def marks_of(values: Any, column: TableColumn) -> Marks:
    """What cannot be read in an array of Arrow. A slow search, for messages only."""
    import pyarrow as pa

    nothing = np.zeros(len(values), bool)
    if column.of_text:
        read = codes(values, column.categories) if column.kind == "text" else characters(values, column)
        return Marks(read[1], nothing, read[2])
    unread = unread_values(values, column.kind)
    found, missing = np.zeros(len(values)), nothing
    if not unread.all():
        found[~unread], missing[~unread] = numbers(values.filter(pa.array(~unread)), column.kind)
    return Marks(missing, unread, ~np.isfinite(found))


def unread_values(values: Any, kind: Kind) -> Array:
    """Which values of an array of Arrow are not of a kind."""
    import pyarrow as pa

    def fails(part: Any) -> bool:
        try:
            numbers(part, kind)
        except pa.ArrowInvalid:
            return True
        return False

    if not fails(values):
        return np.zeros(len(values), bool)
    own = kind_of(values.type)
    if own != "text" and own not in _FITS[kind]:
        return np.ones(len(values), bool)
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    of_distinct = np.array([fails(coded.dictionary.slice(i, 1)) for i in range(len(coded.dictionary))])
    at = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return of_distinct[at] & coded.is_valid().to_numpy(zero_copy_only=False)


def _said(value: Any, column: TableColumn, reason: Reason) -> str:
    if reason == "unread":
        return f"{value!r}, not {_WORDS[column.kind]}"
    if reason == "infinite":
        return "infinity"
    if reason == "unknown" and column.kind == "characters":
        longer = len(value) > column.length
        what = (
            f"longer than the {column.length} characters" if longer else f"of others than the {len(column.categories)}"
        )
        return f"{value!r:.40}, {what} of the dataset"
    if reason == "unknown":
        return f"{value!r}, none of the {len(column.categories)} categories of the dataset"
    if value is None:
        return "missing"
    if isinstance(value, str) and not value.strip():
        return "empty"
    return "NaN" if value in ("NaN", "nan") or isinstance(value, float) else f"{value!r}, which means a missing value"


@dataclass(frozen=True)
class Labels:
    """The column of labels of a frame: its number, their dtype, and what makes labels (k,) of a part of the column, of
    rows with these numbers (k,)."""

    column: int
    dtype: np.dtype[Any]
    values: Callable[[Any, Array], Array]


@dataclass(frozen=True)
class Frame:
    """The columns of a file.

    columns: their numbers in the file, without labels and row names. names: of all columns of the file. kinds, types:
    what the columns hold, and in the words of the file; the kind is None for what cannot be numbers. read: batches
    (pyarrow.RecordBatch) of the columns of these numbers, in this order; those of a text file are texts.
    from_first_rows: whether kinds are those of the first rows, so that later ones may hold words.
    """

    where: str
    columns: tuple[int, ...]
    names: tuple[str, ...] | None
    kinds: tuple[Kind | None, ...]
    types: tuple[str, ...]
    dtypes: tuple[np.dtype[Any] | None, ...]
    rows: int | None
    labels: Labels | None
    read: Callable[[Mapping[int, Kind]], Iterator[Any]]
    notes: tuple[str, ...] = ()
    text: str | None = None  # the column whose characters are the rows, unless options say otherwise
    from_first_rows: bool = False

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names of the columns that may be features."""
        return None if self.names is None else tuple(self.names[j] for j in self.columns)
