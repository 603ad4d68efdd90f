"""Parquet and HDF5, through pyarrow and h5py, which are optional."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, SpecError, check_numeric, unknown_name
from bigkpca.formats.table import (
    TEXT,
    Batches,
    Stored,
    Table,
    choose,
    decoding,
    member_table,
    native,
    ranges,
    refuse_member,
    row_shape,
)


def _missing(path: Path, library: str) -> SpecError:
    return SpecError(f"{path} needs {library} to be read: pip install 'bigkpca[io]'")


def parquet(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of a Parquet file, without its column of labels; all columns in their common type."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise _missing(path, "pyarrow") from error
    refuse_member(path, member)
    with decoding(path, pyarrow.ArrowException), ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    if labels is not None and labels not in schema.names:
        raise unknown_name(f"column of {path}", labels, schema.names)
    columns = [name for name in schema.names if name != labels]
    axes = row_shape((rows, len(columns)), str(path))
    dtype = np.result_type(*(_column_type(schema.field(name).type, f"{path}:{name}") for name in columns))

    def batches() -> Batches:
        size = max(1, READ_BYTES // (len(columns) * dtype.itemsize))
        first = 0
        with decoding(path, pyarrow.ArrowException), ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size):
                X = np.empty((len(batch), len(columns)), dtype)
                for j, name in enumerate(columns):
                    X[:, j] = _values(batch.column(name), name, first, path)
                yield X, None if labels is None else _values(batch.column(labels), labels, first, path)
                first += len(batch)

    return Table(str(path), dtype, axes, rows, _label_type(schema, labels), batches())


def _column_type(kind: Any, where: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(kind.to_pandas_dtype())
    except NotImplementedError:  # types that NumPy does not have
        dtype = np.dtype(object)
    check_numeric(dtype, f"{where}, of type {kind},")
    return dtype


def _label_type(schema: Any, labels: str | None) -> np.dtype[Any] | None:
    if labels is None:
        return None
    try:
        return _column_type(schema.field(labels).type, labels)
    except DataError:
        return TEXT


def _values(column: Any, name: str, first: int, path: Path) -> Array:
    """A column of a batch as numbers or text; DataError at its first null."""
    if column.null_count:
        row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(
            f"{path}: row {row} (counted from 0), column {name!r} is null; remove or impute such rows first"
        )
    values: Array = column.to_numpy(zero_copy_only=False)
    return values.astype(str) if values.dtype == object else values


def hdf5(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of one data set of an HDF5 file, with those of another as labels."""
    try:
        import h5py
    except ImportError as error:
        raise _missing(path, "h5py") from error
    arrays: dict[str, Stored] = {}

    def look(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            text = h5py.check_string_dtype(node.dtype) is not None
            arrays[name] = Stored(node.shape, TEXT if text else node.dtype)

    with decoding(path), h5py.File(path, "r") as file:
        file.visititems(look)
    chosen = choose(arrays, member, labels, str(path))

    def pieces(file: Any, name: str) -> Iterator[Array]:
        x = arrays[chosen]
        stored = file[name].asstr() if arrays[name].dtype == TEXT else file[name]
        for a, b in ranges(x.shape[0], x.row_bytes):
            values = stored[a:b]
            values = values.astype(str) if values.dtype == object else native(values)
            yield values.reshape(b - a, math.prod(values.shape[1:])) if name == chosen else values

    def batches() -> Batches:
        with decoding(path), h5py.File(path, "r") as file:
            ys = repeat(None) if labels is None else pieces(file, labels)
            yield from zip(pieces(file, chosen), ys, strict=False)

    return member_table(path, arrays, chosen, labels, batches())
