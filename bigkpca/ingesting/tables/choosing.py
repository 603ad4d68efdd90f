"""Which columns of a table become columns of numbers, and how: by the options of a user and the first rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from bigkpca.errors import DataError, SpecError, column_called, unknown_name
from bigkpca.ingesting.tables.columns import Kind, TableColumn
from bigkpca.ingesting.tables.encoding import Encoding, Missing
from bigkpca.ingesting.tables.frame import Frame


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

    names: of the columns, where these are known already; else those of the first file that has names. Kinds are those
    of the first file; a column that is text in any of them is text.

    Raises SpecError for a name that no column has, DataError where a column has a type that cannot be numbers.
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
    """What each of the columns holds: text where one file says so, else what the first file says.

    Raises DataError naming the columns that hold what cannot be numbers.
    """
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
