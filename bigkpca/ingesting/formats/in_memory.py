"""Tables that are not files: of pandas, polars and pyarrow, and streams of Arrow batches."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from tempfile import TemporaryFile, gettempdir
from typing import Any

from bigkpca.data.frames import is_dask_frame, is_of
from bigkpca.errors import DataError, IncompleteError, SpecError, require
from bigkpca.ingesting.columns import TableFrame
from bigkpca.ingesting.formats.arrow import Read, arrow_frame, batch_rows, cut, plain, plain_type

_INDEX = "leaving out the index of the frame (to keep it, call reset_index() first)"


@dataclass(frozen=True)
class _Held:
    """A table that is not a file. unfit: as in `_frame`; these columns are null here."""

    schema: Any
    rows: int
    read: Read
    unfit: Mapping[int, str] | None = None
    notes: tuple[str, ...] = ()


def kind_of_table(data: Any) -> str:
    """What to call a table in messages, e.g. "pandas DataFrame"."""
    return f"{type(data).__module__.partition('.')[0].strip('_')} {type(data).__name__}"


def table_in_memory(data: Any, where: str, labels: str | None) -> tuple[TableFrame, str]:
    """The columns of a table that is not a file, and a digest of its values.

    Tables of pandas, polars and pyarrow are read in parts. The rows of others, such as a LazyFrame or a reader, can be
    read once, or are computed each time: they are copied to a temporary file first. Raises SpecError for anything that
    is not a table, and DataError for an empty one.
    """
    require("pyarrow", "tables", where)
    import pyarrow as pa

    if is_of(data, "pandas", "DataFrame"):
        held = _pandas(data)
    elif isinstance(data, pa.Table | pa.RecordBatch) or is_of(data, "polars", "DataFrame"):
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else _as_arrow(pa.table, data, where)
        read = _in_parts(len(table), lambda start, rows, numbers: table.slice(start, rows).select(list(numbers)))
        held = _Held(table.schema, len(table), read)
    else:
        held = _copied(data, where)
    frame = arrow_frame(where, held.schema, held.rows, labels, held.read, held.unfit)
    return replace(frame, notes=frame.notes + held.notes), _digest(held)


def _as_arrow(convert: Callable[[Any], Any], data: Any, where: str) -> Any:
    """The data as an object of pyarrow. Raises DataError for types that Arrow does not have."""
    import pyarrow as pa

    try:
        return convert(data)
    except pa.ArrowException as error:
        raise _not_arrow(where, error) from error


def _not_arrow(where: str, error: Exception) -> DataError:
    return DataError(f"{where} cannot be read as an Arrow table: {error}")


def _in_parts(rows: int, part: Callable[[int, int, Sequence[int]], Any]) -> Read:
    """A reader of a table in memory. part: (first row, number of rows, columns) -> pyarrow.Table."""

    def read(size: int, numbers: Sequence[int]) -> Iterator[Any]:
        for start in range(0, rows, size):
            found = part(start, min(size, rows - start), numbers)
            yield from map(plain, found.combine_chunks().to_batches())

    return read


def _pandas(frame: Any) -> _Held:
    """The columns of a pandas frame, without its index."""
    import pyarrow as pa

    kinds, unfit = [], {}
    for j, dtype in enumerate(frame.dtypes):
        try:
            kinds.append(pa.array(frame.iloc[:, j], from_pandas=True).type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            kinds.append(pa.null())
            unfit[j] = f"{dtype} ({error})"
        if isinstance(kinds[j], pa.ExtensionType):
            kinds[j], unfit[j] = pa.null(), str(dtype)
    names = [str(name) for name in frame.columns]

    def part(start: int, rows: int, numbers: Sequence[int]) -> Any:
        rows_of = frame.iloc[start : start + rows]
        columns = [
            pa.nulls(rows) if j in unfit else pa.array(rows_of.iloc[:, j], kinds[j], from_pandas=True) for j in numbers
        ]
        return pa.table(columns, names=[names[j] for j in numbers])

    schema = pa.schema(list(zip(names, kinds, strict=True)))
    notes = () if type(frame.index).__name__ == "RangeIndex" else (_INDEX,)
    return _Held(schema, len(frame), _in_parts(len(frame), part), unfit, notes)


def _copied(data: Any, where: str) -> _Held:
    """A table whose rows are copied to a temporary file, which disappears with the last reference to it."""
    import pyarrow as pa

    given, batches = _stream(data, where)
    schema = pa.schema([each.with_type(plain_type(each.type)) for each in given], given.metadata)
    file = TemporaryFile()  # noqa: SIM115 (the frame reads it for as long as it exists)
    rows, every = 0, range(len(schema))
    try:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(pa.PythonFile(file, "w"), schema, options=options) as writer:
            for batch in cut(batches, batch_rows(len(schema)), every):
                writer.write_batch(batch)
                rows += len(batch)
    except pa.ArrowException as error:
        raise _not_arrow(where, error) from error
    except OSError as error:
        raise IncompleteError(
            f"{where} can be read only once, and its rows cannot be copied to a temporary file in {gettempdir()}: "
            f"{error}; set the environment variable TMPDIR to a folder with more space"
        ) from error
    if not rows:
        raise DataError(f"{where} is empty: it has no rows, or they have already been read")

    def read(size: int, numbers: Sequence[int]) -> Iterator[Any]:
        file.seek(0)
        yield from cut(pa.ipc.open_stream(pa.PythonFile(file, "r")), size, numbers)

    return _Held(schema, rows, read)


def _stream(data: Any, where: str) -> tuple[Any, Iterable[Any]]:
    """The schema and the batches of a table that is read once. Raises SpecError for anything that is not a table."""
    import pyarrow as pa

    if is_of(data, "polars", "LazyFrame"):
        if not hasattr(data, "collect_batches"):
            raise SpecError(
                f"{where} is read in batches by Polars 1.34 and later: install it, or write the frame with "
                "sink_parquet(FILE.parquet) and ingest the file"
            )
        parts = map(pa.table, data.collect_batches())
        return pa.table(data.head(0).collect()).schema, (batch for part in parts for batch in part.to_batches())
    if is_of(data, "pyarrow.dataset", "Dataset"):
        data = data.scanner(batch_readahead=1, fragment_readahead=1).to_reader()
    if not hasattr(data, "__arrow_c_stream__"):
        advice = "fit and transform use arrays as they are"
        if is_dask_frame(data):
            advice = "write it with to_parquet(FOLDER), and ingest this folder"
        raise SpecError(f"{where} cannot be ingested: give paths, or tables of pandas, polars or pyarrow; {advice}")
    reader = _as_arrow(pa.RecordBatchReader.from_stream, data, where)
    return reader.schema, reader


class _Digest(io.RawIOBase):
    """A file that keeps only the SHA-256 of what is written to it."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        return len(content)


def _digest(held: _Held) -> str:
    """The SHA-256 of the values and names, in Arrow's stream format. One pass."""
    import pyarrow as pa

    file, every = _Digest(), range(len(held.schema))
    first = None
    for batch in held.read(batch_rows(len(every)), every):
        first = first or pa.ipc.new_stream(pa.PythonFile(file, "w"), batch.schema)
        first.write_batch(batch)
    return file.sha256.hexdigest()
