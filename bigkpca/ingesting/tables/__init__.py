"""How the columns of a table become columns of numbers: chosen by options and first rows, stored with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from bigkpca.errors import Array, DataError, SpecError, column_called, names_apart, unknown_name
from bigkpca.ingesting.tables.columns import Frame, Kind, TableColumn, characters, codes, numbers

Missing = Literal["refuse", "drop", "mean", "median"]


class Unreadable(Exception):
    """A batch holds a value that the encoding cannot read; which one is searched for afterwards."""


@dataclass(frozen=True)
class Encoding:
    """The columns of a table that are used, in the order of their numbers, and what becomes of missing values.

    left_out: names of the other columns of the files; None where these may have any. named: whether the columns have
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
    def width(self) -> int:
        return sum(len(column.names) for column in self.columns)

    @property
    def says_nothing(self) -> bool:
        """Whether all columns are numbers, used as they are, so that their names say everything."""
        return self.plain and all(column.kind == "number" for column in self.columns)

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers or truth values, used as they are."""
        as_they_are = all(column.kind in ("number", "boolean") and not column.fills for column in self.columns)
        return as_they_are and self.missing == "refuse" and self.left_out == ()

    def places(self, frame: Frame, whose: str) -> dict[int, TableColumn]:
        """The columns by their numbers in a file. Raises SpecError where the file has other columns than `whose`."""
        if frame.names is None or not self.named:
            if self.left_out != ():
                raise SpecError(f"{frame.where} has no column names, by which columns could be chosen")
            if len(frame.columns) != len(self.columns):
                raise SpecError(f"{frame.where} has {len(frame.columns)} columns, {whose} has {len(self.columns)}")
            return self._fitting(frame, dict(zip(frame.columns, self.columns, strict=True)))
        here = [frame.names[j] for j in frame.columns]
        wanted = [column.name for column in self.columns]
        expected = [*wanted, *(self.left_out or ())]
        if twice := next((name for name in wanted if name and here.count(name) > 1), None):
            at = [str(j) for j in frame.columns if frame.names[j] == twice]
            raise SpecError(
                f"{frame.where}: columns {' and '.join(at)} (counted from 0) are called {twice!r}: give each a name "
                "of its own, since columns are found by name, or leave all of this name out with --drop"
            )
        found = here if self.left_out is not None else [name for name in here if name in wanted]
        if sorted(found) != sorted(expected):
            raise SpecError(
                f"{frame.where} {names_apart(found, expected, whose)}: columns are found by name, so all files must "
                "have the same names; rename, add or remove columns first"
            )
        if all(here.count(name) == 1 for name in wanted):
            number = dict(zip(here, frame.columns, strict=True))
            return self._fitting(frame, {number[column.name]: column for column in self.columns})
        if self.left_out or here != expected:
            raise SpecError(
                f"{frame.where} {names_apart(here, expected, whose)}, and several have no name: give each column its "
                "own name, since columns are found by name"
            )
        return self._fitting(frame, dict(zip(frame.columns, self.columns, strict=True)))

    def _fitting(self, frame: Frame, places: dict[int, TableColumn]) -> dict[int, TableColumn]:
        """The places. Raises DataError where a column of the file has a type that cannot be numbers or text."""
        for j, column in places.items():
            if frame.kinds[frame.columns.index(j)] is None:
                type_ = frame.types[frame.columns.index(j)]
                raise DataError(
                    f"{frame.where}: column {j} ({column.name!r}) is of type {type_}, not of kind {column.kind}"
                )
        return places

    def dtype(self, frame: Frame, places: Mapping[int, TableColumn]) -> np.dtype[Any]:
        """The common dtype of the columns of numbers of a file."""
        own = dict(zip(frame.columns, frame.dtypes, strict=True))
        found = []
        for j, column in places.items():
            dtype: np.dtype[Any] = np.dtype(np.float64)
            if column.of_text:
                dtype = np.min_scalar_type(len(column.categories) if column.kind == "characters" else 1)
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
    """(numbers (k, columns of numbers), missing (k,), strange (k,)) of an array of Arrow.

    Missing ones are filled if the column can. Strange are infinite numbers, and texts with a category or characters
    that the column does not have. Raises pyarrow.ArrowInvalid where a value is not of the kind of the column.
    """
    if column.kind == "text":
        found, missing, strange = codes(values, column.categories)
        X = (found[:, None] == np.arange(len(column.categories))).astype(np.uint8)
    elif column.kind == "characters":
        X, missing, strange = characters(values, column)
    else:
        found, missing = numbers(values, column.kind)
        strange = ~np.isfinite(found)
        X = found[:, None]
    if column.fills and missing.any():
        X = np.where(missing[:, None], column.fills, X)
    return X, missing, strange


@dataclass(frozen=True)
class Choice:
    """Options about columns: only these, all but these, what becomes of missing values and of text, or the column of
    text whose characters are the rows."""

    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    missing: Missing = "refuse"
    categories: Literal["one-hot"] | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if self.columns is not None and self.drop:
            raise SpecError("columns names the columns to keep and drop those to leave out: choose one")
        if self.text is not None and (self.columns is not None or self.drop or self.categories):
            raise SpecError("text makes rows of the characters of one column: leave columns, drop and categories out")
        if self.text is not None and self.missing in ("mean", "median"):
            raise SpecError(f"missing texts have no {self.missing}: leave their rows out with missing='drop'")
        for what, value, known in (
            ("missing", self.missing, get_args(Missing)),
            ("categories", self.categories, ("one-hot", None)),
        ):
            if value not in known:
                raise unknown_name(what, str(value), [name for name in known if name])

    @property
    def identity(self) -> dict[str, Any]:
        """The options that are not the default, JSON-ready: they are part of what identifies a dataset."""
        own = {
            "columns": None if self.columns is None else list(self.columns),
            "drop": list(self.drop) or None,
            "missing": None if self.missing == "refuse" else self.missing,
            "categories": self.categories,
            "text": self.text,
        }
        return {key: value for key, value in own.items() if value is not None}


def chosen(frames: Sequence[Frame], choice: Choice, names: tuple[str, ...] | None) -> Encoding:
    """The encoding of files by the options; its categories and fills have to be learnt where there are some.

    names: of the columns, where these are known already; else those of the first file that has names. Raises SpecError
    for a name that no column has, DataError where a column has a type that cannot be numbers.
    """
    first = next((frame for frame in frames if frame.names is not None), frames[0])
    known = names if names is not None else first.column_names
    if first.text is not None and choice == Choice(missing=choice.missing):
        choice = replace(choice, text=first.text)
    if known is None:
        if choice.columns is not None or choice.drop or choice.text is not None:
            raise SpecError(f"{first.where} has no column names, by which columns could be chosen")
        kinds = _kinds(frames, [str(k) for k in range(len(first.columns))], by_name=False)
        return Encoding(tuple(_column(name, kind, choice) for name, kind in kinds), choice.missing, (), named=False)
    for name in (*(choice.columns or ()), *choice.drop, *([] if choice.text is None else [choice.text])):
        if name not in known:
            raise unknown_name(f"column of {first.where}", name, known)
    if choice.text is not None:
        return Encoding((TableColumn(choice.text, "characters"),), choice.missing, None)
    kept = choice.columns or tuple(name for name in known if name not in choice.drop)
    if not kept:
        raise SpecError(f"no column of {first.where} is left")
    left_out = None if choice.columns is not None else tuple(name for name in known if name in choice.drop)
    columns = tuple(_column(name, kind, choice) for name, kind in _kinds(frames, kept, by_name=True))
    return Encoding(columns, choice.missing, left_out)


def _kinds(frames: Sequence[Frame], names: Sequence[str], *, by_name: bool) -> list[tuple[str, Kind]]:
    """What each of the columns holds: text where one file has text, else what the first file has. Raises DataError."""
    found: dict[str, list[Kind]] = {name: [] for name in names}
    unfit = []
    for frame in frames:
        own = frame.column_names if by_name and frame.column_names is not None else names
        for name, number, kind, type_ in zip(own, frame.columns, frame.kinds, frame.types, strict=False):
            if name in found and kind is None:
                unfit.append(f"{frame.where}: {column_called(number, frame.names)} is of type {type_}")
            elif name in found and kind is not None and type_ != "null":
                found[name].append(kind)
    if unfit:
        raise DataError("; ".join(unfit) + ": neither numbers, truth values, times nor text; leave it out with --drop")
    return [(name, "text" if "text" in found[name] else next(iter(found[name]), "number")) for name in names]


def _column(name: str, kind: Kind, choice: Choice) -> TableColumn:
    """A column of a kind. Text that is not to become categories is read as numbers, which some files keep as text."""
    return TableColumn(name, "number" if kind == "text" and choice.categories is None else kind)
