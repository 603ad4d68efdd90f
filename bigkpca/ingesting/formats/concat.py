"""Several files as one source of rows: in order, with the same columns and one type, every value checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.data.stores import is_url, store_of
from bigkpca.errors import Array, DataError, SpecError, check_finite, column_called, names_apart
from bigkpca.ingesting.formats import Column, Table, open_column, open_table

_BY_ORDER = "has no column names; its columns are taken to be in the order of the files that have names"


@dataclass(frozen=True)
class Source:
    """Everything to ingest.

    tables: the files. column: the labels, where they have a file of their own. dtype: to store rows in. identity: what
    identifies all this, JSON-ready. names: of the columns in the order of storage, those of the first file that has
    some; None where no file has. Columns with names are matched by name, others by order.
    """

    tables: tuple[Table, ...]
    column: Column | None
    dtype: np.dtype[Any]
    identity: Mapping[str, Any]
    names: tuple[str, ...] | None

    @classmethod
    def open(
        cls, sources: Sequence[str | os.PathLike[str]], member: str | None, labels: str | None, dtype: str | None
    ) -> Source:
        """Read the headers of all files. Raises SpecError where they do not fit together."""
        paths = [_existing(source) for source in sources]
        if not paths:
            raise SpecError("nothing to ingest: give at least one file")
        labels = labels if labels is None else os.path.expanduser(labels)
        apart = Path(labels) if labels is not None and os.path.isfile(labels) else None
        tables = tuple(open_table(path, member, None if apart else labels) for path in paths)
        first = next((table for table in tables if table.names is not None), None)
        if first is not None and first.names is not None:
            for table in tables:
                _order(table, first.names, first.where)
        _check_alike(tables, cast=dtype is not None)
        identity = {
            "sources": [_identity(path, member) for path in paths],
            "labels": _identity(apart, None) if apart else labels,
            "dtype": None if dtype is None else _storable(dtype).name,
        }
        column = open_column(apart) if apart else None
        names = None if first is None else first.names
        source = cls(tables, column, _storable(dtype or tables[0].dtype), identity, names)
        source.check_labels(column.rows if column else None, source.rows)
        return source

    def named(self, names: tuple[str, ...] | None, where: str) -> Source:
        """The same rows with columns in the order of these names, which belong to `where`; None keeps the order.

        Raises SpecError where they are not the same columns.
        """
        if names is None:
            return self
        for table in self.tables:
            _order(table, names, where)
        return replace(self, names=names)

    @property
    def notes(self) -> list[str]:
        """Remarks for users on how the files are read, each once for all files."""
        files: dict[str, list[str]] = {}
        for table in self.tables:
            by_order = self.names is not None and table.names is None
            for note in (*table.notes, *([_BY_ORDER] if by_order else [])):
                files.setdefault(note, []).append(table.where)
        return [first + (f" and {len(more)} more: " if more else ": ") + note for note, (first, *more) in files.items()]

    @property
    def columns(self) -> int:
        return self.tables[0].columns

    @property
    def label_dtype(self) -> np.dtype[Any] | None:
        return self.column.dtype if self.column else self.tables[0].label_dtype

    @property
    def rows(self) -> int | None:
        """Number of rows of all files; None unless all files state it in advance."""
        known = [table.rows for table in self.tables if table.rows is not None]
        return sum(known) if len(known) == len(self.tables) else None

    def check_labels(self, count: int | None, rows: int | None) -> None:
        """Raise SpecError where a file of labels holds more or fewer of them than there are rows, as far as known."""
        if self.column is not None and None not in (count, rows) and count != rows:
            raise SpecError(
                f"{self.column.where} holds {count} labels for {rows} rows (the first line of a .csv is its "
                "header unless it is a number)"
            )

    def pieces(self) -> Iterator[tuple[Array, Array | None]]:
        """The rows of all files, checked and in one type, with the labels that come with them."""
        for table in self.tables:
            row, order = 0, None if self.names is None else _order(table, self.names, "")
            for X, labels in table.batches:
                check_finite(X, row, table.where, names=table.names)
                if labels is not None:
                    check_finite(labels[:, None], row, f"the labels of {table.where}")
                X = _cast(X, self.dtype, row, table)
                yield X if order is None else X[:, order], labels
                row += len(X)
            if not row:
                raise DataError(f"{table.where} is empty: it holds no rows")

    def column_pieces(self) -> Iterator[Array]:
        """The labels that have a file of their own, checked."""
        if self.column is None:
            return
        row = 0
        for labels in self.column.batches:
            check_finite(labels[:, None], row, f"the labels of {self.column.where}")
            yield labels
            row += len(labels)


def _existing(source: str | os.PathLike[str]) -> Path:
    """The path of an existing file. Raises SpecError for folders, missing files and URLs."""
    if is_url(given := os.fspath(source)):
        store_of(given)  # which refuses URLs that hold secrets
        raise SpecError(f"{given}: files are ingested from local disks only: copy it to one")
    path = Path(source).expanduser()
    if path.is_dir():
        raise SpecError(f"{path} is a folder: give files, and use a Zarr array or group as it is")
    if not path.is_file():
        raise SpecError(f"{path} does not exist")
    return path


def _identity(path: Path, member: str | None) -> dict[str, Any]:
    """What identifies a file: path, size, time of modification, and the array in it."""
    status = path.stat()
    return {
        "path": os.path.abspath(path),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "member": member,
    }


def _storable(dtype: str | np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in native byte order. Raises SpecError unless rows can be stored in it."""
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise SpecError(f"{dtype!r} is not a type of numbers such as 'float32' or 'uint8'") from error
    if found.kind not in "buif" or found.itemsize > 8:
        raise SpecError(f"rows cannot be stored as {found}: choose a real type of at most 8 bytes with --dtype")
    return found


def _order(table: Table, names: tuple[str, ...], where: str) -> list[int] | None:
    """Position of the columns of these names in the table; None where they are in this order, or have no names.

    Raises SpecError unless the table has exactly these columns, which are those of `where`.
    """
    if table.names is None or table.names == names:
        return None
    if set(table.names) != set(names) or len(table.names) != len(names):
        raise SpecError(
            f"{table.where} {names_apart(table.names, names, where)}: columns are found by name, so all files "
            "must have the same names; rename, add or remove columns first"
        )
    at = {name: number for number, name in enumerate(table.names)}
    if len(at) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SpecError(
            f"{table.where} {names_apart(table.names, names, where)}, and {twice!r} is the name of several: give each "
            "column its own name, since columns are found by name"
        )
    return [at[name] for name in names]


def _check_alike(tables: Sequence[Table], *, cast: bool) -> None:
    """Raise SpecError unless all tables have the same width, dtype (without a `cast`) and kind of labels."""
    first = tables[0]
    for table in tables[1:]:
        if table.columns != first.columns:
            raise SpecError(f"{table.where} has {table.columns} columns, {first.where} has {first.columns}")
        if not cast and _storable(table.dtype) != _storable(first.dtype):
            raise SpecError(
                f"{table.where} holds {table.dtype}, {first.where} {first.dtype}: choose one type with --dtype"
            )
        if kind_of(table.label_dtype) != kind_of(first.label_dtype):
            raise SpecError(
                f"the labels of {table.where} are {kind_of(table.label_dtype)}, those of {first.where} "
                f"{kind_of(first.label_dtype)}: they must be of one kind"
            )


def kind_of(labels: np.dtype[Any] | None) -> str:
    """The kind of labels, to compare: text is one kind, whatever its length."""
    if labels is None:
        return "none"
    return "text" if labels.kind == "U" else labels.newbyteorder("=").name


def _cast(X: Array, dtype: np.dtype[Any], first: int, table: Table) -> Array:
    """X in another type. Raises DataError naming the first value that it cannot hold (floats may be rounded)."""
    if X.dtype == dtype:
        return X
    with np.errstate(over="ignore", invalid="ignore"):
        cast = X.astype(dtype)
        lost = ~np.isfinite(cast) if dtype.kind == "f" else cast.astype(X.dtype) != X
    if X.dtype.kind in "ui" and dtype.kind in "ui":
        lost |= (cast < 0) != (X < 0)  # the comparison above misses numbers that wrap around and back
    if lost.any():
        row, column = np.argwhere(lost)[0]
        raise DataError(
            f"{table.where}: row {first + row}, {column_called(column, table.names)} (both counted from 0) is "
            f"{X[row, column]}, which {dtype} cannot hold: choose another --dtype"
        )
    return cast
