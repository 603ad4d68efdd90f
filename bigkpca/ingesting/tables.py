"""Tables as Arrow reads them: CSV, Parquet and Feather files, folders of them, FASTA, and tables in memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.frames import is_dask_frame
from bigkpca.errors import (
    BigKPCAError,
    CorruptionError,
    DataError,
    IncompleteError,
    MemoryLimitError,
    SpecError,
    names_apart,
    unknown_name,
)
from bigkpca.ingesting.arrays import undecodable, unpacked
from bigkpca.ingesting.encoder import kind_of

TABLE_ENDINGS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".dat", ".csv.gz", ".tsv.gz", ".txt.gz", ".dat.gz"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".feather", ".arrow", ".ipc"), "feather"),
    **dict.fromkeys((f"{end}{gz}" for end in (".fasta", ".fa", ".fna", ".faa") for gz in ("", ".gz")), "fasta"),
}
SEQUENCE = "sequence"  # the column of a FASTA file
_MOST_COLUMNS = 10_000  # which Arrow types in less than 200 MB
_BLOCK_BYTES = 2**20  # of text that Arrow parses at once; no line may be longer
_ADVICE = (
    "state the encoding, the delimiter or the type of the column (--csv encoding=cp1252, --csv 'delimiter=;', --csv "
    "column_types=NAME:string; csv= in Python), or clean the table, e.g. with polars: "
    "pl.read_csv(...).write_parquet('clean.parquet')"
)


@dataclass(frozen=True)
class Table:
    """Files or a table in memory with the same columns.

    schema: of the columns to read, in the order of the first file. parts: the files, as fragments of a pyarrow.dataset.
    read: returns columns of a file. rows: 0 if they have to be read to be counted. notes: what a user may not expect.
    text: the column whose characters are the rows.
    """

    where: str
    schema: Any
    parts: tuple[Any, ...]
    read: Callable[[Any, Any, list[str], int], Iterator[Any]]
    rows: int
    notes: tuple[str, ...] = ()
    of_text: bool = False
    text: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        found: list[str] = self.schema.names
        return found

    def batches(self, names: Sequence[str], width: int = 1) -> Iterator[tuple[str, int, Any]]:
        """These columns of all rows, in batches of at most 4 MB where a row becomes `width` numbers, each with its file
        and the number of its first row there."""
        columns = list(dict.fromkeys(names))
        step = max(1, READ_BYTES // (8 * max(len(columns), width)))
        for part in self.parts:
            first = 0
            with reading(part.path):
                for batch in _batches_of(self, part, columns, step):
                    for start in range(0, len(batch), step):  # some readers make longer ones
                        piece = batch.slice(start, step)
                        yield part.path if self.parts[1:] else self.where, first, piece
                        first += len(piece)


def _batches_of(table: Table, part: Any, names: Sequence[str], step: int) -> Iterator[Any]:
    """These columns of a file, with their types in the table, one batch after the other. A scan of a dataset reads
    ahead without a limit, while the rows before are written."""
    import pyarrow as pa
    from pyarrow import dataset

    schema, keys = table.schema, dataset.get_partition_keys(part.partition_expression)
    own = [name for name in names if name not in keys] or part.physical_schema.names[:1]
    for batch in table.read(part, schema, own, step):
        columns = []
        for name in names:
            kind = schema.field(name).type
            if name in keys:
                columns.append(pa.repeat(pa.scalar(keys[name], kind), len(batch)))
                continue
            values = batch.column(name)
            try:
                same = kind_of(values.type) == kind_of(kind) or pa.types.is_null(values.type)
                if not same:  # 5 would be cast to True
                    raise pa.ArrowInvalid("these types have different meanings")
                columns.append(values.cast(kind))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DataError(
                    f"{part.path}: column {name!r} is of type {values.type}, and {kind} in the first file: {error}; "
                    "convert it first, e.g. with polars"
                ) from error
        yield pa.record_batch(columns, schema=pa.schema([schema.field(name) for name in names]))


def _of_csv(part: Any, schema: Any, names: list[str], step: int, encoding: str) -> Iterator[Any]:
    from pyarrow import csv

    scan = part.format.default_fragment_scan_options
    read, convert = scan.read_options, scan.convert_options
    read.encoding, read.use_threads = encoding, False  # with threads, errors do not name the row
    convert.include_columns = names
    convert.column_types = {name: schema.field(name).type for name in names}
    parse = part.format.parse_options
    with csv.open_csv(part.path, read_options=read, parse_options=parse, convert_options=convert) as reader:
        yield from reader


def _of_parquet(part: Any, schema: Any, names: list[str], step: int) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(part.path, buffer_size=_BLOCK_BYTES, pre_buffer=False) as file:
        yield from file.iter_batches(step, columns=names)


def _of_ipc(part: Any, schema: Any, names: list[str], step: int) -> Iterator[Any]:
    import pyarrow as pa

    fields = [part.physical_schema.get_field_index(name) for name in names]
    options = pa.ipc.IpcReadOptions(included_fields=fields)
    with pa.OSFile(part.path) as source, pa.ipc.open_file(source, options=options) as file:
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


_READERS = {"parquet": _of_parquet, "feather": _of_ipc}


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raise errors of this package for those of Arrow, with its text."""
    import pyarrow as pa

    try:
        yield
    except (UnicodeError, LookupError) as error:
        raise DataError(f"{path} is not text of this encoding ({error}): {_ADVICE}") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        said = str(error).rpartition("Invalid: ")[2].strip()
        if "straddles" in said:
            raise _long_line(path) from error
        if "CSV" not in said:
            raise CorruptionError(f"{path} cannot be read: {said}; fetch it again") from error
        raise DataError(f"{path}: {said}: {_ADVICE}") from error
    except OSError as error:
        raise undecodable(path, error) from error


def _long_line(path: str) -> MemoryLimitError:
    return MemoryLimitError(
        f"{path}: a line has more than {_BLOCK_BYTES / 1e6:.0f} MB: is a line break missing? If not, write the table "
        "as Parquet or .npy"
    )


def format_of(path: Path) -> str | None:
    """The format of a file by the ending of its name; None for another one."""
    return next((TABLE_ENDINGS[each] for each in TABLE_ENDINGS if path.name.lower().endswith(each)), None)


@dataclass(frozen=True)
class CsvOptions:
    """Options of Arrow's reader of CSV, by Arrow's names: see `ingest`. Columns of `text` are read as text; the column
    `labels`, and all columns of a file `of_labels`, keep the type of their first rows."""

    given: Mapping[str, Any]
    text: Collection[Any]
    labels: Any
    of_labels: bool = False

    def format(self, path: Path) -> Any:
        """The format of files like this one. Raises SpecError for unknown options and values."""
        import pyarrow as pa
        from pyarrow import csv, dataset

        left = {"delimiter": self.delimiter(path), **self.given}
        kinds: dict[type, dict[str, Any]] = {
            csv.ReadOptions: {"block_size": _BLOCK_BYTES},
            csv.ParseOptions: {},
            csv.ConvertOptions: {"strings_can_be_null": True, "quoted_strings_can_be_null": False},
        }
        types = dict(left.pop("column_types", {}))
        if nulls := left.pop("null_values", None):
            left["null_values"] = [*csv.ConvertOptions().null_values, *_listed(nulls)]
        if left.pop("header", True) in (False, "no", "false"):
            left["autogenerate_column_names"] = True
        for name, value in left.items():
            kind = next((each for each in kinds if hasattr(each(), name)), None)
            if kind is None:
                known = [each for kind in kinds for each in dir(kind()) if not each.startswith(("_", "validate", "eq"))]
                raise unknown_name("option of CSV", name, [*known, "header"])
            kinds[kind][name] = _like(getattr(kind(), name), value)
        try:
            kinds[csv.ConvertOptions]["column_types"] = {
                str(name): pa.type_for_alias(kind) if isinstance(kind, str) else kind for name, kind in types.items()
            }
            read, parse, convert = (kind(**values) for kind, values in kinds.items())
        except (TypeError, ValueError) as error:
            raise SpecError(f"csv={dict(self.given)}: {error}") from error
        if read.skip_rows and not (read.column_names or read.autogenerate_column_names):
            with csv.open_csv(path, read_options=read, parse_options=parse) as file:  # datasets take the first line
                read.column_names, read.skip_rows = file.schema.names, read.skip_rows + 1
        scan = dataset.CsvFragmentScanOptions(read_options=read, convert_options=convert)
        return dataset.CsvFileFormat(parse_options=parse, default_fragment_scan_options=scan)

    def typed(self, schema: Any, names: Collection[str]) -> Any:
        """The schema with which columns of these names are read from files: the first rows of a column can be whole, or
        missing, where others hold any numbers, so they become float64."""
        import pyarrow as pa

        for place, field in enumerate(schema):
            whole = pa.types.is_int64(field.type) or pa.types.is_null(field.type)
            if field.name not in names or field.name in self.given.get("column_types", ()):
                continue
            if field.name in self.text:
                schema = schema.set(place, field.with_type(pa.string()))
            elif whole and field.name != self.labels and not self.of_labels:
                schema = schema.set(place, field.with_type(pa.float64()))
        return schema

    def delimiter(self, path: Path) -> str:
        """The delimiter of fields of a file."""
        return str(self.given.get("delimiter", "\t" if ".tsv" in path.name.lower() else ","))


def _listed(value: Any) -> list[str]:
    return value.split(",") if isinstance(value, str) else list(map(str, value))


def _like(usual: Any, value: Any) -> Any:
    """A value, which the command line passes as text, in the type of the usual one."""
    if isinstance(usual, bool) and isinstance(value, str):
        return value.lower() in ("yes", "true", "1")
    if isinstance(usual, int) and isinstance(value, str):
        return int(value)
    return _listed(value) if isinstance(usual, list) else value


def table_of_files(paths: Sequence[Path], folder: Path | None, options: CsvOptions) -> Table:
    """The table of files of one format with the same columns; keys in the names of folders (year=2013) are columns."""
    from pyarrow import dataset

    where, of_text = str(folder or paths[0]), format_of(paths[0]) == "csv"
    if of_text:
        _check_first_line(paths[0], options.delimiter(paths[0]))
        if "skip_rows" in options.given and paths[1:]:
            raise SpecError(
                "skip_rows is for single files: ingest the first, and add the others with append (--append)"
            )
    how: dict[str, Any] = {}
    if folder is not None and any("=" in part for part in paths[0].relative_to(folder).parts[:-1]):
        how = {"partitioning": dataset.HivePartitioning.discover(), "partition_base_dir": str(folder)}
    names = list(map(str, paths))
    with reading(names[0]):
        kind = options.format(paths[0]) if of_text else format_of(paths[0])
        found = dataset.dataset(names, format=kind, **how)
        _check_columns(found.schema.names, where)
        parts = tuple(found.get_fragments())
        own = parts[0].physical_schema.names  # without the keys of folders
        for part in parts[1:]:
            if apart := names_apart(sorted(part.physical_schema.names), sorted(own), names[0]):
                raise SpecError(f"{part.path} {apart}: all files must have the same columns")
        typed = options.typed(found.schema, own) if of_text else found.schema
        schema, notes = _without_index(typed, _counting_column(parts[0], typed) if of_text else [])
    if not of_text:
        return Table(where, schema, parts, _READERS[str(kind)], sum(part.count_rows() for part in parts), notes)
    with suppress(ValueError):
        list(map(float, typed.names))
        first = ", ".join(typed.names[:4]) + ", ..." * (len(typed.names) > 4)
        notes += (
            f"the first line ({first}) is taken for the names of columns; --csv header=no (csv={{'header': False}}) "
            "makes it a row",
        )
    read = partial(_of_csv, encoding=str(options.given.get("encoding", "utf8")))
    return Table(where, schema, parts, read, 0, notes, of_text)


def _check_first_line(path: Path, delimiter: str) -> None:
    """Raise MemoryLimitError for a text with too many columns, of which Arrow would guess each type first."""
    with reading(str(path)), unpacked(path) as file:
        line = file.readline(_BLOCK_BYTES + 1)
    if len(line) > _BLOCK_BYTES:
        raise _long_line(str(path))
    _check_count(line.count(delimiter.encode()) + 1, str(path))


def _check_count(columns: int, where: str) -> None:
    if columns > _MOST_COLUMNS:
        raise MemoryLimitError(
            f"{where} has {columns:,} columns, of which a table may have {_MOST_COLUMNS:,}: write its numbers as .npy, "
            "e.g. np.save('rows.npy', frame.to_numpy())"
        )


def _check_columns(names: Sequence[str], where: str) -> None:
    _check_count(len(names), where)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SpecError(f"{where} has {names.count(twice)} columns named {twice!r}: give each a name of its own")


def _counting_column(part: Any, schema: Any) -> list[str]:
    """The first column of a CSV file if it has no name and counts 0, 1, 2, ..., as pandas writes its index."""
    if schema.names[0] != "":
        return []
    first = next(iter(part.to_batches(schema=schema, columns=[""]))).column(0)
    counts = first.null_count == 0 and np.array_equal(first.to_numpy(), np.arange(len(first)))
    return [""] if counts else []


def _without_index(schema: Any, counting: Sequence[str] = ()) -> tuple[Any, tuple[str, ...]]:
    """The schema without the columns that hold the index of a pandas frame, or else those that count, and notes of
    these."""
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    index = [name for name in schema.names if name in stored or re.fullmatch(r"__index_level_\d+__", name)] or counting
    for name in index:
        schema = schema.remove(schema.get_field_index(name))
    return schema, tuple(f"leaving out the column {name!r}, which is the index of a pandas frame" for name in index)


def kind_of_table(data: Any) -> str:
    """What to call a table in memory, e.g. "pandas DataFrame"."""
    return f"{type(data).__module__.partition('.')[0].strip('_')} {type(data).__name__}".removeprefix("builtins ")


def table_in_memory(data: Any, where: str, scratch: ExitStack) -> tuple[Table, str]:
    """A table of pandas, polars, pyarrow or DuckDB, or a stream of Arrow batches, and the SHA-256 of its rows. They are
    copied to a temporary file, which exists as long as `scratch`: some can be read only once."""
    schema, batches = _stream(data, where)
    return _copied(schema, batches, where, scratch)


def fasta_table(path: Path, scratch: ExitStack) -> Table:
    """The sequences of a FASTA file in upper case, as one column of text."""
    import pyarrow as pa

    schema = pa.schema([(SEQUENCE, pa.string())])
    batches = (pa.record_batch([pa.array(some, pa.string())], schema=schema) for some in _sequences(path))
    table, _ = _copied(schema, batches, str(path), scratch)
    return replace(table, text=SEQUENCE)


def _stream(data: Any, where: str) -> tuple[Any, Iterable[Any]]:
    """The schema and the batches of a table. Raises SpecError for anything that is not a table, DataError for types
    that Arrow does not have."""
    import pyarrow as pa

    if hasattr(data, "collect_batches"):  # a LazyFrame of polars
        schema = pa.table(data.head(0).collect()).schema
        return schema, (batch for part in data.collect_batches() for batch in pa.table(part).to_batches())
    if hasattr(data, "scanner"):  # a pyarrow.dataset
        data = data.scanner(batch_readahead=1, fragment_readahead=1).to_reader()
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
            return reader.schema, reader
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return batch.schema, [batch]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where} is not a table that Arrow can read: {error}") from error
    advice = "arrays need no ingest: fit and transform use them as they are"
    if is_dask_frame(data):
        advice = "write it with to_parquet(FOLDER), and ingest that folder"
    raise SpecError(f"{where} cannot be ingested: pass paths, or tables of pandas, polars, pyarrow or DuckDB; {advice}")


def _copied(schema: Any, batches: Iterable[Any], where: str, scratch: ExitStack) -> tuple[Table, str]:
    """The table of these batches, and the SHA-256 of the temporary file that they are copied to."""
    import pyarrow as pa
    from pyarrow import dataset

    _check_columns(schema.names, where)
    path = Path(scratch.enter_context(TemporaryDirectory()), "rows.arrow")
    try:
        with pa.ipc.new_file(str(path), schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except (BigKPCAError, MemoryError):
        raise
    except OSError as error:
        raise IncompleteError(
            f"{where} cannot be copied to a temporary file in {gettempdir()}: {error}; set TMPDIR to a folder with "
            "more space"
        ) from error
    except Exception as error:  # of the source of the batches, which can be any function of the user
        said = str(error).partition(". Detail: ")[0].partition("\n\n")[0]
        raise DataError(f"{where} cannot be read: {type(error).__name__}: {said}") from error
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    found = dataset.dataset(str(path), format="feather")
    if not (rows := found.count_rows()):
        raise DataError(f"{where} is empty: it has no rows, or they have been read already")
    schema, notes = _without_index(found.schema)
    return Table(where, schema, tuple(found.get_fragments()), _of_ipc, rows, notes), digest


def _sequences(path: Path) -> Iterator[list[str]]:
    """The sequences, some at a time. Raises DataError for another format."""
    held: list[str] = []
    size = 0
    with reading(str(path)), unpacked(path) as file:
        for number, line in enumerate(file, 1):
            if not line.isascii():
                raise DataError(f"{path} is not a FASTA file: line {number} is not text")
            text = line.decode("ascii").strip()
            if text.startswith(">"):
                if size >= READ_BYTES:
                    yield held
                    held, size = [], 0
                held.append("")
            elif text and not held:
                raise DataError(f"{path} is not a FASTA file: it begins with {text[:20]!r}, not '>name'")
            elif text:
                held[-1] += text.upper()
                size += len(text)
    if held:
        yield held
