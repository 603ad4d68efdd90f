"""Readers of text, also compressed by gzip: .csv files with commas, semicolons or tabs, and FASTA files.

Fields of .csv files are separated by commas, semicolons or tabs; blank lines are skipped; the file may be compressed by
gzip. The first line is a header if one of its fields is text, if dates or truth values in it stand above numbers, or if
its fields are the numbers 0, 1, 2 and so on, as pandas writes columns without names.

Words are read without the blanks around them. What stands for a missing value, such as NA, is a word where it is in
quotes.

A first column without a name, where all others have one, holds row names as pandas and R write them, and is left out.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, SpecError, unknown_name
from bigkpca.ingesting.columns import MISSING, Kind, TableFrame, TableLabels, kind_of
from bigkpca.ingesting.formats.base import (
    TEXT,
    Allowed,
    Column,
    check_finite_labels,
    check_single,
    decoding,
    refuse_names,
)

_TEXT_BYTES = READ_BYTES // 4  # a number takes two bytes of text or more, and eight in memory
_SNIFF_BYTES = 2**16
_PIECE_BYTES = 2**20
_DELIMITERS = (b",", b";", b"\t")


@dataclass(frozen=True)
class TextRows:
    """The layout of a file: fields of the first line, blank lines before it, characters of the longest of the first."""

    path: Path
    delimiter: str
    first: tuple[str, ...]
    blank: int
    longest: int
    has_header: bool = True
    kinds: tuple[Kind, ...] = ()

    @classmethod
    def open(cls, path: Path) -> TextRows:
        """Look at the first lines. Raises DataError where the file holds no rows or no text in UTF-8."""
        with _decoding(path), _open(path, "utf-8-sig", newline="") as file:
            lines = file.readlines(_SNIFF_BYTES)
            further = bool(file.readline(1))
        blank = next((i for i, line in enumerate(lines) if line.strip()), None)
        if blank is None:
            raise DataError(f"{path} is empty")
        delimiter = next((mark for mark in "\t;" if mark in lines[blank]), ",")
        reader = csv.reader(lines[blank:], delimiter=delimiter)
        first = tuple(field.strip() for field in next(reader))
        layout = cls(path, delimiter, first, blank, max(map(len, lines)))
        alone = not further and not any(line.strip() for line in lines[blank + reader.line_num :])
        kinds: Sequence[Kind] = ["number"] * layout.width if alone else layout._kinds()
        if alone and layout._is_header(kinds):
            raise DataError(f"{path} is empty: it holds a header and no rows")
        if not layout._is_header(kinds):
            layout = replace(layout, has_header=False)
            kinds = layout._kinds()
        return replace(layout, kinds=tuple(kinds))

    @property
    def width(self) -> int:
        return len(self.first)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of all columns, where there is a header."""
        return self.first if self.has_header else None

    @property
    def row_names(self) -> int | None:
        """The column of row names: the first, where it is the only one without a name."""
        nameless = self.has_header and [j for j, name in enumerate(self.first) if not name] == [0]
        return 0 if nameless else None

    def column(self, name: str) -> int:
        """The number of the column of this name. Raises SpecError unless there is exactly one."""
        if not self.has_header:
            raise SpecError(f"{self.path} has no header, so no column {name!r}")
        if name not in self.first:
            raise unknown_name(f"column of {self.path}", name, self.first)
        check_single(self.first, name, str(self.path))
        return self.first.index(name)

    def read(self, kinds: Mapping[int, Kind]) -> Iterator[Any]:
        """Batches of the texts of columns of these numbers and kinds; null where they stand for a missing value."""
        import pyarrow as pa
        import pyarrow.compute as pc

        types = {str(j): pa.string() for j in kinds}
        words = [k for k, kind in enumerate(kinds.values()) if kind in ("text", "characters")]
        misfits: list[Any] = []
        with _decoding(self.path), self._file() as file, self._batches(file, types, misfits) as batches:
            try:
                for batch in batches:
                    self._check_widths(misfits)
                    columns = batch.columns
                    for k in words:  # without the blanks around them, and without those that mean a missing value then
                        stripped = pc.utf8_trim_whitespace(columns[k])
                        missing = pc.and_(pc.is_in(stripped, pa.array(MISSING)), pc.not_equal(stripped, columns[k]))
                        columns[k] = pc.if_else(missing, pa.scalar(None, pa.string()), stripped)
                    yield pa.record_batch(columns, schema=batch.schema)
            except pa.ArrowInvalid as error:
                if "UTF8" in str(error):
                    raise _not_utf8(self.path, error) from error
                raise
            self._check_widths(misfits)

    def texts(self, column: int) -> Iterator[Any]:
        return (batch.column(0) for batch in self.read({column: "text"}))

    def _check_widths(self, misfits: Sequence[Any]) -> None:
        """Raise DataError where a row has more or fewer fields than the first line."""
        if misfits:
            number = misfits[0].number - 1 - self.has_header
            raise DataError(
                f"{self.path}: row {number} has {misfits[0].actual_columns} fields, the first line {self.width} (rows "
                "of data are counted from 0)"
            )

    def _is_header(self, below: Sequence[Kind]) -> bool:
        """Whether the first line is a header, given the kinds of the columns below it."""
        if self.width > 2 and self.first == tuple(map(str, range(self.width))):
            return True
        line = io.StringIO()
        csv.writer(line, delimiter=self.delimiter).writerow(self.first)
        alone = replace(self, blank=0, has_header=False)
        with alone._batches(io.BytesIO(line.getvalue().encode()), {}, []) as batches:
            own = [kind_of(kind) for kind in batches.schema.types]
        return "text" in own or any(
            kind != "number" and other == "number" for kind, other in zip(own, below, strict=True)
        )

    def _kinds(self) -> tuple[Kind, ...]:
        """Kinds of the columns by the first rows; what is no text in UTF-8 counts as text here."""
        with _decoding(self.path), self._file() as file, self._batches(file, {}, []) as batches:
            return tuple(kind_of(kind) or "text" for kind in batches.schema.types)

    def _file(self) -> Any:
        import pyarrow as pa

        return pa.input_stream(str(self.path), compression="gzip" if _is_packed(self.path) else None)

    @contextmanager
    def _batches(self, file: Any, types: Mapping[str, Any], misfits: list[Any]) -> Iterator[Any]:
        """Batches of the columns of these types, or of all; rows of another width are left out, and collected."""
        import pyarrow as pa
        from pyarrow import csv as arrow

        def collect(row: Any) -> str:
            misfits.append(row)
            return "skip"

        reading = arrow.ReadOptions(
            use_threads=False,  # else rows of another width have no number
            block_size=max(_TEXT_BYTES, 16 * self.longest),
            column_names=[str(j) for j in range(self.width)],  # since several columns may have one name
            skip_rows=self.blank,
            skip_rows_after_names=int(self.has_header),
        )
        parsing = arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=collect)
        converting = arrow.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=MISSING,
            strings_can_be_null=True,
            quoted_strings_can_be_null=not types,  # when kinds are guessed, quotes stand around numbers, too
        )
        try:
            with arrow.open_csv(file, reading, parsing, converting) as batches:
                yield batches
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise DataError(
                    f"{self.path}: a row takes more than {reading.block_size / 1e6:.1f} MB of text: is a quote "
                    "missing somewhere?"
                ) from error
            raise


def check_first_lines(path: Path, allowed: Allowed) -> None:
    """Raise MemoryLimitError where a line among the first takes more memory than is allowed; none is read whole."""
    with decoding(path), gzip.open(path) if _is_packed(path) else path.open("rb") as file:
        seen = length = 0
        fields = dict.fromkeys(_DELIMITERS, 1)
        while piece := file.readline(_PIECE_BYTES):
            length, seen = length + len(piece), seen + len(piece)
            for mark in fields:
                fields[mark] += piece.count(mark)
            allowed.check_line(str(path), length, max(fields.values()))
            if piece.endswith(b"\n"):
                length, fields = 0, dict.fromkeys(_DELIMITERS, 1)
                if seen >= 4 * _SNIFF_BYTES:  # a character of those that are looked at has up to four bytes
                    return


def _is_packed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _open(path: Path, encoding: str, newline: str | None = None) -> IO[str]:
    """Open a text file, decompressed where it is in gzip."""
    if _is_packed(path):
        return gzip.open(path, "rt", encoding=encoding, newline=newline)
    return path.open(encoding=encoding, newline=newline)


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Turn errors of decoding into errors of the package."""
    try:
        with decoding(path):
            yield
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error


def _not_utf8(path: Path, error: Exception) -> DataError:
    marked = isinstance(error, UnicodeDecodeError) and error.object.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    own = "UTF-16" if marked else "latin1"
    return DataError(
        f"{path} is not text in UTF-8: {error}; write it anew in UTF-8, e.g. iconv -f {own} -t UTF-8 FILE > NEW.csv"
    )


_WHOLE = re.compile(r"\s*[+-]?\d[\d_]*\s*")
_ROW_NAMES = (
    "the first column, which has no name, is left out, as it is the names of rows that pandas and R write, and no "
    "feature (to keep it, name it in the header)"
)


def csv_frame(path: Path, member: str | None, labels: str | None) -> TableFrame:
    """Columns of a .csv file, without its column of labels."""
    refuse_names(path, member)
    layout = TextRows.open(path)
    label = None if labels is None else layout.column(labels)
    row_names = None if label == 0 else layout.row_names
    columns = tuple(j for j in range(layout.width) if j not in (label, row_names))
    if not columns:
        raise DataError(f"{path} has no column but its labels")
    kinds = tuple(layout.kinds[j] for j in columns)
    return TableFrame(
        where=str(path),
        columns=columns,
        names=layout.names,
        kinds=kinds,
        types=kinds,
        dtypes=(np.dtype(np.float64),) * len(columns),
        rows=None,
        labels=None if label is None else _labels(layout, label),
        read=layout.read,
        notes=() if row_names is None else (_ROW_NAMES,),
        from_first_rows=True,
    )


def csv_column(path: Path) -> Column:
    """Labels in a .csv file with one column, numbers or text."""
    layout = TextRows.open(path)
    if layout.width != 1:
        raise SpecError(f"{path} has {layout.width} columns: a file of labels has one")
    labels = _labels(layout, 0)

    def batches() -> Iterator[Array]:
        first = 0
        for texts in layout.texts(0):
            yield labels.values(texts, first + np.arange(len(texts)))
            first += len(texts)

    return Column(str(path), labels.dtype, None, batches())


def _labels(layout: TextRows, column: int) -> TableLabels:
    """The labels in a column: integers, floats, or else text, by the first rows."""
    first: list[str | None] = next((each.to_pylist() for each in layout.texts(column)), [])
    texts = [text for text in first if text]
    whole = all(_WHOLE.fullmatch(text) for text in texts)  # as floats, long integers would become equal
    kinds = ("int64", "uint64") if whole else ("float64",)
    dtype = next((dtype for dtype in map(np.dtype, kinds) if _all_are(texts, dtype)), TEXT)

    def values(part: Any, rows: Array) -> Array:
        given = part.to_pylist()
        if not all(given):
            row = rows[next(i for i, text in enumerate(given) if not text)]
            raise DataError(
                f"{layout.path}: row {row} (counted from 0) has no label; in quotes, NA, None and the like "
                "would be words"
            )
        if dtype == TEXT:
            return np.array(given, str)
        if not _all_are(given, dtype):
            i = next(i for i, text in enumerate(given) if not _all_are([text], dtype))
            raise DataError(
                f"{layout.path}: row {rows[i]} (counted from 0) has the label {given[i]!r}, but the first ones are "
                f"{dtype} numbers: labels must be all of one kind"
            )
        found = np.array(given).astype(dtype)
        check_finite_labels(found, rows, str(layout.path))
        return found

    return TableLabels(column, dtype, values)


def _all_are(texts: Sequence[str], dtype: np.dtype[Any]) -> bool:
    """Whether all texts can be read as this dtype."""
    try:
        np.array(texts).astype(dtype)
    except (ValueError, OverflowError):
        return False
    return True


SEQUENCE = "sequence"
SUFFIXES = tuple(f"{end}{packed}" for end in (".fasta", ".fa", ".fna", ".faa") for packed in ("", ".gz"))
_NOTE = "letters of sequences are read as capital ones, since small ones mark what was masked"


def fasta(path: Path, member: str | None, labels: str | None) -> TableFrame:
    """The sequences of a FASTA file, as one column of text."""
    refuse_names(path, member, labels)

    def read(kinds: Mapping[int, Kind]) -> Iterator[Any]:
        import pyarrow as pa

        held: list[str] = []
        size = 0
        for sequence in _sequences(path):
            held.append(sequence)
            size += len(sequence)
            if size >= READ_BYTES:
                yield pa.record_batch([pa.array(held, pa.string())], names=[SEQUENCE])
                held, size = [], 0
        if held:
            yield pa.record_batch([pa.array(held, pa.string())], names=[SEQUENCE])

    return TableFrame(
        where=str(path),
        columns=(0,),
        names=(SEQUENCE,),
        kinds=("text",),
        types=("text",),
        dtypes=(None,),
        rows=None,
        labels=None,
        read=read,
        notes=(_NOTE,),
        text=SEQUENCE,
    )


def _sequences(path: Path) -> Iterator[str]:
    """The sequences, one after the other. Raises DataError for text in front of the first name, or no text."""
    parts: list[str] | None = None
    with decoding(path), _open(path, "ascii") as file:
        try:
            for line in map(str.strip, file):
                if line.startswith(">"):
                    if parts is not None:
                        yield "".join(parts).upper()
                    parts = []
                elif line and parts is None:
                    raise DataError(f"{path} is no FASTA file: it begins with {line[:20]!r}, not with a line '>name'")
                elif parts is not None:
                    parts.append(line)
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not text: {error}") from error
    if parts is not None:
        yield "".join(parts).upper()
