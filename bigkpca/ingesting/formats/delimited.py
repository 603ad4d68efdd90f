"""Reader of .csv files with commas, semicolons or tabs, also compressed by gzip.

Blank lines are skipped. The first line is a header if one of its fields is text; numbers are read as float64. A first
column without a name, where all others have one, holds row names as pandas and R write them, and is left out.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, SpecError, check_finite, column_called, unknown_name
from bigkpca.ingesting.formats.base import TEXT, Batches, Column, Table, check_single, decoding, refuse_member

_TEXT_BYTES = READ_BYTES // 4  # a number takes two bytes of text or more, and eight in memory
_SNIFF_BYTES = 2**16
_WHOLE = re.compile(r"\s*[+-]?\d[\d_]*\s*")
_ROW_NAMES = (
    "the first column, which has no name, is left out, as it is the names of rows that pandas and R write, and no "
    "feature (to keep it, name it in the header)"
)


@dataclass(frozen=True)
class _Csv:
    """The layout of a .csv file, from its first lines."""

    path: Path
    delimiter: str
    first: list[str]  # fields of the first line
    sample: list[str]  # the next lines of data

    @classmethod
    def open(cls, path: Path) -> _Csv:
        with _reading(path), _open_text(path) as file:
            line = next((line for line in file if line.strip()), "")
            sample = _lines(file, _SNIFF_BYTES)
        delimiter = next((mark for mark in "\t;" if mark in line), ",")
        if not line:
            raise DataError(f"{path} is empty")
        fields = next(csv.reader([line], delimiter=delimiter))
        return cls(path, delimiter, [field.strip() for field in fields], sample)

    @property
    def has_header(self) -> bool:
        return any(field and not _is_number(field) for field in self.first)

    @property
    def width(self) -> int:
        return len(self.first)

    @property
    def names(self) -> tuple[str, ...] | None:
        return tuple(self.first) if self.has_header else None

    @property
    def row_names(self) -> int | None:
        """The column of row names, if there is one."""
        nameless = self.has_header and [j for j, name in enumerate(self.first) if not name] == [0]
        return 0 if nameless else None

    def column(self, name: str) -> int:
        """The number of the column of this name."""
        if not self.has_header:
            raise SpecError(f"{self.path} has no header, so no column {name!r}")
        if name not in self.first:
            raise unknown_name(f"column of {self.path}", name, self.first)
        check_single(self.first, name, str(self.path))
        return self.first.index(name)

    def label_dtype(self, column: int) -> np.dtype[Any]:
        """The dtype of the labels in a column, from the first lines: integers, floats, or else text."""
        rows = [*([] if self.has_header else [self.first]), *csv.reader(self.sample, delimiter=self.delimiter)]
        texts = [fields[column] for fields in rows if column < len(fields)]
        whole = all(_WHOLE.fullmatch(text) for text in texts)  # as floats, long integers would become equal
        kinds = ("int64", "uint64") if whole else ("float64",)
        return next((dtype for dtype in map(np.dtype, kinds) if _all_are(texts, dtype)), TEXT)

    def pieces(self) -> Iterator[tuple[int, list[str]]]:
        """Lines of data, at most 2 MB at a time, with the number of the first row."""
        first = 0
        with _reading(self.path), _open_text(self.path) as file:
            if self.has_header:
                next(line for line in file if line.strip())
            while lines := _lines(file, _TEXT_BYTES):
                yield first, lines
                first += len(lines)

    def values(self, first: int, lines: list[str], aside: dict[int | str, Callable[[str], float]]) -> Array:
        """Numbers (k, width) of the lines; columns of text hold what the functions in `aside` return."""
        try:
            X = np.loadtxt(
                lines, delimiter=self.delimiter, comments=None, quotechar='"', ndmin=2, converters=aside or None
            )
        except ValueError as error:
            raise self._fault(first, lines, aside, error) from error
        if X.shape[1] != self.width:
            raise self._fault(first, lines, aside, None)
        check_finite(X, first, str(self.path), names=self.names)
        return X

    def _fault(
        self, first: int, lines: Sequence[str], aside: Collection[int | str], error: ValueError | None
    ) -> DataError:
        """The error for the first field that is no number; a slow search, after an error only."""
        for row, fields in enumerate(csv.reader(lines, delimiter=self.delimiter), first):
            if len(fields) != self.width:
                return DataError(f"{self.path}: row {row} has {len(fields)} fields, the first line {self.width}")
            for column, field in enumerate(fields):
                if column not in aside and not _is_number(field):
                    what = f"{field!r}, not a number" if field.strip() else "empty"
                    return DataError(
                        f"{self.path}: row {row}, {column_called(column, self.names)} is {what} (rows of data and "
                        "columns are counted from 0); rows must be numbers: encode or remove this first, or name it "
                        "with --labels"
                    )
        return DataError(f"{self.path}: rows {first} to {first + len(lines) - 1} do not parse: {error}")


def _is_number(field: str) -> bool:
    """Whether a field is the text of a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _all_are(texts: Sequence[str], dtype: np.dtype[Any]) -> bool:
    """Whether all texts can be read as this dtype."""
    try:
        np.array(texts).astype(dtype)
    except (ValueError, OverflowError):
        return False
    return True


class _Texts(list[str]):
    """The texts of a column, collected while np.loadtxt reads the lines."""

    def keep(self, text: str) -> float:
        self.append(text)
        return 0.0


def _passed_over(text: str) -> float:
    """Replaces the values of a column that is left out."""
    return 0.0


def _lines(file: IO[str], size: int) -> list[str]:
    """The next lines that are not blank, about `size` characters; [] at the end."""
    while lines := file.readlines(size):
        if kept := [line for line in lines if line.strip()]:
            return kept
    return []


def _open_text(path: Path) -> IO[str]:
    """Open a text file, decompressed where it is in gzip."""
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of decoding into errors of the package."""
    try:
        with decoding(path):
            yield
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}") from error


def _labels(texts: list[str], dtype: np.dtype[Any], first: int, where: str) -> Array:
    """Labels of one dtype from their texts. Raises DataError at the first that is missing or of another kind."""
    if "" in texts:
        raise DataError(f"{where}: row {first + texts.index('')} (counted from 0) has no label")
    if dtype == TEXT:
        return np.array(texts)
    if not _all_are(texts, dtype):
        row = next(i for i, text in enumerate(texts) if not _all_are([text], dtype))
        raise DataError(
            f"{where}: row {first + row} (counted from 0) has the label {texts[row]!r}, but the first ones are "
            f"{dtype} numbers: labels must be all of one kind"
        )
    return np.array(texts).astype(dtype)


def csv_table(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of a .csv file, without its column of labels."""
    refuse_member(path, member)
    layout = _Csv.open(path)
    label = None if labels is None else layout.column(labels)
    row_names = None if label == 0 else layout.row_names
    aside = [column for column in (label, row_names) if column is not None]
    columns = [column for column in range(layout.width) if column not in aside]
    if not columns:
        raise DataError(f"{path} has no column but its labels")
    dtype = None if label is None else layout.label_dtype(label)

    def batches() -> Batches:
        for first, lines in layout.pieces():
            texts = _Texts()
            X = layout.values(first, lines, {j: texts.keep if j == label else _passed_over for j in aside})
            kept = np.delete(X, aside, axis=1) if aside else X
            yield kept, None if dtype is None else _labels(texts, dtype, first, str(path))

    names = layout.names and tuple(layout.first[column] for column in columns)
    notes = () if row_names is None else (_ROW_NAMES,)
    return Table(str(path), np.dtype(np.float64), (len(columns),), None, dtype, batches(), names, notes)


def csv_column(path: Path) -> Column:
    """Labels in a .csv file with one column, numbers or text."""
    layout = _Csv.open(path)
    if layout.width != 1:
        raise SpecError(f"{path} has {layout.width} columns: a file of labels has one")
    dtype = layout.label_dtype(0)

    def batches() -> Iterator[Array]:
        for first, lines in layout.pieces():
            texts = _Texts()
            layout.values(first, lines, {0: texts.keep})
            yield _labels(texts, dtype, first, str(path))

    return Column(str(path), dtype, None, batches())
