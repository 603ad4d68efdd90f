"""Several files as one: rows in order, of one width and one type, every value checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.errors import Array, DataError, SpecError, check_finite
from bigkpca.formats import Column, Table, open_column, open_table


@dataclass(frozen=True)
class Source:
    """All that is to be ingested: the files as tables, the labels if they have a file of their own, the type
    to store rows in, and what identifies all this, JSON-ready."""

    tables: tuple[Table, ...]
    column: Column | None
    dtype: np.dtype[Any]
    identity: Mapping[str, Any]

    @classmethod
    def open(
        cls, sources: Sequence[str | os.PathLike[str]], member: str | None, labels: str | None, dtype: str | None
    ) -> Source:
        """Look at the headers of all files. Raises SpecError where they do not fit together."""
        paths = [_existing(source) for source in sources]
        if not paths:
            raise SpecError("nothing to ingest: name at least one file")
        apart = Path(labels) if labels is not None and os.path.isfile(labels) else None
        tables = tuple(open_table(path, member, None if apart else labels) for path in paths)
        _check_alike(tables, cast=dtype is not None)
        identity = {
            "sources": [_identity(path, member) for path in paths],
            "labels": _identity(apart, None) if apart else labels,
            "dtype": None if dtype is None else _storable(dtype).name,
        }
        column = open_column(apart) if apart else None
        source = cls(tables, column, _storable(dtype or tables[0].dtype), identity)
        source.check_labels(column.rows if column else None, source.rows)
        return source

    @property
    def columns(self) -> int:
        return self.tables[0].columns

    @property
    def label_dtype(self) -> np.dtype[Any] | None:
        return self.column.dtype if self.column else self.tables[0].label_dtype

    @property
    def rows(self) -> int | None:
        """Rows of all sources, None unless all of them say beforehand."""
        known = [table.rows for table in self.tables if table.rows is not None]
        return sum(known) if len(known) == len(self.tables) else None

    def check_labels(self, count: int | None, rows: int | None) -> None:
        """Raise SpecError if a file of labels has more or fewer of them than there are rows, as far as known."""
        if self.column is not None and None not in (count, rows) and count != rows:
            raise SpecError(
                f"{self.column.where} holds {count} labels for {rows} rows (the first line of a .csv is its "
                "header unless it is a number)"
            )

    def pieces(self) -> Iterator[tuple[Array, Array | None]]:
        """The rows of all files, checked and in one type, with the labels that come with them."""
        for table in self.tables:
            row = 0
            for X, labels in table.batches:
                check_finite(X, row, table.where)
                if labels is not None:
                    check_finite(labels[:, None], row, f"the labels of {table.where}")
                yield _cast(X, self.dtype, row, table.where), labels
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
    path = Path(source)
    if path.is_dir():
        raise SpecError(f"{path} is a folder: give files, and use a Zarr array or group as it is")
    if not path.is_file():
        raise SpecError(f"{path} does not exist")
    return path


def _identity(path: Path, member: str | None) -> dict[str, Any]:
    status = path.stat()
    return {
        "path": os.path.abspath(path),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "member": member,
    }


def _storable(dtype: str | np.dtype[Any]) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise SpecError(f"{dtype!r} is not a type of numbers such as 'float32' or 'uint8'") from error
    if found.kind not in "buif" or found.itemsize > 8:
        raise SpecError(f"rows cannot be stored as {found}: choose a real type of at most 8 bytes with --dtype")
    return found


def _check_alike(tables: Sequence[Table], *, cast: bool) -> None:
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
    """What labels are, in words that can be compared: text has one kind, whatever its length."""
    if labels is None:
        return "none"
    return "text" if labels.kind == "U" else labels.newbyteorder("=").name


def _cast(X: Array, dtype: np.dtype[Any], first: int, where: str) -> Array:
    """X in another type; DataError naming the first value that it cannot hold (rounded, for floats)."""
    if X.dtype == dtype:
        return X
    with np.errstate(over="ignore", invalid="ignore"):
        cast = X.astype(dtype)
        lost = ~np.isfinite(cast) if dtype.kind == "f" else cast.astype(X.dtype) != X
    if X.dtype.kind in "ui" and dtype.kind in "ui":
        lost |= (cast < 0) != (X < 0)  # a wrapped number wraps back
    if lost.any():
        row, column = np.argwhere(lost)[0]
        raise DataError(
            f"{where}: row {first + row}, column {column} (both counted from 0) is {X[row, column]}, which {dtype} "
            "cannot hold: choose another --dtype"
        )
    return cast
