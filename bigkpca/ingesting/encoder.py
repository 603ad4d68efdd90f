"""Columns of a table as numbers: what each Arrow type becomes, learned once, stored with the dataset, and applied to
rows that are added later.

| kind | of Arrow types | becomes |
|---|---|---|
| number | integers, floats, decimals | itself |
| boolean | bool | 0 and 1 |
| date | dates, timestamps | days since 1970-01-01, in UTC if it has a time zone |
| category | anything that `categorical` names | one column of 0 and 1 for each category |
| characters | the text that `text` names | one column for each place: the number of the character, 0 behind the last |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bigkpca.errors import Array, DataError, SpecError, unknown_name

Kind = Literal["number", "boolean", "date", "category", "characters"]
Missing = Literal["refuse", "mean"]
OF_TEXT = ("category", "characters")
OTHER = "(other)"
"""The category of all texts that are not among the most frequent."""
MOST_CATEGORIES = 1000
_MOST_DISTINCT = 100_000  # of which the most frequent are chosen; they are held in memory
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_CLEAN = "or clean the table first, e.g. in DuckDB: COPY (SELECT ... FROM 'table.csv') TO 'clean.parquet'"


@dataclass(frozen=True)
class ColumnOptions:
    """How the columns of tables become numbers: see `ingest`."""

    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    max_categories: int | None = None
    missing: Missing = "refuse"
    text: str | None = None

    def __post_init__(self) -> None:
        if self.columns and self.drop:
            raise SpecError("columns lists the columns to keep, and drop those to leave out: use only one of them")
        if self.missing not in ("refuse", "mean"):
            raise unknown_name("missing", self.missing, ["refuse", "mean"])
        if self.max_categories is not None and (self.max_categories < 1 or not self.categorical):
            raise SpecError(
                f"max_categories={self.max_categories} limits categories: give at least 1, and name their columns with "
                "categorical"
            )
        if self.text is not None and (self.columns or self.drop or self.categorical):
            raise SpecError("text makes rows of the characters of one column: leave out columns, drop and categorical")

    @property
    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults, JSON-ready."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value != getattr(ColumnOptions, name)
        }


class _Unusable(Exception):
    """A value without a number: its place in the batch, what it is, and what to do."""

    def fault(self, where: str, first: int, name: str) -> _Fault:
        """The fault of a column of this name, in a batch whose first row has this number in `where`."""
        place, what, advice = self.args
        return f"{where}: ", f"row {first + place:,} (counted from 0) of column {name!r} is {what}", advice


_Fault = tuple[str, str, str]
"""The place of a fault, which is empty for a whole column, what is wrong there, and what to do."""


def _refused(faults: Iterable[_Fault]) -> DataError:
    """The error that names all faults, those with the same remedy together."""
    together: dict[tuple[str, str], list[str]] = {}
    for where, what, advice in faults:
        together.setdefault((where, advice), []).append(what)
    said = (
        f"{where}{', '.join(what[:8])}{' and more' * (len(what) > 8)}: {advice}"
        for (where, advice), what in together.items()
    )
    return DataError("; ".join(said))


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes columns of numbers.

    arrow: its Arrow type. categories: the texts that each have a column, or the characters, numbered from 1. length: of
    the longest text. fills: what replaces a missing value in each column of numbers; empty if missing values are
    refused. missing: the number of such values in the rows from which the fills were learned.
    """

    name: str
    kind: Kind
    arrow: str = "double"
    categories: tuple[str, ...] = ()
    length: int = 1
    fills: tuple[float, ...] = ()
    missing: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns of numbers."""
        if self.kind == "category":
            return tuple(f"{self.name}={each}" for each in self.categories)
        if self.kind == "characters":
            return tuple(f"{self.name}[{place}]" for place in range(self.length))
        return (self.name,)

    @property
    def width(self) -> int:
        """The number of its columns of numbers."""
        return len(self.categories) if self.kind == "category" else self.length

    @property
    def unit(self) -> str | None:
        """The unit of its numbers, if it differs from that of the table."""
        return "days since 1970-01-01" if self.kind == "date" else None

    @property
    def as_words(self) -> str:
        """What it becomes, in words."""
        if self.kind in OF_TEXT:
            return f"{self.width:,} columns" + " of 0 and 1" * (self.kind == "category")
        return self.unit or ("0 and 1" if self.kind == "boolean" else "numbers")

    def encode(self, values: Any) -> Array:
        """The numbers (k, columns of numbers) of an Arrow array."""
        numbers, missing = _ENCODERS[self.kind](values, self)
        if not self.fills:
            _refuse_missing(missing)
        _refuse_infinite(numbers)
        return np.where(missing[:, None], self.fills, numbers) if missing.any() else numbers


def _refuse_missing(missing: Array) -> None:
    if missing.any():
        more = f", as are {missing.sum() - 1:,} values after it" if missing.sum() > 1 else ""
        advice = f"use missing='mean' (--missing mean), leave the column out with drop (--drop), {_CLEAN}"
        raise _Unusable(int(np.argmax(missing)), f"missing{more}", advice)


def _refuse_infinite(numbers: Array) -> None:
    if numbers.dtype.kind == "f" and not (finite := np.isfinite(numbers).all(axis=1)).all():
        raise _Unusable(int(np.argmin(finite)), "infinite", f"remove its row, {_CLEAN}")


def kind_of(arrow: Any) -> Kind | None:
    """The kind of an Arrow type that no option names; None for text and everything else without an order."""
    from pyarrow import types

    if types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow) or types.is_null(arrow):
        return "number"
    if types.is_boolean(arrow):
        return "boolean"
    return "date" if types.is_date(arrow) or types.is_timestamp(arrow) else None


def dtype_of(column: Column, arrow: Any) -> np.dtype[Any]:
    """The dtype of the numbers of a column of this Arrow type."""
    import pyarrow as pa

    found = column.encode(pa.nulls(0, arrow)).dtype
    return np.result_type(found, np.float32) if column.fills else found


def texts_of(values: Any) -> Any:
    """An Arrow array as texts; whole floats are written as integers, which pandas makes floats where some are
    missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        words = values.dictionary.cast(pa.large_string())
        values = pa.DictionaryArray.from_arrays(values.indices, words).dictionary_decode()
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        with suppress(pa.ArrowInvalid):
            values = values.cast(pa.int64())
    return values.cast(pa.large_string())


# Functions that encode an Arrow array as numbers (k, columns of numbers), and say which values are missing (k,).


def _missing(values: Any) -> Array:
    found: Array = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return found


def _numbers(values: Any, column: Column) -> tuple[Array, Array]:
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    elif pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    missing = _missing(values)
    found: Array = values.fill_null(0).to_numpy(zero_copy_only=False)
    found = np.where(missing, found.dtype.type(0), found) if missing.any() else found
    return found[:, None], missing


def _days(values: Any, column: Column) -> tuple[Array, Array]:
    import pyarrow as pa

    of_days = pa.types.is_date32(values.type)
    a_day = 1 if of_days else _DAY * _UNITS["ms" if pa.types.is_date64(values.type) else values.type.unit]
    whole = values.cast(pa.int32() if of_days else pa.int64())
    found: Array = whole.fill_null(0).to_numpy(zero_copy_only=False)
    return found[:, None] / a_day, _missing(values)


def _categories(values: Any, column: Column) -> tuple[Array, Array]:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = texts_of(values)
    found = pc.index_in(texts, pa.array(column.categories, texts.type)).fill_null(-1).to_numpy(zero_copy_only=False)
    missing = _missing(texts)
    if column.categories[-1:] == (OTHER,):
        found = np.where((found < 0) & ~missing, len(column.categories) - 1, found)
    if (unknown := (found < 0) & ~missing).any():
        place = int(np.argmax(unknown))
        what = f"{texts[place].as_py()!r:.60}, not one of the {len(column.categories):,} categories of the dataset"
        advice = "remove its row, or make a new dataset with max_categories, where it is '(other)'"
        raise _Unusable(place, what, advice)
    numbers = np.zeros((len(found), len(column.categories)), np.uint8)
    numbers[np.flatnonzero(found >= 0), found[found >= 0]] = 1
    return numbers, missing


def _characters(values: Any, column: Column) -> tuple[Array, Array]:
    import pyarrow.compute as pc

    texts = texts_of(values)
    cut = pc.utf8_slice_codeunits(texts.fill_null(""), 0, column.length)
    padded = np.array(cut.to_pylist(), dtype=f"<U{column.length}")
    points = padded.view(np.uint32).reshape(len(padded), column.length)
    known = np.array([0, *map(ord, column.categories)], np.uint32)
    codes = np.minimum(np.searchsorted(known, points), len(known) - 1)
    longer = pc.utf8_length(texts).fill_null(0).to_numpy(zero_copy_only=False) > column.length
    if (strange := (known[codes] != points).any(axis=1) | longer).any():
        place = int(np.argmax(strange))
        seen = f"{column.length} characters of the dataset"
        what = f"{texts[place].as_py()!r:.40}, longer than the {seen}, or with others"
        raise _Unusable(place, what, "remove its row, or make a new dataset")
    return codes.astype(np.min_scalar_type(len(column.categories))), _missing(texts)


_ENCODERS = {
    "number": _numbers,
    "boolean": _numbers,
    "date": _days,
    "category": _categories,
    "characters": _characters,
}


@dataclass(frozen=True)
class Encoder:
    """The columns of a table, and the dtype of their numbers."""

    columns: tuple[Column, ...]
    dtype: np.dtype[Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of numbers."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def width(self) -> int:
        """Their number."""
        return sum(column.width for column in self.columns)

    def encode(self, batch: Any, where: str, first: int) -> Array:
        """The numbers of a batch, (k, columns of numbers), whose first row has this number in `where`. Raises DataError
        that names the first unusable value of each column."""
        found, at = np.empty((len(batch), self.width), self.dtype), 0
        faults = []
        for column in self.columns:
            values = batch.column(column.name)
            if column.kind not in OF_TEXT and kind_of(values.type) != column.kind:
                what = f"column {column.name!r} is of type {values.type}, and of kind {column.kind} in the dataset"
                faults.append((f"{where}: ", what, "convert it first"))
                continue
            try:
                numbers = column.encode(values)
            except _Unusable as error:
                faults.append(error.fault(where, first, column.name))
                continue
            found[:, at : at + column.width] = cast(numbers, self.dtype, first, where, column.name)
            at += column.width
        if faults:
            raise _refused(faults)
        return found

    def to_json(self) -> dict[str, Any]:
        """The encoder as a dataset stores it."""
        return {"dtype": self.dtype.name, "columns": [dict(vars(column)) for column in self.columns]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Encoder:
        """The encoder that `to_json` described."""
        columns = [
            Column(**{**each, "categories": tuple(each["categories"]), "fills": tuple(each["fills"])})
            for each in values["columns"]
        ]
        return cls(tuple(columns), np.dtype(values["dtype"]))


def cast(X: Array, dtype: np.dtype[Any], first: int, where: str, name: str | None = None) -> Array:
    """X, of a column of this name if it is from a table, in another dtype. Raises DataError for the first value that
    the dtype cannot hold; floats are rounded to shorter ones."""
    if np.can_cast(X.dtype, dtype) and not (X.dtype.kind in "ui" and X.dtype.itemsize == 8 and dtype.kind == "f"):
        return X.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        found = X.astype(dtype)
    if X.dtype.kind == dtype.kind == "f":
        lost = np.isinf(found)
    else:
        least, most = _whole_numbers_of(dtype)
        wide = X.astype(np.result_type(X, np.float64), copy=False) if X.dtype.kind == "f" else X
        lost = (wide < least) | (wide >= most + 1)  # exactly, since most + 1 is a power of two, or 2
        if X.dtype.kind == "f":
            lost |= wide != np.floor(wide)
    if lost.any():
        row, column = np.argwhere(lost)[0]
        raise DataError(
            f"{where}: row {first + row} of column {column if name is None else repr(name)} (counted from 0) is "
            f"{X[row, column]}, which {dtype} cannot hold: choose another dtype (--dtype)"
        )
    return found


def _whole_numbers_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the largest of the whole numbers that a dtype holds without a gap."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "f":
        most = 2 ** (np.finfo(dtype).nmant + 1)
        return -most, most
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


class _Learner:
    """What one pass over a column finds: counts of its texts, its characters, or its sum, and why it is unusable."""

    def __init__(self, column: Column, options: ColumnOptions) -> None:
        self.column, self._fills, self._most = column, options.missing == "mean", options.max_categories
        self._counts: Counter[str] = Counter()
        self._longest = self._rows = self._missing = 0
        self._total = 0.0
        self._unusable: _Fault | None = None  # the first value without a number

    def see(self, values: Any, where: str, first: int) -> None:
        """Learn from an Arrow array, whose first row has this number in `where`."""
        try:
            missing = self._counted(texts_of(values)) if self.column.kind in OF_TEXT else self._added(values)
            self._missing += int(missing.sum())
            if not self._fills:
                _refuse_missing(missing)
        except _Unusable as error:
            self._unusable = self._unusable or error.fault(where, first, self.column.name)

    def _added(self, values: Any) -> Array:
        """Add numbers to the sum, and return which ones are missing."""
        numbers, missing = _ENCODERS[self.column.kind](values, self.column)
        self._rows += int((~missing).sum())
        _refuse_infinite(numbers)
        self._total += float(numbers[~missing].sum(dtype=np.float64))
        return missing

    def _counted(self, texts: Any) -> Array:
        """Count texts or their characters, and return which texts are missing."""
        import pyarrow.compute as pc

        missing, texts = _missing(texts), texts.drop_null()
        self._rows += len(texts)
        if self.column.kind == "characters":
            self._longest = max(self._longest, pc.max(pc.utf8_length(texts)).as_py() or 0)
            self._counts.update(dict.fromkeys("".join(texts.unique().to_pylist()), 1))
            return missing
        for each in texts.value_counts():
            self._counts[each["values"].as_py()] += each["counts"].as_py()
        return missing

    @property
    def overflows(self) -> bool:
        """Whether it has more different texts than memory should hold."""
        return len(self._counts) > _MOST_DISTINCT

    @property
    def faults(self) -> list[_Fault]:
        """Why the column cannot be used."""
        found, named = [self._unusable] if self._unusable else [], f"column {self.column.name!r} has"
        if not (self._counts if self.column.kind in OF_TEXT else self._rows):
            return [("", f"{named} only missing values", "leave it out with drop (--drop)")]
        if self.overflows:
            advice = "Leave it out with drop (--drop), or keep it beside the rows with labels (--labels)"
            many = f"{named} more than {_MOST_DISTINCT:,} different values"
            return [("", many, f"is it an identifier? {advice}"), *found]
        if self.column.kind == "category" and self._most is None and len(self._counts) > MOST_CATEGORIES:
            advice = "keep the most frequent as categories with max_categories (--max-categories)"
            many = f"{named} {len(self._counts):,} different values"
            return [("", many, f"{advice}, or leave it out with drop (--drop)"), *found]
        return found

    def learned(self) -> Column:
        """The column with what was seen."""
        if self.column.kind == "characters":
            return replace(self.column, categories=tuple(sorted(self._counts)), length=self._longest)
        if self.column.kind != "category":
            mean = (self._total / self._rows,) if self._fills else ()
            return replace(self.column, fills=mean, missing=self._missing)
        texts = self._counts.keys() - ({OTHER} if self._most is not None else set())
        frequent = sorted(texts, key=lambda text: (-self._counts[text], text))[: self._most]
        counts = {text: self._counts[text] for text in sorted(frequent)}
        if self._most is not None:
            counts[OTHER] = self._rows - sum(counts.values())
        shares = tuple(n / self._rows for n in counts.values()) if self._fills else ()
        return replace(self.column, categories=tuple(counts), fills=shares, missing=self._missing)


def learned(
    columns: Iterable[Column],
    batches: Iterable[tuple[str, int, Any]],
    options: ColumnOptions,
    advance: Callable[[int], None],
) -> tuple[Column, ...]:
    """The columns with their categories, characters and means: one pass over batches, each with its file and the number
    of its first row there. Raises DataError that names all columns that cannot be used."""
    learners = [_Learner(column, options) for column in columns]
    for where, first, batch in batches:
        for each in learners:
            each.see(batch.column(each.column.name), where, first)
        if any(each.overflows for each in learners):
            break
        advance(len(batch))
    if faults := [fault for each in learners for fault in each.faults]:
        raise _refused(faults)
    return tuple(each.learned() for each in learners)
