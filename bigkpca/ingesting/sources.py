"""What a user wants to ingest, as one stream of checked rows of numbers: all files and tables, in order."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.data.rows import check_shape
from bigkpca.data.sample_weights import LABELS, WEIGHTS, Beside, check_weights
from bigkpca.data.stores import NODE_FILES, is_path, is_url, store_of
from bigkpca.errors import (
    Array,
    DataError,
    SpecError,
    changed,
    check_finite,
    check_numeric,
    names_apart,
    require,
    unknown_name,
)
from bigkpca.execution.progress import Progress, shown_pass
from bigkpca.ingesting import arrays, tables
from bigkpca.ingesting.arrays import ArrayFile
from bigkpca.ingesting.encoder import (
    MOST_CATEGORIES,
    OF_TEXT,
    Column,
    ColumnOptions,
    Encoder,
    cast,
    dtype_of,
    kind_of,
    learned,
    texts_of,
)
from bigkpca.ingesting.tables import CsvOptions, Table

Piece = dict[str, Array]
"""Some rows of a dataset, by the names of its arrays: x (k, d), and values (k,) beside them."""


@dataclass(frozen=True)
class Inputs:
    """Opened files of arrays, or tables, before a row is read. identity: tells them from others, JSON-ready. separate:
    the files of values beside the rows; named: the columns or arrays of such values."""

    opened: Sequence[Any]
    identity: Sequence[Mapping[str, Any]]
    separate: Mapping[Beside, ArrayFile | Table]
    named: Mapping[Beside, str]

    @property
    def of_tables(self) -> bool:
        """Whether these are tables."""
        return isinstance(self.opened[0], Table)

    @property
    def rows(self) -> int:
        """The number of rows, for progress; 0 if some have to be read to be counted."""
        counts = [each.rows for each in self.opened]
        return 0 if 0 in counts else sum(counts)

    def check_unchanged(self) -> None:
        """Raise IncompleteError if a file is no longer the one that was opened."""
        for each in self.identity:
            if each["path"] is not None and (not os.path.exists(each["path"]) or _identity(each["path"]) != each):
                raise changed(str(each["path"]))


def _identity(path: str | Path) -> dict[str, Any]:
    status = os.stat(path)
    return {"path": os.path.abspath(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def open_inputs(
    sources: Sequence[Any],
    beside: Mapping[Beside, Any],
    csv: CsvOptions,
    scratch: ExitStack,
    note: Callable[[str], None],
) -> Inputs:
    """Open what the user passed. Raises SpecError for what does not exist, has no known format, or is partly arrays and
    partly tables."""
    if not sources:
        raise SpecError("nothing to ingest: give at least one file")
    opened: list[Any] = []
    identity: list[Mapping[str, Any]] = []
    for number, source in enumerate(sources):
        if is_path(source):
            files, folder, others = _files_at(source)
            if others:
                note(f"leaving out {', '.join(others[:5])}: no format that can be ingested")
            opened += _opened(files, folder, csv, scratch)
            identity += map(_identity, files)
        else:
            called = tables.kind_of_table(source)
            where = f"the {called}" + (f" sources[{number}]" if sources[1:] else "")
            require("pyarrow", "tables", where)
            table, digest = tables.table_in_memory(source, where, scratch)
            opened.append(table)
            identity.append({"path": None, "table": called, "sha256": digest})
    if len({type(each) for each in opened}) > 1:
        raise SpecError("some inputs are arrays and some are tables: make a dataset of each kind")
    for table in opened if isinstance(opened[0], Table) else ():
        for text in table.notes:
            note(f"{table.where}: {text}")
    separate, named = dict[Beside, ArrayFile | Table](), dict[Beside, str]()
    for kind, name in beside.items():
        if name is None:
            continue
        if not is_path(name):
            raise SpecError(
                f"{kind.option} is of type {type(name).__name__}: name a column, or give the path of a file"
            )
        if os.path.isfile(file := os.path.expanduser(name)):
            (separate[kind],) = _opened([Path(file)], None, replace(csv, of_labels=kind is LABELS), scratch)
            identity.append(_identity(file))
        else:
            named[kind] = os.fspath(name)
    if len(set(named.values())) < len(named):
        raise SpecError(f"{' and '.join(kind.option for kind in named)} name the same column: name different ones")
    return Inputs(opened, identity, separate, named)


def _files_at(source: Any) -> tuple[list[Path], Path | None, list[str]]:
    """The files at a path: the file itself, or those of a folder that can be ingested, sorted by path; the folder, and
    its other files. Files and folders whose names begin with a dot or an underscore do not count."""
    given, path = os.fspath(source), Path(source).expanduser()
    if is_url(given):
        store_of(given)  # raises an error for URLs that contain secrets
        raise SpecError(f"{given}: only files on a local disk can be ingested: copy it to one")
    if not path.is_dir():
        if not path.exists():
            raise SpecError(f"{path} does not exist")
        return [path], None, []
    if any((path / name).exists() for name in NODE_FILES):
        raise SpecError(f"{path} is a folder that holds a Zarr array or group, which needs no ingest")
    below = sorted((each for each in path.rglob("*") if each.is_file()), key=str)
    seen = [each for each in below if not any(part.startswith((".", "_")) for part in each.relative_to(path).parts)]
    found = [each for each in seen if tables.format_of(each) or arrays.reader_of(each)]
    if not found:
        raise SpecError(f"{path} is a folder without files to ingest")
    return found, path, [str(each) for each in seen if each not in found]


def _opened(
    paths: Sequence[Path], folder: Path | None, csv: CsvOptions, scratch: ExitStack
) -> list[ArrayFile] | list[Table]:
    """Files of arrays, each by itself, or the table of files of one format."""
    files = [each for each in map(arrays.opened, paths) if each is not None]
    if len(files) == len(paths):
        return files
    formats = {tables.format_of(path) for path in paths}
    if formats == {None}:
        endings = [*(ending for _, ending, _ in arrays.ARRAY_FORMATS if ending), *tables.TABLE_ENDINGS]
        raise SpecError(
            f"{paths[0]} has an unknown format; these can be ingested: .npy, IDX (the format of MNIST), "
            f"{', '.join(endings)}; pass arrays in HDF5 as dask.array.from_array(h5py.File(PATH)[NAME])"
        )
    if len(formats) > 1 or files:
        raise SpecError(f"{folder} holds files of several formats: ingest those of one format")
    require("pyarrow", "tables", str(paths[0]))
    if formats == {"fasta"}:
        return [tables.fasta_table(path, scratch) for path in paths]
    return [tables.table_of_files(paths, folder, csv)]


def storable(dtype: Any) -> np.dtype[Any]:
    """A dtype in native byte order. Raises SpecError unless rows can be stored in it."""
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise SpecError(f"{dtype!r} is not a number type such as 'float32' or 'uint8'") from error
    if found.kind not in "buif" or found.itemsize > 8:
        raise SpecError(f"rows cannot be stored as {found}: choose a real type of at most 8 bytes with dtype (--dtype)")
    return found


def _checked(kind: Beside, values: Array, first: int, where: str) -> Array:
    """Values beside the rows from this row on, weights as float64. Raises DataError for what cannot be labels or
    weights."""
    numbers = values.dtype.kind in "buif" and values.dtype.itemsize <= 8
    if values.ndim != 1 or not (numbers or (values.dtype.kind == "U" and kind is LABELS)):
        wanted = "numbers or text" if kind is LABELS else "numbers"
        raise DataError(f"{where} has the type {values.dtype}: {kind.noun}s are {wanted}, one for each row")
    if kind is WEIGHTS:
        values = values.astype(np.float64)
        check_weights(values, first, where)
    elif values.dtype.kind == "f":
        check_finite(values[:, None], first, f"the {kind.noun}s of {where}")
    return values


def pieces_of_arrays(
    files: Sequence[ArrayFile], member: str | None, beside: Mapping[Beside, str], dtype: str | None
) -> Iterator[Piece]:
    """The rows of files of arrays, in pieces; axes after the first are flattened."""
    wanted: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    for file in files:
        name = file.chosen(member, beside.values())
        stored, where, first = file.arrays[name], file.place(name), 0
        check_numeric(stored.dtype, where)
        flat = (stored.shape[0], math.prod(stored.shape[1:])) if stored.shape[1:] else stored.shape
        n, width = check_shape(flat, where)
        own_dtype = stored.dtype.newbyteorder("=")
        if dtype is None and wanted is not None and own_dtype != wanted:
            raise SpecError(
                f"{where} holds {own_dtype}, and files before it {wanted}: choose a type with dtype (--dtype)"
            )
        if shape not in (None, stored.shape[1:]):
            raise SpecError(f"{where} has rows of shape {stored.shape[1:]}, and files before it of {shape}")
        wanted, shape = own_dtype, stored.shape[1:]
        for kind, own in beside.items():
            if file.arrays[own].shape[:1] != (n,):
                raise SpecError(f"{file.place(own)} has shape {file.arrays[own].shape}: {n} {kind.noun}s are needed")
        streams = [file.pieces(each, stored.step) for each in (name, *beside.values())]
        for X, *values in zip(*streams, strict=True):
            rows = X.reshape(len(X), width)
            check_finite(rows, first, where)
            of_rows = {
                kind.array: _checked(kind, part, first, file.place(own))
                for (kind, own), part in zip(beside.items(), values, strict=True)
            }
            yield {"x": cast(rows, storable(dtype or wanted), first, where), **of_rows}
            first += len(X)


def pieces_of_tables(found: Sequence[Table], encoder: Encoder, beside: Mapping[Beside, str]) -> Iterator[Piece]:
    """The rows of tables, in pieces."""
    wanted = [*(column.name for column in encoder.columns), *beside.values()]
    for table in found:
        for where, first, batch in table.batches(wanted, encoder.width):
            of_rows = {
                kind.array: _values_of(kind, batch.column(own), own, first, where) for kind, own in beside.items()
            }
            yield {"x": encoder.encode(batch, where, first), **of_rows}


def separate_pieces(kind: Beside, file: ArrayFile | Table) -> Iterator[Piece]:
    """The values of a separate file, in pieces."""
    if isinstance(file, Table):
        if len(file.names) != 1:
            raise SpecError(f"{file.where} has {len(file.names)} columns: a file of {kind.noun}s must have one")
        for where, first, batch in file.batches(file.names):
            yield {kind.array: _values_of(kind, batch.column(0), file.names[0], first, where)}
        return
    if set(file.arrays) != {""} or len(file.arrays[""].shape) != 1:
        raise SpecError(f"{file.where}: a file of {kind.noun}s is .npy or IDX with one axis, or a table of one column")
    first = 0
    for values in file.pieces("", file.arrays[""].step):
        yield {kind.array: _checked(kind, values, first, file.where)}
        first += len(values)


def _values_of(kind: Beside, values: Any, name: str, first: int, where: str) -> Array:
    """The values of a column beside the rows. Raises DataError for missing ones."""
    if values.null_count:
        row = first + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(f"{where}: row {row} (counted from 0) has no {kind.noun}: column {name!r} is missing there")
    of_numbers = kind_of(values.type) in ("number", "boolean")
    found = values.to_numpy(zero_copy_only=False) if of_numbers else np.array(texts_of(values).to_pylist(), str)
    return _checked(kind, found, first, f"{where}, column {name!r}")


def encoder_of(inputs: Inputs, options: ColumnOptions, dtype: str | None, progress: Progress) -> Encoder:
    """The encoder of these tables: one pass over them, if there is something to learn. Raises SpecError for tables of
    other columns than the first."""
    first, *others = inputs.opened
    for table in others:
        if apart := names_apart(sorted(table.names), sorted(first.names), first.where):
            raise SpecError(f"{table.where} {apart}: all tables must have the same columns")
    columns = _columns_of(first, options, list(inputs.named.values()))
    names = [column.name for column in columns]
    if options.missing == "mean" or any(column.kind in OF_TEXT for column in columns):
        with shown_pass(progress, "inspecting columns", inputs.rows) as advance:
            batches = chain.from_iterable(table.batches(names) for table in inputs.opened)
            columns = learned(columns, batches, options, advance)
    dtypes = [dtype_of(column, first.schema.field(column.name).type) for column in columns]
    return Encoder(columns, storable(dtype or np.result_type(*dtypes)))


def _columns_of(table: Table, options: ColumnOptions, beside: Sequence[str]) -> tuple[Column, ...]:
    """The columns of a table that become numbers. Raises SpecError for names that it does not have, DataError for types
    that have no numbers."""
    text = options.text or (table.text if table.text not in beside else None)
    for name in (*options.columns, *options.drop, *options.categorical, *filter(None, [text]), *beside):
        if name not in table.names:
            raise unknown_name(f"column of {table.where}", name, table.names)
    free = [name for name in table.names if name not in beside and name not in options.drop]
    found, unfit = [], []
    for name in [text] if text else options.columns or free:
        arrow = table.schema.field(name).type
        kind = "characters" if text else "category" if name in options.categorical else kind_of(arrow)
        if kind is None:
            unfit.append(name)
        else:
            found.append(Column(name, kind, str(arrow)))
    if unfit:
        raise _unfit(table, unfit, found, options)
    if not found:
        raise SpecError(f"no column of {table.where} is left: drop fewer columns")
    return tuple(found)


def _unfit(table: Table, names: Sequence[str], others: Sequence[Column], options: ColumnOptions) -> DataError:
    """What to say about columns that cannot become numbers, and about other columns that the first rows show to be
    unusable."""
    shown = names[:8]
    first = next(table.batches([*shown, *(column.name for column in others)]), None)
    listed, few, also = [], [], ""
    for name in shown:
        values = [] if first is None else first[2].column(name).drop_null().to_pylist()
        example = f", such as {values[0]!r:.40}" if values else ""
        listed.append(f"{name!r} ({table.schema.field(name).type}{example})")
        if len(set(map(str, values))) <= MOST_CATEGORIES:
            few.append(name)
    if first is not None:
        try:
            learned(others, [first], options, lambda rows: None)
        except DataError as error:
            also = f"; {error}"
    flag = shlex.quote(",".join(few))
    categories = f"text with few distinct values with categorical={few!r} (--categorical {flag})"
    ways = [f"make columns of 0 and 1 of {categories}"] if few else []
    if table.of_text:
        ways.append("say how numbers, dates and missing values are written (--csv decimal_point=, timestamp_parsers=)")
    ways.append(f"leave {'others' if few else 'them'} out with drop (--drop), or convert them first, e.g. with polars")
    return DataError(
        f"{table.where}: {'columns' if names[1:] else 'column'} {', '.join(listed)}{' and more' * (len(names) > 8)} "
        f"cannot become numbers: {', '.join(ways)}{also}"
    )
