"""Readers of Arrow data: the columns of a schema as a frame, and Parquet and Arrow (Feather) files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.data.beside import LABELS, Beside
from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import Array, DataError, SpecError, column_called, unknown_name
from bigkpca.ingesting.beside import Names, check_single, check_values, weights_of_column
from bigkpca.ingesting.columns import BesideColumn, TableFrame, kind_of
from bigkpca.ingesting.formats.base import TEXT, decoding, refuse_names

Read = Callable[[int, Sequence[int]], Iterator[Any]]
"""Returns batches of at most this number of rows, with the columns of these numbers, in this order."""


def ends_as_parquet(path: Path) -> bool:
    """Whether the last four bytes are the signature of Parquet, as the first four are."""
    with path.open("rb") as file:
        file.seek(-min(4, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read() == b"PAR1"


def parquet(path: Path, member: str | None, names: Names) -> TableFrame:
    """Columns of a Parquet file, without the index of a pandas frame, and the values of those named beside them."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    refuse_names(path, member)
    with decoding(path, pa.ArrowException), ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows

    def read(size: int, numbers: Sequence[int]) -> Iterator[Any]:
        names = [schema.names[j] for j in numbers]
        alone = all(schema.names.count(name) == 1 for name in names)  # otherwise columns are matched by number
        with decoding(path, pa.ArrowException), ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size, columns=names if alone else None):
                yield batch.select(names if alone else list(numbers))

    return arrow_frame(str(path), schema, rows, names, read)


def feather(path: Path, member: str | None, names: Names) -> TableFrame:
    """Columns of an Arrow file: of Feather (version 2), which has an index of its batches, or of a stream."""
    import pyarrow as pa
    from pyarrow.dataset import dataset

    refuse_names(path, member)
    with path.open("rb") as file:
        head = file.read(6)
    if head.startswith(b"FEA1"):
        raise SpecError(
            f"{path} is a Feather file of version 1, which cannot be read in batches: write it again as version 2, "
            "e.g. with pyarrow.feather.read_table and write_feather"
        )
    indexed = head == b"ARROW1"

    def opened(numbers: Sequence[int] | None) -> Any:
        if not indexed:
            return pa.ipc.open_stream(pa.OSFile(str(path)))
        included = pa.ipc.IpcReadOptions(included_fields=None if numbers is None else sorted(numbers))
        return pa.ipc.open_file(pa.OSFile(str(path)), options=included)

    def read(size: int, numbers: Sequence[int]) -> Iterator[Any]:
        with decoding(path, pa.ArrowException), opened(numbers) as file:
            batches = map(file.get_batch, range(file.num_record_batches)) if indexed else file
            places = [sorted(numbers).index(j) for j in numbers] if indexed else numbers
            yield from cut(batches, size, places)

    with decoding(path, pa.ArrowException), opened(None) as file:
        schema = file.schema
        rows = dataset(str(path), format="feather").count_rows() if indexed else None
    return arrow_frame(str(path), schema, rows, names, read)


def arrow_frame(
    where: str, schema: Any, rows: int | None, names: Names, read: Read, unfit: Mapping[int, str] | None = None
) -> TableFrame:
    """The columns of Arrow data, without the index of a pandas frame, and the values of those named beside them. unfit:
    the types of columns, by their numbers, that Arrow cannot hold."""
    unfit, apart = unfit or {}, set(names.values())
    for kind, name in names.items():
        if name not in schema.names:
            raise unknown_name(f"column of {where}", name, schema.names)
        check_single(schema.names, name, where, kind)
        if (number := schema.names.index(name)) in unfit:
            called = column_called(number, schema.names)
            raise DataError(f"{where}: {called} is of type {unfit[number]}: it cannot be {kind.noun}s")
    # The index of a pandas frame, by pandas' metadata or, where that is lost, by the names.
    named = (schema.pandas_metadata or {}).get("index_columns", [])
    index = [
        name
        for name in schema.names
        if name not in apart and (name in named or re.fullmatch(r"__index_level_\d+__", name))
    ]
    columns = tuple(j for j, name in enumerate(schema.names) if name not in apart and name not in index)
    if not columns:
        besides = f" besides its {' and '.join(f'{kind.noun}s' for kind in names)}" if names else ""
        raise DataError(f"{where} has no columns{besides}")
    notes = [
        f"leaving out column {name!r}, which is the index of a pandas frame (to keep it, call reset_index() before "
        "writing the frame)"
        for name in index
    ]
    return TableFrame(
        where=where,
        columns=columns,
        names=tuple(schema.names),
        kinds=tuple(None if j in unfit else kind_of(schema.field(j).type) for j in columns),
        types=tuple(unfit.get(j, str(schema.field(j).type)) for j in columns),
        dtypes=tuple(dtype_of(schema.field(j).type) for j in columns),
        rows=rows,
        beside={
            kind: beside_of(kind, schema.names.index(name), schema.names, schema.field(name).type, where)
            for kind, name in names.items()
        },
        read=lambda kinds: read(batch_rows(len(kinds)), list(kinds)),
        notes=tuple(notes),
    )


def batch_rows(columns: int) -> int:
    """Rows of a batch that takes at most 4 MB as numbers."""
    return max(1, READ_BYTES // (8 * max(1, columns)))


def cut(batches: Iterable[Any], size: int, numbers: Sequence[int]) -> Iterator[Any]:
    """These columns of the batches, in pieces of at most this number of rows."""
    for batch in batches:
        chosen = plain(batch.select(list(numbers)))
        yield from (chosen.slice(start, size) for start in range(0, len(chosen), size))


def plain(batch: Any) -> Any:
    """A batch with text of types that all functions of pyarrow accept; polars has another one, string_view."""
    import pyarrow as pa

    kinds = [plain_type(kind) for kind in batch.schema.types]
    if kinds == batch.schema.types:
        return batch
    columns = []
    for column, kind in zip(batch.columns, kinds, strict=True):
        if column.type != kind and pa.types.is_dictionary(kind):
            words = column.dictionary.cast(kind.value_type)
            column = pa.DictionaryArray.from_arrays(column.indices, words, ordered=kind.ordered)
        columns.append(column if column.type == kind else column.cast(kind))
    return pa.record_batch(columns, names=batch.schema.names)


def plain_type(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def dtype_of(kind: Any) -> np.dtype[Any] | None:
    """The dtype of the values of a column of integers, floats or booleans; None for any other."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return dtype_of(kind.value_type)
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if number else None


def beside_of(kind: Beside, number: int, names: Sequence[str], type_: Any, where: str) -> BesideColumn:
    """The values in a column of an Arrow type, beside the rows. names: of all columns. Raises DataError for a type that
    cannot be weights."""
    if kind is LABELS:
        return _labels(number, names[number], type_, where)
    called = column_called(number, names)
    if kind_of(type_) not in ("number", "boolean", "text"):
        raise DataError(f"{where}: {called} is of type {type_}: {kind.noun}s are numbers")
    return weights_of_column(number, called, where)


def _labels(number: int, name: str, type_: Any, where: str) -> BesideColumn:
    """The labels in a column: numbers of its dtype, text for everything else."""
    import pyarrow as pa

    dtype = dtype_of(type_) or TEXT

    def values(column: Any, rows: Array) -> Array:
        if column.null_count:
            row = rows[np.argmax(column.is_null().to_numpy(zero_copy_only=False))]
            raise DataError(f"{where}: row {row} (counted from 0) has no label: column {name!r} is null")
        if dtype == TEXT:
            try:
                column = column.cast(pa.string())
            except pa.ArrowException as error:
                raise DataError(
                    f"{where}:{name}, of type {column.type}, cannot be labels, which must be numbers or UTF-8 text: "
                    f"{error}"
                ) from error
        found: Array = column.to_numpy(zero_copy_only=False).astype(dtype)
        check_values(LABELS, found, rows, where)
        return found

    return BesideColumn(number, dtype, values)
