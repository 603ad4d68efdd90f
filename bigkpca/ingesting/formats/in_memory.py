"""Tables that are not files: of pandas, polars and pyarrow, and streams of Arrow batches."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any
from weakref import finalize

from bigkpca.data.frames import is_dask_frame, is_of
from bigkpca.errors import BigKPCAError, DataError, IncompleteError, SpecError, require
from bigkpca.execution.progress import Progress, shown_pass
from bigkpca.ingesting.beside import Names
from bigkpca.ingesting.columns import TableFrame
from bigkpca.ingesting.formats.arrow import Read, arrow_frame, batch_rows, cut, plain, plain_type

_INDEX = "leaving out the index of the frame (to keep it, call reset_index() first)"


@dataclass(frozen=True)
class _Held:
    """A table that is not a file. unfit: as in `arrow_frame`; these columns are null here. digest: of its rows, if they
    have been read."""

    schema: Any
    rows: int
    read: Read
    unfit: Mapping[int, str] | None = None
    notes: tuple[str, ...] = ()
    digest: str | None = None


def kind_of_table(data: Any) -> str:
    """What to call a table in messages, e.g. "pandas DataFrame"."""
    return f"{type(data).__module__.partition('.')[0].strip('_')} {type(data).__name__}".removeprefix("builtins ")


def table_in_memory(data: Any, where: str, names: Names, progress: Progress) -> tuple[TableFrame, str]:
    """The columns of a table that is not a file, and a digest of its rows, which takes one pass over them.

    Tables of pandas, polars and pyarrow are read in parts. The rows of others, such as a LazyFrame or a reader, can be
    read once, or are computed each time: they are copied to a temporary file first. Raises SpecError for anything that
    is not a table, and DataError for an empty one.
    """
    require("pyarrow", "tables", where)
    import pyarrow as pa

    if is_of(data, "pandas", "DataFrame"):
        held = _pandas(data)
    elif isinstance(data, pa.Table | pa.RecordBatch) or is_of(data, "polars", "DataFrame"):
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else _arrow_table(data, where)
        read = _in_parts(len(table), lambda start, rows, numbers: table.slice(start, rows).select(list(numbers)))
        held = _Held(table.schema, len(table), read)
    else:
        held = _copied(data, where, progress)
    frame = arrow_frame(where, held.schema, held.rows, names, held.read, held.unfit)
    digest = held.digest
    if digest is None:
        every = range(len(held.schema))
        batches = held.read(batch_rows(len(every)), every)
        digest, _ = _write(batches, _plain_schema(held.schema), None, progress, f"reading {where}", held.rows)
    return replace(frame, notes=frame.notes + held.notes), digest


def _arrow_table(frame: Any, where: str) -> Any:
    """A frame in memory as a pyarrow.Table. Raises DataError for types that pyarrow does not have."""
    import pyarrow as pa

    try:
        return pa.table(frame)
    except pa.ArrowException as error:
        raise DataError(f"{where} cannot be read as an Arrow table: {error}") from error


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
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
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


def _copied(data: Any, where: str, progress: Progress) -> _Held:
    """A table whose rows are copied to a temporary file, which exists as long as the reader of its rows."""
    import pyarrow as pa

    with _of_source(where):
        schema, batches = _stream(data, where)
    pieces = cut(_guarded(batches, where), batch_rows(len(schema)), range(len(schema)))
    schema = _plain_schema(schema)
    with ExitStack() as closing:
        try:
            file = closing.enter_context(TemporaryFile())
            digest, rows = _write(pieces, schema, file, progress, f"copying {where}", 0)
        except pa.ArrowException as error:  # the batches have another schema than the table
            raise DataError(f"{where} cannot be read as an Arrow table: {error}") from error
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

        finalize(read, closing.pop_all().close)
    return _Held(schema, rows, read, digest=digest)


@contextmanager
def _of_source(where: str) -> Iterator[None]:
    """Turn any error of the source of a table, such as a missing file or a function of the user, into a DataError."""
    try:
        yield
    except (BigKPCAError, MemoryError):
        raise
    except Exception as error:
        # Arrow appends the traceback, and Polars its plan.
        said = str(error).partition(". Detail: ")[0].partition("\n\n")[0]
        raise DataError(f"{where} cannot be read: {type(error).__name__}: {said}") from error


def _guarded(batches: Iterable[Any], where: str) -> Iterator[Any]:
    with _of_source(where):
        yield from batches


def _stream(data: Any, where: str) -> tuple[Any, Iterable[Any]]:
    """The schema and the batches of a table that is read once. Raises SpecError for anything that is not a table."""
    import pyarrow as pa

    if is_of(data, "polars", "LazyFrame"):
        if not hasattr(data, "collect_batches"):
            raise SpecError(
                f"{where} is read in batches by Polars 1.34 and later: install it, or write the frame with "
                "sink_parquet(FILE.parquet) and ingest the file"
            )
        schema = _arrow_table(data.head(0).collect(), where).schema
        return schema, (batch for part in data.collect_batches() for batch in pa.table(part).to_batches())
    if is_of(data, "pyarrow.dataset", "Dataset"):
        data = data.scanner(batch_readahead=1, fragment_readahead=1).to_reader()
    if not hasattr(data, "__arrow_c_stream__"):
        advice = "fit and transform use arrays as they are"
        if is_dask_frame(data):
            advice = "write it with to_parquet(FOLDER), and ingest this folder"
        raise SpecError(f"{where} cannot be ingested: give paths, or tables of pandas, polars or pyarrow; {advice}")
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:
        raise SpecError(f"{where} is not a table ({error}): pass a frame, with columns that have names") from error
    return reader.schema, reader


def _plain_schema(schema: Any) -> Any:
    import pyarrow as pa

    return pa.schema([each.with_type(plain_type(each.type)) for each in schema], schema.metadata)


class _Digested(io.RawIOBase):
    """A file that keeps the SHA-256 of what is written to it, and passes it on to another one, if there is one."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self.sha256, self.file = hashlib.sha256(), file

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        return len(content) if self.file is None else self.file.write(content)


def _write(
    batches: Iterable[Any], schema: Any, file: IO[bytes] | None, progress: Progress, title: str, rows: int
) -> tuple[str, int]:
    """Write batches to a file, if there is one, in Arrow's stream format; return its SHA-256 and the number of rows."""
    import pyarrow as pa

    digested, done = _Digested(file), 0
    options = pa.ipc.IpcWriteOptions(compression=None if file is None else "lz4")
    with (
        shown_pass(progress, title, rows) as advance,
        pa.ipc.new_stream(pa.PythonFile(digested, "w"), schema, options=options) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
            done += len(batch)
            advance(len(batch))
    return digested.sha256.hexdigest(), done
