"""Several files as one source of rows: in order, with the same columns and dtype, and every value checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.data.beside import BESIDE, Beside
from bigkpca.data.stores import is_path, is_url, store_of
from bigkpca.errors import Array, SpecError, changed, check_finite
from bigkpca.execution.progress import Progress
from bigkpca.ingesting.beside import Names, check_values
from bigkpca.ingesting.columns import ColumnOptions, Encoding, chosen
from bigkpca.ingesting.formats import Column, Table, TableFrame, open_column, open_rows_of
from bigkpca.ingesting.formats.base import USUAL, Allowed, Batches, cast, refuse_names
from bigkpca.ingesting.formats.folders import Key, files_in, keys_of, with_keys
from bigkpca.ingesting.formats.in_memory import kind_of_table, table_in_memory
from bigkpca.ingesting.notation import Notation
from bigkpca.ingesting.tables import MissingCounts, learnt, no_rows, rows_of

_BY_ORDER = "has no column names; assuming that its columns have the order of the files with names"


@dataclass(frozen=True)
class Files:
    """Everything to ingest, with headers already read.

    separate: the values beside the rows that are in separate files. dtype: of the stored rows, None for that of the
    source rows. identity: identifies all of this, JSON-ready.
    """

    files: tuple[Table | TableFrame, ...]
    separate: Mapping[Beside, Column]
    choice: ColumnOptions
    dtype: np.dtype[Any] | None
    identity: Mapping[str, Any]

    @classmethod
    def open(
        cls,
        sources: Sequence[Any],
        member: str | None,
        beside: Mapping[Beside, Any],
        dtype: str | None,
        choice: ColumnOptions,
        allowed: Allowed = USUAL,
        encoding: str | None = None,
        notation: Notation | None = None,
        progress: Progress = Progress(),
    ) -> Files:
        """Read the headers of files, and tables that are not files. beside: the column, array or file of the values
        beside the rows, if there is one.

        encoding: of text files. notation: of text files, if it is not in `choice`. Raises SpecError, DataError for a
        table that is empty or not Arrow's, and MemoryLimitError for too many columns.
        """
        if not sources:
            raise SpecError("nothing to ingest: give at least one file")
        for kind, name in beside.items():
            if not (name is None or isinstance(name, str | os.PathLike)):
                raise SpecError(
                    f"{kind.option} is of type {type(name).__name__}: name a column, or give the path of a file"
                )
        given = {kind: os.path.expanduser(name) for kind, name in beside.items() if name is not None}
        apart = {kind: Path(name) for kind, name in given.items() if os.path.isfile(name)}
        own = {kind: name for kind, name in given.items() if kind not in apart}
        if len({*own.values()}) < len(own):
            raise SpecError(f"{' and '.join(kind.option for kind in own)} name the same column: name different ones")
        opening = _Opening(member, own, allowed, encoding, notation or choice.notation, progress)
        found = [each for number in range(len(sources)) for each in opening.of(sources, number)]
        files = tuple(rows for rows, _ in found)
        of_text = any(isinstance(each, TableFrame) and each.from_first_rows for each in files)
        if encoding is not None and not of_text and not apart:
            raise SpecError(f"encoding={encoding!r} is for CSV files, and {files[0].where} is not one: leave it out")
        if choice != ColumnOptions() and (array := next((each for each in files if isinstance(each, Table)), None)):
            raise SpecError(f"{array.where} is an array of numbers: column options work only with CSV and Parquet")
        if choice.missing == "drop" and apart:
            kind, path = next(iter(apart.items()))
            raise SpecError(
                f"{path} has a {kind.noun} for each row, so rows cannot be dropped: use another value of missing"
            )
        stored = None if dtype is None else _storable(dtype)
        identity = {
            "sources": [identity for _, identity in found],
            **{
                kind.option: _identity(apart[kind], None, encoding) if kind in apart else given.get(kind)
                for kind in BESIDE
            },
            "dtype": None if stored is None else stored.name,
            "table": choice.identity or None,
        }
        separate = {kind: open_column(path, kind, allowed, encoding, opening.notation) for kind, path in apart.items()}
        return cls(files, separate, choice, stored, identity)

    def check_unchanged(self) -> None:
        """Raise IncompleteError if a file is no longer the one whose header was read."""
        apart = [found for kind in BESIDE if isinstance(found := self.identity[kind.option], dict)]
        for each in [*self.identity["sources"], *apart]:
            if each["path"] is None:
                continue
            path = Path(each["path"])
            if not path.exists() or each | _identity(path, each["member"], each.get("encoding")) != each:
                raise changed(str(path))

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns of the first file that has some."""
        frames = (each for each in self.files if isinstance(each, TableFrame))
        return next((frame.column_names for frame in frames if frame.column_names is not None), None)

    def source(
        self, encoding: Encoding | None, names: tuple[str, ...] | None, whose: str | None, progress: Progress
    ) -> Source:
        """The rows of all files, with the encoding of a dataset or, without one, a new encoding.

        names: of the columns of a dataset. whose: the dataset, in messages. One pass over the files if something has to
        be learnt from them.
        """
        frames = [each for each in self.files if isinstance(each, TableFrame)]
        counted = 0
        of_dataset = whose is not None
        if frames and encoding is None:
            whose = whose or next((frame for frame in frames if frame.names is not None), frames[0]).where
            own = chosen(frames, self.choice, names)
            given = self.choice.notation.date_format
            if given and not any(column.notation.date_format for column in own.columns):
                fits = any(frame.formatted for frame in frames)
                because = (
                    "other options name the columns that have it" if fits else "no CSV file has it in its first rows"
                )
                progress.note(
                    f"no column is read as dates of the format {given!r}, since {because}; to read a column in it, use "
                    f"--date-format 'COLUMN={given}'"
                )
            counting = _Counting(progress)
            encoding = learnt(frames, own, whose, counting, self.choice)
            counted = counting.rows if encoding.missing != "drop" else 0
        counts = MissingCounts()
        tables = []
        for each in self.files:
            if isinstance(each, TableFrame):
                assert encoding is not None
                each = rows_of(
                    each, encoding, whose or "", counts, self.dtype, progress, None if of_dataset else self.choice
                )
            tables.append(each)
        first = tables[0]
        for table in tables[1:]:
            if table.columns != first.columns:
                raise SpecError(f"{table.where} has {table.columns} columns, but {first.where} has {first.columns}")
            if self.dtype is None and _storable(table.dtype) != _storable(first.dtype):
                raise SpecError(
                    f"{table.where} holds {table.dtype}, but {first.where} {first.dtype}: choose one type with --dtype"
                )
            for kind in first.beside:
                here, there = (kind_of(each.beside[kind]) for each in (table, first))
                if here != there:
                    raise SpecError(
                        f"the {kind.noun}s of {table.where} are {here}, but those of {first.where} {there}: use one "
                        "kind"
                    )
        dtype = self.dtype or _storable(first.dtype)
        paths = tuple(each["path"] or each["table"] for each in self.identity["sources"])
        source = Source(tuple(tables), self.separate, dtype, encoding if frames else None, counts, paths, counted)
        source.check_counts({kind: column.rows for kind, column in self.separate.items()}, source.rows)
        return source


@dataclass(frozen=True)
class Source:
    """The rows of all files as numbers.

    separate: the values beside the rows that are in separate files. encoding: of the columns of tables, None for
    arrays. counts: of missing values, filled in while the rows are read. counted: number of rows of tables that an
    earlier pass found, or 0.
    """

    tables: tuple[Table, ...]
    separate: Mapping[Beside, Column]
    dtype: np.dtype[Any]
    encoding: Encoding | None
    counts: MissingCounts
    paths: tuple[str, ...]
    counted: int = 0

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns of numbers."""
        return None if self.encoding is None else self.encoding.names

    def note(self, progress: Progress) -> None:
        """Emit notes on how the files are read, each once for all files."""
        files: dict[str, list[str]] = {}
        for table in self.tables:
            by_order = self.names is not None and table.names is None
            for note in (*table.notes, *([_BY_ORDER] if by_order else [])):
                files.setdefault(note, []).append(table.where)
        for note, (first, *more) in files.items():
            progress.note(first + (f" and {len(more)} more: " if more else ": ") + note)

    @property
    def columns(self) -> int:
        return self.tables[0].columns

    @property
    def beside(self) -> dict[Beside, np.dtype[Any]]:
        """The dtypes of the values beside the rows."""
        return {**self.tables[0].beside, **{kind: column.dtype for kind, column in self.separate.items()}}

    @property
    def rows(self) -> int | None:
        """Number of rows of all files; None unless all files state it in advance."""
        known = [table.rows for table in self.tables if table.rows is not None]
        return sum(known) if len(known) == len(self.tables) else None

    @property
    def expected(self) -> int:
        """Number of rows for the progress; 0 if it is not known."""
        return self.rows or self.counted

    def check_memory(self, allowed: Allowed, chunk_rows: int) -> None:
        """Raise MemoryLimitError if rows need more memory than allowed."""
        table = max(self.tables, key=lambda each: each.held)
        itemsize = max(self.dtype.itemsize, *(each.dtype.itemsize for each in self.tables))
        allowed.check_rows(table.where, self.columns * itemsize, chunk_rows, table.held)

    def check_counts(self, counts: Mapping[Beside, int | None], rows: int | None) -> None:
        """Raise SpecError if a separate file is known to have more or fewer values than there are rows."""
        for kind, column in self.separate.items():
            if None not in (counts[kind], rows) and counts[kind] != rows:
                raise SpecError(
                    f"{column.where} holds {counts[kind]} {kind.noun}s for {rows} rows (the first line of a .csv is "
                    "its header unless it is a number)"
                )

    def pieces(self) -> Batches:
        """The rows of all files, checked and in one dtype, with the values beside them."""
        for table in self.tables:
            row, dropped = 0, self.counts.rows_dropped
            for X, beside in table.batches:
                check_finite(X, row, table.where, names=table.names, fills=table.fills)
                yield cast(X, self.dtype, row + np.arange(len(X)), table.where, table.called), beside
                row += len(X)
            if not row:
                raise no_rows(table.where, dropped=self.counts.rows_dropped > dropped)

    def separate_pieces(self) -> Iterator[tuple[Beside, Array]]:
        """The values of separate files, checked."""
        for kind, column in self.separate.items():
            row = 0
            for values in column.batches:
                check_values(kind, values, row + np.arange(len(values)), column.where)
                yield kind, values
                row += len(values)


@dataclass
class _Counting(Progress):
    """Progress that counts the rows of the longest pass, which is one over all files."""

    progress: Progress
    rows: int = 0
    current: int = 0  # rows of the pass that was started last

    def start(self, title: str, rows: int) -> None:
        self.current = 0
        self.progress.start(title, rows)

    def advance(self, rows: int) -> None:
        self.current += rows
        self.rows = max(self.rows, self.current)
        self.progress.advance(rows)

    def finish(self) -> None:
        self.progress.finish()

    def note(self, message: str) -> None:
        self.progress.note(message)


Opened = tuple[Table | TableFrame, dict[str, Any]]
"""The rows of a file or a table, and its identity, JSON-ready."""


@dataclass(frozen=True)
class _Opening:
    """How sources are opened: the array in each file, the names of values beside the rows, the memory, the encoding and
    notation of text files, and the progress of tables that are not files."""

    member: str | None
    names: Names
    allowed: Allowed
    encoding: str | None
    notation: Notation
    progress: Progress

    def of(self, sources: Sequence[Any], number: int) -> list[Opened]:
        """A source: the file or table itself, or the files of a folder."""
        source = sources[number]
        if not is_path(source):
            return [self._table(source, "" if len(sources) == 1 else f" sources[{number}]")]
        path = Path(source).expanduser()
        if is_url(given := os.fspath(source)):
            store_of(given)  # raises an error for URLs that contain secrets
            raise SpecError(f"{given}: only files on a local disk can be ingested: copy it to one")
        if path.is_dir():
            return self._folder(path)
        if not path.is_file():
            raise SpecError(f"{path} does not exist")
        return [self._whole(self._file(path, {}, {}))]

    def _table(self, data: Any, which: str) -> Opened:
        called = kind_of_table(data)
        refuse_names(f"the {called}{which}", self.member)
        frame, digest = table_in_memory(data, f"the {called}{which}", self.names, self.progress)
        self.allowed.check_table(frame.where, len(frame.columns))
        return self._whole((frame, {"path": None, "table": called, "sha256": digest}))

    def _folder(self, folder: Path) -> list[Opened]:
        """The files of a folder. Those without rows, which some programs write, are left out."""
        paths = files_in(folder)
        texts, keys = keys_of(paths)
        found = [self._file(folder / path, own, keys) for path, own in zip(paths, texts, strict=True)]
        return [each for each in found if each[0].rows != 0] or [self._whole(found[0])]

    def _file(self, path: Path, texts: Mapping[str, str | None], keys: Mapping[str, Key]) -> Opened:
        of_file = {kind: name for kind, name in self.names.items() if name not in texts}
        rows = open_rows_of(path, self.member, of_file, self.allowed, self.encoding, self.notation)
        identity = _identity(path, self.member, self.encoding)
        if not texts:
            return rows, identity
        if isinstance(rows, Table):
            raise SpecError(f"{path} is an array of numbers, to which {', '.join(texts)} in its path cannot be added")
        return with_keys(rows, texts, keys, self.names), identity | {"keys": dict(texts)}

    @staticmethod
    def _whole(opened: Opened) -> Opened:
        """Raise DataError if it is known to have no rows."""
        if opened[0].rows == 0:
            raise no_rows(opened[0].where, dropped=False)
        return opened


def _identity(path: Path, member: str | None, encoding: str | None) -> dict[str, Any]:
    """The identity of a file: path, size, modification time, the array in it, and the encoding if one is given."""
    status = path.stat()
    own = {"path": os.path.abspath(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns, "member": member}
    return own if encoding is None else {**own, "encoding": encoding}


def _storable(dtype: str | np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in native byte order. Raises SpecError unless rows can be stored in it."""
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise SpecError(f"{dtype!r} is not a number type such as 'float32' or 'uint8'") from error
    if found.kind not in "buif" or found.itemsize > 8:
        raise SpecError(f"rows cannot be stored as {found}: choose a real type of at most 8 bytes with --dtype")
    return found


def kind_of(dtype: np.dtype[Any] | None) -> str:
    """The kind of values beside the rows, for comparison: text is one kind, whatever its length."""
    if dtype is None:
        return "none"
    return "text" if dtype.kind == "U" else dtype.newbyteorder("=").name
