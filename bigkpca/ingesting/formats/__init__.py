"""Readers of .npy, .npz, .csv, IDX, Parquet and HDF5 files, as streams of bounded batches.

A reader looks at the header of a file and returns a Table, whose batches open the file again when they are read.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

from bigkpca.errors import SpecError, check_numeric
from bigkpca.ingesting.formats import binary, columnar, text
from bigkpca.ingesting.formats.table import TEXT, Column, Table, decoding

__all__ = ["TEXT", "Column", "Table", "open_column", "open_table"]

_SIGNATURES = {
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"PAR1": "parquet",
    b"\x89HDF\r\n\x1a\n": "hdf5",
}
_SUFFIXES = {
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
}
_TABLES: dict[str, Callable[[Path, str | None, str | None], Table]] = {
    "npy": binary.npy,
    "npz": binary.npz,
    "idx": binary.idx,
    "csv": text.csv_table,
    "parquet": columnar.parquet,
    "hdf5": columnar.hdf5,
}
_COLUMNS: dict[str, Callable[[Path], Column]] = {
    "npy": binary.npy_column,
    "idx": binary.idx_column,
    "csv": text.csv_column,
}


def open_table(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of the file at `path`: those of its array `member`, without its column or array `labels`.

    Raises SpecError for an unknown format or name, DataError for values that cannot be rows, CorruptionError for bytes
    that do not decode; reading the batches raises the last two.
    """
    table = _TABLES[_format(path)](path, member, labels)
    check_numeric(table.dtype, table.where)
    return table


def open_column(path: Path) -> Column:
    """Labels (n,) of the file at `path`: a .npy or IDX file with one axis, or a .csv with one column.

    The first line of such a .csv is its header unless it is a number. Raises like `open_table`.
    """
    kind = _format(path)
    if kind not in _COLUMNS:
        raise SpecError(f"{path}: labels in a file of their own come as .npy, IDX or one-column .csv")
    return _COLUMNS[kind](path)


def _format(path: Path) -> str:
    """The format of a file: by its signature where it has one, else by its suffix."""
    with path.open("rb") as file:
        head = file.read(8)
    signed = next((kind for signature, kind in _SIGNATURES.items() if head.startswith(signature)), None)
    suffixed = next((kind for suffix, kind in _SUFFIXES.items() if path.name.lower().endswith(suffix)), None)
    if signed == "parquet" and suffixed and not columnar.ends_as_parquet(path):  # text may begin with PAR1 as well
        return suffixed
    if signed or suffixed:
        return str(signed or suffixed)
    if head.startswith(binary.GZIP):
        with decoding(path), gzip.open(path) as file:
            head = file.read(4)
    if binary.is_idx(head):
        return "idx"
    raise SpecError(
        f"{path} is in no format that can be ingested: those are .npy, .npz, .csv, .csv.gz, IDX and IDX.gz "
        "(as MNIST comes), .parquet and .h5"
    )
