"""The interface of readers, their shared functions, and their memory use."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.data.beside import Beside
from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.rows import check_shape
from bigkpca.errors import (
    Array,
    CorruptionError,
    DataError,
    IncompleteError,
    MemoryLimitError,
    SpecError,
    may_pass,
    unknown_name,
)
from bigkpca.execution.plan import process_bytes
from bigkpca.ingesting.beside import Names, check_values, dtype_of_array
from bigkpca.ingesting.columns import TableFrame

_COLUMN_BYTES = 18_000  # measured memory of Arrow per CSV column for type inference (10,000 to 100,000 columns)
_LINE_BYTES = 48  # per byte of the longest line: Arrow reads text in blocks of 16 lines
_ADVICE = "allow more with --memory (memory= in Python), or leave columns out of the file"


@dataclass(frozen=True)
class Allowed:
    """Bytes that this process may use."""

    bytes: int

    def check_table(self, where: str, columns: int) -> None:
        """Raise MemoryLimitError if this many columns of a table of mixed types, or of text, need more."""
        self._check(f"{where}: {columns:,} columns", columns * _COLUMN_BYTES, _ADVICE)

    def check_line(self, where: str, length: int, fields: int) -> None:
        """Raise MemoryLimitError if a line of text with this many bytes and fields needs more."""
        what = f"{where}: a line of {length / 1e6:,.1f} MB or more, with {fields:,} columns"
        needed = max(length * _LINE_BYTES, fields * _COLUMN_BYTES)
        self._check(what, needed, f"{_ADVICE}; is a line break missing?")

    def check_rows(self, where: str, row_bytes: int, chunk_rows: int, held: int) -> None:
        """Raise MemoryLimitError if rows of this size need more: `held` bytes of the reader, a batch, and a chunk."""
        needed = 2 * max(READ_BYTES, row_bytes) + 2 * chunk_rows * row_bytes + held
        what = f"{where}: rows of {row_bytes / 1e6:,.1f} MB, {chunk_rows:,} in a chunk"
        if held:
            what += f", from parts of {held / 1e6:,.1f} MB"
        self._check(what, needed, "allow more with --memory (memory= in Python), or fewer rows with --block-rows")

    def _check(self, what: str, needed: int, advice: str) -> None:
        if self is not USUAL:  # the user's limit is one of the whole process
            needed += process_bytes()
        if needed > self.bytes:
            raise MemoryLimitError(
                f"{what}, need {needed / 1e6:,.0f} MB in this process, {self.bytes / 1e6:,.0f} MB are allowed: {advice}"
            )


# Used if the user sets no limit: files can come from anyone, and a header can claim anything.
USUAL = Allowed(2_000_000_000)


TEXT = np.dtype("U")
Batches = Iterator[tuple[Array, Mapping[Beside, Array]]]
"""Rows (k, columns), each piece with the values (k,) beside them."""


@dataclass(frozen=True)
class Table:
    """The rows of a file, in batches of at most 4 MB. beside: the dtypes of the values beside them."""

    where: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    rows: int | None  # None if the file must be read to count them
    beside: Mapping[Beside, np.dtype[Any]]
    batches: Batches
    names: tuple[str, ...] | None = None  # of the columns
    notes: tuple[str, ...] = ()  # notes for users on how the file is read
    numbers: tuple[int, ...] | None = None  # of the columns in the file, if they are not 0, 1, 2 ...
    held: int = 0  # bytes read at once, if more than a batch
    fills: tuple[str, ...] = ()  # stored numbers that mean missing values, for messages

    def called(self, column: int) -> str:
        """The name of a column in messages: its number in the file, with its name if it has one."""
        return name_of_column(self.numbers, self.names, column)

    @property
    def columns(self) -> int:
        return math.prod(self.row_shape)


@dataclass(frozen=True)
class Column:
    """Values beside the rows in a separate file, in batches (k,)."""

    where: str
    dtype: np.dtype[Any]
    rows: int | None
    batches: Iterator[Array]


@dataclass(frozen=True)
class Format:
    """How a format is recognized and read: `rows` opens (path, member, names of values beside the rows), `column` opens
    a separate file of such values.

    A `signature`, the first bytes of a file, takes precedence over its suffix. A format with neither is recognized by
    other means."""

    rows: Callable[[Path, str | None, Names], Table | TableFrame]
    suffixes: tuple[str, ...] = ()
    signature: bytes | None = None
    column: Callable[[Path, Beside], Column] | None = None


@dataclass(frozen=True)
class StoredHeader:
    """Shape, dtype and order of an array inside a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


@contextmanager
def decoding(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turn the errors that readers raise on damaged bytes into a CorruptionError, and temporary errors into an
    IncompleteError: most formats cannot be read from the middle."""
    damage: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, zipfile.BadZipFile, struct.error, *kinds)
    try:
        yield
    except damage as error:
        if isinstance(error, OSError) and may_pass(error):
            raise IncompleteError(
                f"{path} cannot be read for the moment ({error}): run the same command again when it can be reached"
            ) from error
        raise CorruptionError(
            f"{path} does not decode ({type(error).__name__}: {error}): is it truncated? Fetch it again"
        ) from error


def ranges(rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges a..b of rows of at most 4 MB, or of one row if that is larger."""
    step = max(1, READ_BYTES // row_bytes)
    return ((a, min(a + step, rows)) for a in range(0, rows, step))


def native(X: Array) -> Array:
    return X.astype(X.dtype.newbyteorder("="), copy=False)


def name_of_column(numbers: Sequence[int] | None, names: Sequence[str] | None, column: int) -> str:
    """The name of a column of numbers in messages: its number in the file, with its name if it has one."""
    number = column if numbers is None else numbers[column]
    return f"column {number}" + ("" if names is None else f" ({names[column]!r})")


def cast(X: Array, dtype: np.dtype[Any], rows: Array, where: str, called: Callable[[int], str]) -> Array:
    """X in another dtype. Raises DataError naming the first value that the dtype cannot hold (floats can be rounded).

    rows: row numbers in the file (k,). called: the name of a column in messages.
    """
    if X.dtype == dtype:
        return X
    with np.errstate(over="ignore", invalid="ignore"):
        cast = X.astype(dtype)
        lost = ~np.isfinite(cast) if dtype.kind == "f" else cast.astype(X.dtype) != X
    if X.dtype.kind == "f" and dtype.kind in "ui":
        # Values out of range can come back unchanged: processors differ in how they convert them.
        wide, least, end = X.astype(np.result_type(X, float)), np.iinfo(dtype).min, float(np.iinfo(dtype).max) + 1
        lost |= ~((wide >= least) & (wide < end))
    if X.dtype.kind in "ui" and dtype.kind in "ui":
        lost |= (cast < 0) != (X < 0)  # the comparison above misses numbers that wrap around and back
    if lost.any():
        row, column = np.argwhere(lost)[0]
        raise DataError(
            f"{where}: row {rows[row]}, {called(column)} (both counted from 0) is {X[row, column]}, which {dtype} "
            "cannot hold: choose another --dtype"
        )
    return cast


def row_shape(shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    """The axes after the first. Raises DataError unless there are rows and columns."""
    check_shape((shape[0], math.prod(shape[1:])) if len(shape) > 1 else shape, where)
    return shape[1:]


def refuse_names(path: Path | str, member: str | None, names: Names | None = None) -> None:
    """Raise SpecError if an array is named in a file with only one array, or values in a file without names."""
    if member is not None:
        raise SpecError(f"{path} has no members: leave out --member {member}")
    for kind, name in (names or {}).items():
        raise SpecError(f"{kind.flag} {name}: there is no such file, and {path} has no named columns")


def paired(X: Iterable[Array], beside: Mapping[Beside, Iterable[Array]]) -> Batches:
    """Pieces of rows, each with the values beside it."""
    for piece, *values in zip(X, *beside.values(), strict=True):
        yield piece, dict(zip(beside, values, strict=True))


def choose(arrays: Mapping[str, StoredHeader], member: str | None, names: Names, where: str) -> str:
    """The name of the array of rows: the given one, or else the only one that can be rows."""
    for name in (member, *names.values()):
        if name is not None and name not in arrays:
            raise unknown_name(f"array of {where}", name, arrays)
    if member is not None:
        return member
    able = [k for k, a in arrays.items() if k not in names.values() and len(a.shape) > 1 and a.dtype.kind in "buif"]
    if not able:
        raise DataError(f"{where} holds {sorted(arrays)}, but no array of numbers with rows and columns")
    if len(able) > 1:
        raise SpecError(f"{where} holds the arrays {sorted(able)}: name one with --member (member= in Python)")
    return able[0]


def member_table(
    path: Path, arrays: Mapping[str, StoredHeader], chosen: str, names: Names, batches: Batches, held: int = 0
) -> Table:
    """The table of one of several arrays of a file, with the values of others beside it, which are checked."""
    x, where = arrays[chosen], f"{path}:{chosen}"
    axes = row_shape(x.shape, where)
    beside = {
        kind: dtype_of_array(kind, arrays[name].shape, arrays[name].dtype, x.shape[0], f"{path}:{name}")
        for kind, name in names.items()
    }

    def checked() -> Batches:
        row = 0
        for X, values in batches:
            for kind, part in values.items():
                check_values(kind, part, row + np.arange(len(part)), f"{path}:{names[kind]}")
            yield X, values
            row += len(X)

    return Table(where, x.dtype, axes, x.shape[0], beside, checked(), held=held)
