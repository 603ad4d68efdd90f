"""Numbers in text: .csv with commas, semicolons or tabs, also in gzip.

A blank line is no row. The first line is a header if a field of it is text; numbers are read as float64.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigkpca.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, SpecError, check_finite, unknown_name
from bigkpca.formats.table import TEXT, Batches, Column, Table, decoding, refuse_member

_TEXT_BYTES = READ_BYTES // 4  # a number takes two bytes of text or more, and eight in memory
_SNIFF_BYTES = 2**16


@dataclass(frozen=True)
class _Csv:
    """How a .csv file is laid out, as told from its first lines."""

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

    def column(self, name: str) -> int:
        if not self.has_header:
            raise SpecError(f"{self.path} has no header, so no column {name!r}")
        if name not in self.first:
            raise unknown_name(f"column of {self.path}", name, self.first)
        return self.first.index(name)

    def label_dtype(self, column: int) -> np.dtype[Any]:
        rows = [*([] if self.has_header else [self.first]), *csv.reader(self.sample, delimiter=self.delimiter)]
        texts = [fields[column] for fields in rows if column < len(fields)]
        kinds = (np.dtype(np.int64), np.dtype(np.float64))
        return next((dtype for dtype in kinds if _all_are(texts, dtype)), TEXT)

    def pieces(self) -> Iterator[tuple[int, list[str]]]:
        """Lines of data of at most 2 MB, with the number of the first row."""
        first = 0
        with _reading(self.path), _open_text(self.path) as file:
            if self.has_header:
                next(line for line in file if line.strip())
            while lines := _lines(file, _TEXT_BYTES):
                yield first, lines
                first += len(lines)

    def values(self, first: int, lines: list[str], label: int | None) -> tuple[Array, list[str]]:
        """(k, width) numbers of the lines, and the k texts of the column of labels, whose numbers are 0."""
        texts: list[str] = []

        def keep(text: str) -> float:
            texts.append(text)
            return 0.0

        converters: dict[int | str, Callable[[str], float]] | None = None if label is None else {label: keep}
        try:
            X = np.loadtxt(
                lines, delimiter=self.delimiter, comments=None, quotechar='"', ndmin=2, converters=converters
            )
        except ValueError as error:
            raise self._fault(first, lines, label, error) from error
        if X.shape[1] != self.width:
            raise self._fault(first, lines, label, None)
        check_finite(X, first, str(self.path))
        return X, texts

    def _fault(self, first: int, lines: Sequence[str], label: int | None, error: ValueError | None) -> DataError:
        """The error for the first field that is no number; slow, and so only looked for when there is one."""
        for row, fields in enumerate(csv.reader(lines, delimiter=self.delimiter), first):
            if len(fields) != self.width:
                return DataError(f"{self.path}: row {row} has {len(fields)} fields, the first line {self.width}")
            for column, field in enumerate(fields):
                if column != label and not _is_number(field):
                    what = f"{field!r}, not a number" if field.strip() else "empty"
                    return DataError(
                        f"{self.path}: row {row}, column {column} is {what} (rows of data and columns are counted "
                        "from 0); rows must be numbers: encode or remove this first, or name it with --labels"
                    )
        return DataError(f"{self.path}: rows {first} to {first + len(lines) - 1} do not parse: {error}")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _all_are(texts: Sequence[str], dtype: np.dtype[Any]) -> bool:
    try:
        np.array(texts).astype(dtype)
    except ValueError:
        return False
    return True


def _lines(file: IO[str], size: int) -> list[str]:
    """Lines that are not blank among the next `size` characters, [] at the end."""
    while lines := file.readlines(size):
        if kept := [line for line in lines if line.strip()]:
            return kept
    return []


def _open_text(path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        with decoding(path):
            yield
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}") from error


def _labels(texts: list[str], dtype: np.dtype[Any], first: int, where: str) -> Array:
    """The texts as labels of one type; numbers are what the first lines of the file made them."""
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
    columns = layout.width - (label is not None)
    if not columns:
        raise DataError(f"{path} has no column but its labels")
    dtype = None if label is None else layout.label_dtype(label)

    def batches() -> Batches:
        for first, lines in layout.pieces():
            X, texts = layout.values(first, lines, label)
            if label is None or dtype is None:
                yield X, None
            else:
                yield np.delete(X, label, axis=1), _labels(texts, dtype, first, str(path))

    return Table(str(path), np.dtype(np.float64), (columns,), None, dtype, batches())


def csv_column(path: Path) -> Column:
    """Labels in a .csv file with one column, numbers or text."""
    layout = _Csv.open(path)
    if layout.width != 1:
        raise SpecError(f"{path} has {layout.width} columns: a file of labels has one")
    dtype = layout.label_dtype(0)

    def batches() -> Iterator[Array]:
        for first, lines in layout.pieces():
            yield _labels(layout.values(first, lines, 0)[1], dtype, first, str(path))

    return Column(str(path), dtype, None, batches())
