"""Readers of text, optionally compressed by gzip: .csv files with commas, semicolons or tabs, and FASTA files.

Blank lines of .csv files are skipped. The first line is a header if one of its fields is text, if it has dates or
booleans above numbers, or if its fields are the numbers 0, 1, 2 and so on, as pandas writes columns without names.

Blanks around words are removed. Texts that mean a missing value, such as NA, are words if they are quoted.

Files are UTF-8 unless they begin with the mark of UTF-16 or UTF-32, or an encoding is given: such files are converted
while they are read.

If only the first column has no name, it holds row names, as written by pandas and R, and is left out.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigkpca.data.beside import LABELS, WEIGHTS, Beside
from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, SpecError, column_called, unknown_name
from bigkpca.ingesting.beside import Names, check_single, check_values, weights_of_column
from bigkpca.ingesting.columns import AS_TEXT, BesideColumn, Kind, TableColumn, TableFrame, kind_of
from bigkpca.ingesting.formats.base import TEXT, Allowed, Column, decoding, refuse_names
from bigkpca.ingesting.notation import (
    ISO,
    MISSING,
    Notation,
    are_iso_dates,
    plain_numbers,
    without_missing,
    written_dates,
    written_numbers,
    zoned,
)

_TEXT_BYTES = READ_BYTES // 4  # a number takes two bytes of text or more, and eight in memory
_SNIFF_BYTES = 2**16
_PIECE_BYTES = 2**20
_MOST_TEXTS = 1000  # distinct texts of a column that are compared with a date format
_DELIMITERS = (b",", b";", b"\t", b"|")
_UTF8 = "utf-8-sig"
_MARKS = (  # that of UTF-16 begins that of UTF-32
    (codecs.BOM_UTF8, _UTF8),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class TextRows:
    """The layout of a file: fields of the first line, blank lines before it, length of the longest of the first
    lines. formatted: numbers of the columns whose first rows have dates of the given format. notes, notes_as: as in
    TableFrame."""

    path: Path
    delimiter: str
    first: tuple[str, ...]
    blank: int
    longest: int
    encoding: str
    notation: Notation = ISO
    has_header: bool = True
    kinds: tuple[Kind, ...] = ()
    formatted: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    notes_as: Mapping[int, tuple[Kind, str]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, encoding: str | None = None, notation: Notation = ISO) -> TextRows:
        """Inspect the first lines. Raises DataError if the file has no rows or is not text in its encoding."""
        encoding = _encoding(path, encoding)
        with _decoding(path, encoding), _open(path, encoding, newline="") as file:
            lines = file.readlines(_SNIFF_BYTES)
            further = bool(file.readline(1))
        if any("\0" in line for line in lines):
            raise _undecoded(path, encoding, "it has null characters")
        blank = next((i for i, line in enumerate(lines) if line.strip()), None)
        if blank is None:
            raise DataError(f"{path} is empty")
        delimiter = _delimiter(lines[blank:], notation)
        reader = csv.reader(lines[blank:], delimiter=delimiter)
        try:
            first = tuple(field.strip() for field in next(reader))
        except csv.Error as error:
            raise DataError(f"{path}: the first line cannot be read: {error}") from error
        layout = cls(path, delimiter, first, blank, max(map(len, lines)), encoding, notation)
        alone = not further and not any(line.strip() for line in lines[blank + reader.line_num :])
        numbers: list[Kind] = ["number"] * layout.width
        layout = replace(layout, kinds=tuple(numbers)) if alone else layout._inspected()
        if layout._is_header():
            if alone:
                raise DataError(f"{path} is empty: it has a header but no rows")
            return layout
        unsure = delimiter == "," and layout.width == 2 and _are_numbers(lines[blank:], Notation(","))
        return replace(layout, has_header=False, notes=(_TWO_COLUMNS,) * unsure)._inspected()

    @property
    def width(self) -> int:
        return len(self.first)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of all columns, if there is a header."""
        return self.first if self.has_header else None

    @property
    def row_names(self) -> int | None:
        """The column of row names: the first, if it is the only one without a name."""
        nameless = self.has_header and [j for j, name in enumerate(self.first) if not name] == [0]
        return 0 if nameless else None

    def column(self, name: str, kind: Beside) -> int:
        """The number of the column of this name, with values beside the rows. Raises SpecError unless there is exactly
        one."""
        if not self.has_header:
            raise SpecError(f"{self.path} has no header, and so no column {name!r}")
        if name not in self.first:
            raise unknown_name(f"column of {self.path}", name, self.first)
        check_single(self.first, name, str(self.path), kind)
        return self.first.index(name)

    def read(self, columns: Mapping[int, TableColumn]) -> Iterator[Any]:
        """Batches of the texts of columns with these numbers; null where they mean a missing value. A level that
        the user names, such as None, is not missing."""
        import pyarrow as pa

        # Arrow takes one list of missing texts per file, so columns with another list are read apart.
        groups: dict[tuple[str, ...], dict[int, TableColumn]] = {}
        for j, column in columns.items():
            levels = column.categories if column.kind == "ordinal" else ()
            groups.setdefault(tuple(each for each in MISSING if each not in levels), {})[j] = column
        order = [j for group in groups.values() for j in group]
        for parts in zip(*(self._read(group, missing) for missing, group in groups.items()), strict=True):
            found = dict(zip(order, (each for part in parts for each in part.columns), strict=True))
            yield pa.record_batch([found[j] for j in columns], names=[str(j) for j in columns])

    def _read(self, columns: Mapping[int, TableColumn], missing: Sequence[str]) -> Iterator[Any]:
        """Batches of the texts of columns; null where they are among `missing`, and not in quotes."""
        import pyarrow as pa
        import pyarrow.compute as pc

        types = {str(j): pa.string() for j in columns}
        words = [k for k, each in enumerate(columns.values()) if each.of_text or each.kind == "ordinal"]
        misfits: list[Any] = []
        with self._decoding(), self._file() as file, self._batches(file, types, misfits, missing) as batches:
            try:
                for batch in batches:
                    self._check_widths(misfits)
                    found = batch.columns
                    for k in words:  # strip blanks, and then drop those that mean a missing value
                        stripped = pc.utf8_trim_whitespace(found[k])
                        absent = pc.and_(pc.is_in(stripped, pa.array(missing)), pc.not_equal(stripped, found[k]))
                        found[k] = pc.if_else(absent, pa.scalar(None, pa.string()), stripped)
                    yield pa.record_batch(found, schema=batch.schema)
            except pa.ArrowInvalid as error:
                if "UTF8" in str(error):
                    raise _undecoded(self.path, self.encoding, error) from error
                raise
            self._check_widths(misfits)

    def texts(self, column: int, read_as: TableColumn = AS_TEXT) -> Iterator[Any]:
        return (batch.column(0) for batch in self.read({column: read_as}))

    def _check_widths(self, misfits: Sequence[Any]) -> None:
        """Raise DataError if a row has more or fewer fields than the first line."""
        if misfits:
            number = misfits[0].number - 1 - self.has_header
            raise DataError(
                f"{self.path}: row {number} has {misfits[0].actual_columns} fields, but the first line has "
                f"{self.width} (rows of data are counted from 0)"
            )

    def _is_header(self) -> bool:
        """Whether the first line is a header, given the kinds of the columns below it."""
        if self.width > 2 and self.first == tuple(map(str, range(self.width))):
            return True
        import pyarrow as pa

        line = io.StringIO()
        csv.writer(line, delimiter=self.delimiter).writerow(self.first)
        alone = replace(self, blank=0, has_header=False)
        with alone._batches(io.BytesIO(line.getvalue().encode()), {}, []) as batches:
            inferred = _kinds_of(batches.schema)
        own = [
            kind if kind == "number" else self._kind(j, kind, pa.array([text])).kind
            for j, (kind, text) in enumerate(zip(inferred, self.first, strict=True))
        ]
        return "text" in own or any(
            kind != "number" and other == "number" for kind, other in zip(own, self.kinds, strict=True)
        )

    def _inspected(self) -> TextRows:
        """The layout with the kinds of the columns by the first rows; anything that is not UTF-8 text counts as text
        here."""
        with self._decoding(), self._file() as file, self._batches(file, {}, []) as batches:
            kinds = _kinds_of(batches.schema)
        unsure = [
            j for j, kind in enumerate(kinds) if kind == "text" or (kind != "boolean" and self.notation.date_format)
        ]
        first = next(iter(self.read(dict.fromkeys(unsure, AS_TEXT))), None) if unsure else None
        found = {} if first is None else {j: self._kind(j, kinds[j], first.column(str(j))) for j in unsure}
        return replace(
            self,
            kinds=tuple(found[j].kind if j in found else kind for j, kind in enumerate(kinds)),
            formatted=frozenset(j for j, each in found.items() if each.formatted),
            notes_as={j: (each.kind, each.note) for j, each in found.items() if each.note},
        )

    def _kind(self, j: int, kind: Kind, texts: Any) -> _Inspected:
        """The kind of column j in the notation of the file, of these texts in its first rows: a date if any text has
        the given format, or if all do that are numbers as well; a date in ISO 8601, also if only some have a time zone;
        or a number if half of the distinct texts are numbers."""
        import pyarrow.compute as pc

        texts = without_missing(pc.unique(texts), self.notation).drop_null()
        few, called = texts[:_MOST_TEXTS], column_called(j, self.names)
        if self.notation.date_format and len(few):
            dates = written_dates(few.to_pylist(), self.notation.date_format, again=kind == "number")
            if any(dates) if kind != "number" else all(dates):
                note = _WHOLE_DATES.format(called, self.notation.date_format) if kind == "number" else ""
                return _Inspected("date", True, note)
        if kind != "text" or not len(few):
            return _Inspected(kind)
        if are_iso_dates(few):
            return _Inspected("date", note=_ZONES.format(called) if len(zoned(few).unique()) > 1 else "")
        if replace(self.notation, na_values=(), date_format="") != ISO:
            numbers = pc.sum(written_numbers(texts, self.notation)).as_py() or 0
            return _Inspected("number" if 2 * numbers >= len(texts) else "text")
        return _Inspected("text")

    def _decoding(self) -> AbstractContextManager[None]:
        return _decoding(self.path, self.encoding)

    def _file(self) -> Any:
        import pyarrow as pa

        file = pa.input_stream(str(self.path), compression="gzip" if _is_packed(self.path) else None)
        return file if self.encoding == _UTF8 else pa.transcoding_input_stream(file, self.encoding, "utf-8")

    @contextmanager
    def _batches(
        self, file: Any, types: Mapping[str, Any], misfits: list[Any], missing: Sequence[str] = MISSING
    ) -> Iterator[Any]:
        """Batches of the columns with these types, or of all; rows of another width are left out and collected."""
        import pyarrow as pa
        from pyarrow import csv as arrow

        def collect(row: Any) -> str:
            misfits.append(row)
            return "skip"

        reading = arrow.ReadOptions(
            use_threads=False,  # otherwise rows of another width have no number
            block_size=max(_TEXT_BYTES, 16 * self.longest),
            column_names=[str(j) for j in range(self.width)],  # since several columns can have the same name
            skip_rows=self.blank,
            skip_rows_after_names=int(self.has_header),
        )
        parsing = arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=collect)
        converting = arrow.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=missing if types else self.notation.missing,
            strings_can_be_null=True,
            quoted_strings_can_be_null=not types,  # during inference, quotes can surround numbers, too
        )
        try:
            with arrow.open_csv(file, reading, parsing, converting) as batches:
                yield batches
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise DataError(
                    f"{self.path}: a row has more than {reading.block_size / 1e6:.1f} MB of text: is a quote "
                    "missing somewhere?"
                ) from error
            raise


@dataclass(frozen=True)
class _Inspected:
    """The kind of a column, whether it has dates of the given format, and a note for users."""

    kind: Kind
    formatted: bool = False
    note: str = ""


def _kinds_of(schema: Any) -> tuple[Kind, ...]:
    return tuple(kind_of(kind) or "text" for kind in schema.types)


def check_first_lines(path: Path, allowed: Allowed) -> None:
    """Raise MemoryLimitError if one of the first lines needs more memory than allowed; no line is read as a whole."""
    with decoding(path), gzip.open(path) if _is_packed(path) else path.open("rb") as file:
        seen = length = longest = widest = 0
        fields = dict.fromkeys(_DELIMITERS, 1)
        while piece := file.readline(_PIECE_BYTES):
            length, seen = length + len(piece), seen + len(piece)
            for mark in fields:
                fields[mark] += piece.count(mark)
            if length > longest or max(fields.values()) > widest:  # shorter lines need no more
                longest, widest = max(longest, length), max(widest, *fields.values())
                allowed.check_line(str(path), longest, widest)
            if piece.endswith(b"\n"):
                length, fields = 0, dict.fromkeys(_DELIMITERS, 1)
                if seen >= 4 * _SNIFF_BYTES:  # an inspected character has up to four bytes
                    return


def _is_packed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _open(path: Path, encoding: str, newline: str | None = None) -> IO[str]:
    """Open a text file, decompressed if it is in gzip."""
    if _is_packed(path):
        return gzip.open(path, "rt", encoding=encoding, newline=newline)
    return path.open(encoding=encoding, newline=newline)


@contextmanager
def _decoding(path: Path, encoding: str) -> Iterator[None]:
    """Turn errors of decoding into errors of the package."""
    try:
        with decoding(path):
            yield
    except UnicodeError as error:
        raise _undecoded(path, encoding, error) from error


def _encoding(path: Path, given: str | None) -> str:
    """The encoding of a file: that of the mark it begins with, the given one, or UTF-8. Raises SpecError for an unknown
    encoding."""
    if given is not None:
        try:
            "".encode(given)
        except (LookupError, ValueError) as error:
            raise SpecError(f"encoding {given!r} is unknown: Python's name of it is needed, such as cp1252") from error
        given = _UTF8 if codecs.lookup(given).name == "utf-8" else given
    mark = next((encoding for mark, encoding in _MARKS if _head(path, 4).startswith(mark)), None)
    return mark or given or _UTF8


def _head(path: Path, length: int) -> bytes:
    """The first bytes of a file, decompressed."""
    with decoding(path), gzip.open(path) if _is_packed(path) else path.open("rb") as file:
        return file.read(length)


def _undecoded(path: Path, encoding: str, error: Exception | str) -> DataError:
    """The error for a file that is not text in its encoding, with the encoding that it is likely to have."""
    head = _head(path, 4096)
    zeros = [head[start::2].count(0) for start in (0, 1)]
    own, certain = "cp1252", "if it comes from Windows in Western Europe; otherwise "
    if max(zeros) > len(head) / 8:
        own, certain = ("utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"), ""
    elif isinstance(error, str):
        return DataError(f"{path}: {error} in its first lines: is it a text file?")
    else:
        certain += "name the encoding that it has"
    name = "UTF-8" if encoding == _UTF8 else encoding
    return DataError(f"{path} is not {name} text: {error}; read it with --encoding {own} {certain}".rstrip())


def _delimiter(lines: Sequence[str], notation: Notation) -> str:
    """A tab or semicolon if the first line has one, or else a comma if it has one, or a bar. In a file with one column
    of decimal commas, commas separate nothing."""
    found = next((mark for mark in "\t;,|" if mark in lines[0]), ",")
    alone = found == notation.decimal == "," and ("," not in lines[0] or _are_numbers(lines, notation))
    return ";" if alone else found


def _are_numbers(lines: Sequence[str], notation: Notation) -> bool:
    """Whether all lines that are not blank consist of a single number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.all(written_numbers(pa.array([line.strip() for line in lines if line.strip()]), notation)).as_py())


_WHOLE = re.compile(r"\s*[+-]?\d[\d_]*\s*")
_TWO_COLUMNS = "reading commas as delimiters of two columns; if they are decimal commas, use --decimal ,"
_WHOLE_DATES = (
    "reading the numbers of {0} as dates of the format {1!r} (to keep numbers, name the columns of dates, as in "
    "--date-format 'COLUMN={1}')"
)
_ZONES = "reading the dates of {} without a time zone as UTC, since others have one"
_ROW_NAMES = (
    "leaving out the first column, which has no name and so holds row names, as written by pandas and R (to keep it, "
    "name it in the header)"
)


def csv_frame(
    path: Path, member: str | None, names: Names, encoding: str | None = None, notation: Notation = ISO
) -> TableFrame:
    """Columns of a .csv file, with the values of those named beside them."""
    refuse_names(path, member)
    layout = TextRows.open(path, encoding, notation)
    beside = {kind: _beside(layout, layout.column(name, kind), kind) for kind, name in names.items()}
    apart = [each.number for each in beside.values()]
    row_names = None if 0 in apart else layout.row_names
    columns = tuple(j for j in range(layout.width) if j not in (*apart, row_names))
    if not columns:
        raise DataError(f"{path} has only its column of {' and '.join(f'{kind.noun}s' for kind in beside)}")
    kinds = tuple(layout.kinds[j] for j in columns)
    return TableFrame(
        where=str(path),
        columns=columns,
        names=layout.names,
        kinds=kinds,
        types=kinds,
        dtypes=(np.dtype(np.float64),) * len(columns),
        rows=None,
        beside=beside,
        read=layout.read,
        notes=layout.notes if row_names is None else (_ROW_NAMES,),
        from_first_rows=frozenset(columns),
        formatted=layout.formatted,
        notes_as=layout.notes_as,
    )


def csv_column(path: Path, kind: Beside, encoding: str | None = None, notation: Notation = ISO) -> Column:
    """Values beside the rows in a .csv file with one column."""
    layout = TextRows.open(path, encoding, notation)
    if layout.width != 1:
        raise SpecError(f"{path} has {layout.width} columns: a file of {kind.noun}s must have one")
    found = _beside(layout, 0, kind)

    def batches() -> Iterator[Array]:
        first = 0
        for texts in layout.texts(0, found.read_as):
            yield found.values(texts, first + np.arange(len(texts)))
            first += len(texts)

    return Column(str(path), found.dtype, None, batches())


def _beside(layout: TextRows, column: int, kind: Beside) -> BesideColumn:
    """The values in a column, beside the rows."""
    if kind is WEIGHTS:
        return weights_of_column(column, column_called(column, layout.names), str(layout.path), layout.notation)
    return _labels(layout, column)


def _labels(layout: TextRows, column: int) -> BesideColumn:
    """The labels in a column: integers, floats or else text, according to the first rows."""

    notation = layout.notation
    texts = [text for text in next((part.to_pylist() for part in layout.texts(column)), []) if text]
    # As floats, distinct long integers would become equal.
    whole = all(_WHOLE.fullmatch(text.replace(notation.thousands, "")) for text in texts)
    kinds = map(np.dtype, ("int64", "uint64") if whole else ("float64",))
    dtype = next((kind for kind in kinds if _as_numbers(texts, kind, notation) is not None), TEXT)

    def values(part: Any, rows: Array) -> Array:
        given = part.to_pylist()
        if not all(given):
            row = rows[next(i for i, text in enumerate(given) if not text)]
            raise DataError(
                f"{layout.path}: row {row} (counted from 0) has no label; if NA, None and the like are meant as words, "
                "put them in quotes"
            )
        if dtype == TEXT:
            return np.array(given, str)
        found = _as_numbers(given, dtype, notation)
        if found is None:
            i = next(i for i, text in enumerate(given) if _as_numbers([text], dtype, notation) is None)
            raise DataError(
                f"{layout.path}: row {rows[i]} (counted from 0) has the label {given[i]!r}, but the first ones are "
                f"{dtype} numbers: labels must be all of one kind"
            )
        check_values(LABELS, found, rows, str(layout.path))
        return found

    return BesideColumn(column, dtype, values)


def _as_numbers(texts: Sequence[str], dtype: np.dtype[Any], notation: Notation) -> Array | None:
    """Texts as numbers of this dtype (k,); None if one is not such a number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    given = pa.array(texts, pa.string())
    if not (notation.plain or pc.all(written_numbers(given, notation)).as_py()):
        return None
    try:
        return np.array(plain_numbers(given, notation).to_pylist(), str).astype(dtype)
    except (ValueError, OverflowError):
        return None


SEQUENCE = "sequence"
SUFFIXES = tuple(f"{end}{packed}" for end in (".fasta", ".fa", ".fna", ".faa") for packed in ("", ".gz"))
_NOTE = "reading lower-case letters of sequences, which mark masked regions, as upper-case"


def fasta(path: Path, member: str | None, names: Names) -> TableFrame:
    """The sequences of a FASTA file, as one column of text."""
    refuse_names(path, member, names)

    def read(columns: Mapping[int, TableColumn]) -> Iterator[Any]:
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
        beside={},
        read=read,
        notes=(_NOTE,),
        text=SEQUENCE,
    )


def _sequences(path: Path) -> Iterator[str]:
    """The sequences, one by one. Raises DataError for text before the first name, or if the file is not text."""
    parts: list[str] | None = None
    with decoding(path), _open(path, "ascii") as file:
        try:
            for line in map(str.strip, file):
                if line.startswith(">"):
                    if parts is not None:
                        yield "".join(parts).upper()
                    parts = []
                elif line and parts is None:
                    raise DataError(f"{path} is not a FASTA file: it begins with {line[:20]!r}, not '>name'")
                elif parts is not None:
                    parts.append(line)
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not text: {error}") from error
    if parts is not None:
        yield "".join(parts).upper()
