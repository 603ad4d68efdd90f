"""Readers of Parquet and HDF5 files, by the optional libraries pyarrow and h5py."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, SpecError, check_numeric, unknown_name
from bigkpca.ingesting.formats.base import (
    TEXT,
    Batches,
    Stored,
    Table,
    check_single,
    choose,
    decoding,
    member_table,
    native,
    ranges,
    refuse_member,
    row_shape,
)


def _missing(path: Path, library: str) -> SpecError:
    """The error for a library that is not installed."""
    return SpecError(f"{path} needs {library} to be read: pip install 'bigkpca[io]'")


def ends_as_parquet(path: Path) -> bool:
    """Whether the last four bytes are the signature of Parquet, as the first four are."""
    with path.open("rb") as file:
        file.seek(-min(4, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read() == b"PAR1"


def parquet(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of a Parquet file in the common type of its columns, without labels and the index of a pandas frame."""
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
    if labels is not None:
        check_single(schema.names, labels, str(path))
    index = [name for name in _index(schema) if name != labels]
    # By number, since several columns may have the same name.
    columns = {j: name for j, name in enumerate(schema.names) if name != labels and name not in index}
    axes = row_shape((rows, len(columns)), str(path))
    dtype = np.result_type(*(_column_type(schema.field(j).type, f"{path}:{name}") for j, name in columns.items()))
    label_dtype = None if labels is None else _label_type(schema.field(labels).type)

    def batches() -> Batches:
        size = max(1, READ_BYTES // (len(columns) * dtype.itemsize))
        first = 0
        with decoding(path, pyarrow.ArrowException), ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size):
                X = np.empty((len(batch), len(columns)), dtype)
                for k, (j, name) in enumerate(columns.items()):
                    X[:, k] = _values(batch.column(j), name, first, path)
                if labels is None:
                    yield X, None
                else:
                    column = batch.column(labels)
                    values = _texts(column, f"{path}:{labels}") if label_dtype == TEXT else column
                    yield X, _values(values, labels, first, path).astype(label_dtype)
                first += len(batch)

    notes = [
        f"column {name!r} is left out, as it is the index of a pandas frame and no feature (to keep it, write the "
        "frame after reset_index())"
        for name in index
    ]
    return Table(str(path), dtype, axes, rows, label_dtype, batches(), tuple(columns.values()), tuple(notes))


def _index(schema: Any) -> list[str]:
    """Columns that hold the index of a pandas frame: by pandas' metadata or, where that is lost, by their names."""
    named = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in schema.names if name in named or re.fullmatch(r"__index_level_\d+__", name)]


def _column_type(kind: Any, where: str) -> np.dtype[Any]:
    """The dtype of a column. Raises DataError where it is not numeric."""
    from pyarrow import types

    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    dtype = np.dtype(kind.to_pandas_dtype() if number else object)
    check_numeric(dtype, f"{where}, of type {kind},")
    return dtype


def _label_type(kind: Any) -> np.dtype[Any]:
    """The dtype of labels: that of their values for numbers, text for everything else."""
    from pyarrow import types

    try:
        return _column_type(kind.value_type if types.is_dictionary(kind) else kind, "")
    except DataError:
        return TEXT


def _texts(column: Any, where: str) -> Any:
    """The values of a column as text. Raises DataError where they have no text form."""
    import pyarrow

    try:
        return column.cast(pyarrow.string())
    except pyarrow.ArrowException as error:
        raise DataError(
            f"{where}, of type {column.type}, cannot be labels, which are numbers or text in UTF-8: {error}"
        ) from error


def _values(column: Any, name: str, first: int, path: Path) -> Array:
    """The values of a column of a batch. Raises DataError at its first null."""
    if column.null_count:
        row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(
            f"{path}: row {row} (counted from 0), column {name!r} is null; remove or impute such rows first"
        )
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def hdf5(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of one data set of an HDF5 file, with those of another as labels."""
    try:
        import h5py
    except ImportError as error:
        raise _missing(path, "h5py") from error
    arrays: dict[str, Stored] = {}

    def look(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            shape = (0,) if node.shape is None else node.shape  # a null data set has none
            try:
                dtype = node.dtype
            except TypeError:  # types that NumPy does not have, such as times
                dtype = np.dtype(object)
            arrays[name] = Stored(shape, TEXT if h5py.check_string_dtype(dtype) is not None else dtype)

    with decoding(path), h5py.File(path, "r") as file:
        file.visititems(look)
    chosen = choose(arrays, member, labels, str(path))

    def pieces(file: Any, name: str) -> Iterator[Array]:
        x = arrays[chosen]
        stored = file[name].asstr("utf-8") if arrays[name].dtype == TEXT else file[name]
        for a, b in ranges(x.shape[0], x.row_bytes):
            with _utf8(f"{path}:{name}"):
                values = stored[a:b]
            values = values.astype(str) if values.dtype == object else native(values)
            yield values.reshape(b - a, math.prod(values.shape[1:])) if name == chosen else values

    def batches() -> Batches:
        with decoding(path), h5py.File(path, "r") as file:
            ys = repeat(None) if labels is None else pieces(file, labels)
            yield from zip(pieces(file, chosen), ys, strict=False)

    return member_table(path, arrays, chosen, labels, batches())


@contextmanager
def _utf8(where: str) -> Iterator[None]:
    """Turn an error of decoding text into a DataError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not text in UTF-8: {error}") from error
