"""Readers of files of several formats, which `FORMATS` lists, as streams of bounded batches.

A reader inspects the header of a file and returns its rows as a Table or, if columns have different types, as a
TableFrame. Their batches open the file again when they are read.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from bigkpca.data.beside import Beside
from bigkpca.errors import SpecError, check_numeric, require
from bigkpca.ingesting.beside import Names
from bigkpca.ingesting.columns import TableFrame
from bigkpca.ingesting.formats import arrow, binary, text
from bigkpca.ingesting.formats.base import USUAL, Allowed, Column, Format, Table, decoding
from bigkpca.ingesting.formats.text import check_first_lines
from bigkpca.ingesting.notation import ISO, Notation

__all__ = ["FORMATS", "Column", "Table", "TableFrame", "open_column", "open_rows_of"]

_TEXT = Format(text.csv_frame, (".csv", ".csv.gz", ".tsv"), column=text.csv_column)
_IDX = Format(binary.idx, column=binary.idx_column)
_PARQUET = Format(arrow.parquet, (".parquet",), signature=b"PAR1")
_ARROW = Format(arrow.feather, (".feather", ".arrow"), signature=b"ARROW1")

FORMATS: tuple[Format, ...] = (
    Format(binary.npy, (".npy",), signature=b"\x93NUMPY", column=binary.npy_column),
    Format(binary.npz, (".npz",), signature=b"PK\x03\x04"),
    _TEXT,
    _IDX,
    _PARQUET,
    _ARROW,
    Format(text.fasta, text.SUFFIXES),
    Format(binary.hdf5, (".h5", ".hdf5"), signature=b"\x89HDF\r\n\x1a\n"),
)


def open_rows_of(
    path: Path,
    member: str | None,
    names: Names,
    allowed: Allowed = USUAL,
    encoding: str | None = None,
    notation: Notation = ISO,
) -> Table | TableFrame:
    """Rows of the file at `path`, from its array `member`, with the values of these columns or arrays beside them.
    encoding, notation: of text files. Raises MemoryLimitError, SpecError for an unknown format or name, DataError and
    CorruptionError; the batches raise the last two as well."""
    kind = _readable(path, allowed)
    if kind is _TEXT:
        rows: Table | TableFrame = text.csv_frame(path, member, names, encoding, notation)
    else:
        rows = kind.rows(path, member, names)
    if isinstance(rows, Table):
        check_numeric(rows.dtype, rows.where)
    else:
        allowed.check_table(rows.where, len(rows.columns))
    return rows


def open_column(
    path: Path, of: Beside, allowed: Allowed = USUAL, encoding: str | None = None, notation: Notation = ISO
) -> Column:
    """Values (n,) beside the rows, of the file at `path`. Raises the errors of `open_rows_of`."""
    kind = _readable(path, allowed)
    if kind is _TEXT:
        return text.csv_column(path, of, encoding, notation)
    if kind.column is None:
        raise SpecError(f"{path}: a file of {of.noun}s must be .npy, IDX or one-column .csv")
    return kind.column(path, of)


def _readable(path: Path, allowed: Allowed) -> Format:
    """The format, by signature or else by suffix, if it can be read here and its first lines are not too long."""
    with path.open("rb") as file:
        head = file.read(8)
    signed = next((kind for kind in FORMATS if kind.signature and head.startswith(kind.signature)), None)
    suffixed = next((kind for kind in FORMATS if path.name.lower().endswith(kind.suffixes)), None)
    if signed is _PARQUET and suffixed and not arrow.ends_as_parquet(path):  # text can begin with PAR1, too
        signed = None
    kind = signed or suffixed
    if kind is None:
        if head.startswith(binary.GZIP):
            with decoding(path), gzip.open(path) as file:
                head = file.read(4)
        if not binary.is_idx(head):
            known = [*(suffix for kind in FORMATS for suffix in kind.suffixes), "IDX and IDX.gz (the format of MNIST)"]
            raise SpecError(f"{path} has an unknown format; these can be ingested: {', '.join(known)}")
        kind = _IDX
    if kind in (_TEXT, _PARQUET, _ARROW):
        require("pyarrow", "tables", str(path))
    if kind is _TEXT:
        check_first_lines(path, allowed)
    return kind
