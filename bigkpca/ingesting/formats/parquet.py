"""Reader of Parquet files, by the library pyarrow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.rows import check_shape
from bigkpca.errors import Array, DataError, unknown_name
from bigkpca.ingesting.formats.base import TEXT, check_finite_labels, check_single, decoding, refuse_member
from bigkpca.ingesting.tables.columns import Kind, kind_of
from bigkpca.ingesting.tables.frame import Frame, Labels


def ends_as_parquet(path: Path) -> bool:
    """Whether the last four bytes are the signature of Parquet, as the first four are."""
    with path.open("rb") as file:
        file.seek(-min(4, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read() == b"PAR1"


def parquet(path: Path, member: str | None, labels: str | None) -> Frame:
    """Columns of a Parquet file, without labels and the index of a pandas frame."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    refuse_member(path, member)
    with decoding(path, pa.ArrowException), ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    if labels is not None and labels not in schema.names:
        raise unknown_name(f"column of {path}", labels, schema.names)
    if labels is not None:
        check_single(schema.names, labels, str(path))
    index = [name for name in _index(schema) if name != labels]
    columns = tuple(j for j, name in enumerate(schema.names) if name != labels and name not in index)
    check_shape((rows, len(columns)), str(path))

    def read(kinds: Mapping[int, Kind]) -> Iterator[Any]:
        size = max(1, READ_BYTES // (len(kinds) * 8))
        names = [schema.names[j] for j in kinds]
        alone = all(schema.names.count(name) == 1 for name in names)  # else columns are found by number, among all
        with decoding(path, pa.ArrowException), ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size, columns=names if alone else None):
                yield batch.select(names if alone else list(kinds))

    notes = [
        f"column {name!r} is left out, as it is the index of a pandas frame and no feature (to keep it, write the "
        "frame after reset_index())"
        for name in index
    ]
    return Frame(
        where=str(path),
        columns=columns,
        names=tuple(schema.names),
        kinds=tuple(kind_of(schema.field(j).type) for j in columns),
        types=tuple(str(schema.field(j).type) for j in columns),
        dtypes=tuple(_dtype(schema.field(j).type) for j in columns),
        rows=rows,
        labels=None if labels is None else _labels(schema, labels, path),
        read=read,
        notes=tuple(notes),
    )


def _index(schema: Any) -> list[str]:
    """Columns that hold the index of a pandas frame: by pandas' metadata or, where that is lost, by their names."""
    named = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in schema.names if name in named or re.fullmatch(r"__index_level_\d+__", name)]


def _dtype(kind: Any) -> np.dtype[Any] | None:
    """The dtype of the values of a column of integers, floats or truth values; None for any other."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _dtype(kind.value_type)
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if number else None


def _labels(schema: Any, name: str, path: Path) -> Labels:
    """The labels in a column: numbers of its dtype, text for everything else."""
    where = f"{path}:{name}"
    dtype = _dtype(schema.field(name).type) or TEXT

    def values(column: Any, rows: Array) -> Array:
        if column.null_count:
            row = rows[np.argmax(column.is_null().to_numpy(zero_copy_only=False))]
            raise DataError(f"{path}: row {row} (counted from 0) has no label: column {name!r} is null")
        texts = _texts(column, where) if dtype == TEXT else column
        found: Array = texts.to_numpy(zero_copy_only=False).astype(dtype)
        check_finite_labels(found, rows, str(path))
        return found

    return Labels(schema.names.index(name), dtype, values)


def _texts(column: Any, where: str) -> Any:
    """The values of a column as text. Raises DataError where they have no text form."""
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except pa.ArrowException as error:
        raise DataError(
            f"{where}, of type {column.type}, cannot be labels, which are numbers or text in UTF-8: {error}"
        ) from error
