"""Scores, or any rows, as a file for other programs: .csv, .parquet or .npy; a model as .onnx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.opening import open_rows, path_of
from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath, expanded, store_of
from bigkpca.errors import Array, SpecError, require
from bigkpca.execution.progress import Progress, shown, shown_pass
from bigkpca.ingesting.encoder import Column
from bigkpca.numerics.model import Model
from bigkpca.numerics.outliers import REASONS
from bigkpca.serving.onnx import onnx_model
from bigkpca.storage import groups, models, output
from bigkpca.workflows.flags import ARRAYS
from bigkpca.workflows.inputs import (
    dataset_at,
    feature_store,
    labels_path,
    names_of,
    open_labels,
    table_columns,
    unchanged,
)

_SUFFIXES = (".csv", ".parquet", ".npy")


@dataclass(frozen=True)
class Exported:
    """A written file: its path and its numbers of rows and columns; a model has no rows."""

    path: str
    rows: int
    columns: int


def export(
    data: Any,
    out: AnyPath,
    *,
    labels: AnyPath | None = None,
    row_numbers: bool = False,
    words: bool = False,
    array: str | None = None,
    overwrite: bool = False,
    progress: Progress | bool = False,
) -> Exported:
    """Write scores, or any rows, to a .csv, .parquet or .npy file, or a model to a .onnx file.

    The suffix of the file name determines the format. Columns of scores are named kernelpca0, kernelpca1, ..., as in
    scikit-learn; other rows keep their column names, or get column0, column1, .... Scores with flags are followed by
    the columns `statistic` and `flagged`, which contains "residual", "distance" or nothing. The file appears when it is
    complete.

    Parameters
    ----------
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
        A feature store, a dataset, or any rows; for .onnx a model, the path of one, or a fitted KernelPCA.
    out : path
        The file, on a local disk or in an object store.
    labels : path or name, optional
        Add a column `label`: a .npy file, a dataset, or the name of an array beside the original rows, such as "y".
        Text labels are written as text.
    row_numbers : bool
        Add a column `row`: the number of each row, counted from 0.
    words : bool
        Write the columns of the table that a dataset was ingested from, instead of its columns of numbers: categories
        by name, dates as dates, Boolean values as true and false. Pre-images of such rows get the nearest category.
    array : str, optional
        Name of the array if `data` is a Zarr group.
    overwrite : bool
        Replace an existing file.
    progress : bool or Progress
        True shows bars or, without a terminal, lines; a Progress object receives the number of rows written. By
        default, nothing is shown.

    Returns
    -------
    Exported
        Path, rows and columns of the file.

    Raises
    ------
    SpecError
        An unknown suffix, a file that already exists, a path inside a folder of arrays, labels that do not match the
        rows, labels for a .npy file, `words` of rows that are not those of a table, or types that the format lacks.
    CorruptionError
        Rows that cannot be read.
    LockedError
        Another run is writing `out`.
    IncompleteError
        The disk is full, or the rows changed while they were read.

    Notes
    -----
    One pass over the data, in pieces of 4 MB or one chunk; memory does not depend on the number of rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=2)
    >>> scores = bigkpca.transform(model, X, "scores.zarr")
    >>> bigkpca.export("scores.zarr", "scores.csv").rows
    500
    """
    progress = shown(progress)
    path = expanded(out)
    if path.lower().endswith(".onnx"):
        if labels is not None or row_numbers or words:
            raise SpecError(f"{path}: a model has no rows: leave out labels, row numbers and words")
        return export_model(models.model_of(data), path, overwrite=overwrite)
    suffix = next((end for end in _SUFFIXES if path.lower().endswith(end)), None)
    if suffix is None:
        raise SpecError(f"{path}: rows are exported as {', '.join(_SUFFIXES)}, models as .onnx: choose such a name")
    if suffix == ".npy" and (labels is not None or row_numbers or words):
        raise SpecError(
            f"{path}: a .npy file holds numbers of one type: export labels, row numbers and words as .parquet"
        )
    if suffix != ".npy":
        require("pyarrow", "tables", path)
    rows = open_rows(data, array)
    table_of = _table_columns(data, rows) if words else None
    word = "column" if feature_store(data) is None else "kernelpca"
    own = None if table_of is None else tuple(column.name for column in table_of)
    names = own or rows.names or tuple(f"{word}{j}" for j in range(rows.shape[1]))
    with _locked(path, rows.fingerprint()["path"], overwrite=overwrite) as path:
        table = _Table(rows, names, _labels(labels, data, rows), row_numbers, table_of, _flags(data))
        twice = [name for name, count in Counter(table.names).items() if count > 1]
        if twice and (labels is not None or row_numbers or suffix == ".parquet"):
            raise SpecError(
                f"{path}: two columns would have the name {twice[0]!r}, which readers reject: rename one first"
            )
        with (
            shown_pass(progress, "exporting", rows.shape[0]) as advance,
            store_of(path).writing(path) as file,
            unchanged(rows),
            _writer(suffix, file, table) as write,
        ):
            for part in table.parts():
                write(part)
                advance(len(part[0]))
    return Exported(path, rows.shape[0], len(table.names))


def export_model(model: Model, out: AnyPath, *, overwrite: bool = False) -> Exported:
    """Write a file with an ONNX graph that maps "rows" (n, d) to "scores" (n, r). Raises SpecError for a kernel or
    features without operators in ONNX, if the library onnx is missing, and if the file already exists, unless
    `overwrite` is set."""
    with _locked(expanded(out), None, overwrite=overwrite) as path:
        store_of(path).write(path, onnx_model(model.features, model.solution).SerializeToString())
    return Exported(path, 0, model.components)


@contextmanager
def _locked(path: str, source: str | None, *, overwrite: bool) -> Iterator[str]:
    """The normalised path of a file to write, locked against other runs. Raises SpecError if it must not be written."""
    path = output.output_path(path, source)
    output.check_file(path, lambda _: True, "scores.csv")
    store = store_of(path)
    with store.writer(path):
        if store.exists(path) and not overwrite:  # also if another run has just written it
            raise SpecError(
                f"{path} already exists: choose another name, or replace it with --overwrite (overwrite=True in Python)"
            )
        yield path


def _table_columns(data: Any, rows: Rows) -> tuple[Column, ...]:
    """The columns of the table that rows were ingested from. Raises SpecError if there is no such table."""
    path, found = path_of(data), None
    if feature_store(data) is None and path is not None:
        found = table_columns(path)
    if found is None or sum(len(column.names) for column in found) != rows.shape[1]:
        raise SpecError(
            f"{rows.where} has no columns with words: --words (words= in Python) exports a dataset that bigkpca ingest "
            "made of a table, or pre-images of its rows while it exists"
        )
    return found


def _labels(given: AnyPath | None, data: Any, rows: Rows) -> Callable[[int, int], Array] | None:
    """A reader of the labels of a range of rows; None without labels. Raises SpecError unless each row has one."""
    if given is None:
        return None
    store = feature_store(data)
    source = (
        rows.fingerprint()["path"] if store is None else ((groups.describe(store) or {}).get("input") or {})["path"]
    )
    values, where = open_labels(labels_path(given), source)
    place = where.removesuffix("/y")  # which can be passed itself
    grown = source is not None and store_of(place).absolute(place) == source  # to which rows can have been appended
    if values.ndim != 1 or values.shape[0] < rows.shape[0] or (values.shape[0] > rows.shape[0] and not grown):
        raise SpecError(f"{where} has labels of shape {values.shape}, but the rows need {rows.shape[0]:,} labels")
    categories = (dataset_at(place) or {}).get("categories")

    def read(start: int, stop: int) -> Array:
        found = np.asarray(values[start:stop])
        return names_of(found, categories, where) if categories else found

    return read


def _flags(data: Any) -> dict[str, Callable[[int, int], Array]]:
    """Readers of the flags of a range of rows, with reasons as words; none if these are not scores with flags."""
    store = feature_store(data)
    if store is None or (groups.describe(store) or {}).get("flag") is None:
        return {}
    statistic, flagged = (groups.open_values(store, name) for name in ARRAYS)
    return {
        "statistic": lambda start, stop: np.asarray(statistic[start:stop]),
        "flagged": lambda start, stop: np.array(REASONS)[flagged[start:stop]],
    }


@dataclass(frozen=True)
class _Table:
    """The content of the file: rows with the names of their columns, and columns before and after them."""

    rows: Rows
    own_names: tuple[str, ...]
    labels: Callable[[int, int], Array] | None
    row_numbers: bool
    columns: tuple[Column, ...] | None = None  # of the table, instead of columns of numbers
    flags: Mapping[str, Callable[[int, int], Array]] = field(default_factory=dict)

    def own(self, X: Array) -> list[Any]:
        """The columns of rows X (k, d), without those before them."""
        if self.columns is None:
            return list(_native(X).T)
        stops = np.cumsum([len(column.names) for column in self.columns])
        return [column.decode(part) for part, column in zip(np.split(X, stops[:-1], axis=1), self.columns, strict=True)]

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [
            *(["row"] if self.row_numbers else []),
            *(["label"] if self.labels else []),
            *self.own_names,
            *self.flags,
        ]

    def parts(self) -> Iterator[list[Any]]:
        """All columns (k,), a range of rows at a time."""
        chunk = max(self.rows.grid[0], self.rows.grain)  # read as a whole, so that no chunk is read twice
        step = max(1, READ_BYTES // (self.rows.shape[1] * self.rows.dtype.itemsize * chunk)) * chunk
        for start in range(0, self.rows.shape[0], step):
            stop = min(start + step, self.rows.shape[0])
            numbers = [np.arange(start, stop)] if self.row_numbers else []
            labels = [_native(self.labels(start, stop))] if self.labels else []
            flags = [read(start, stop) for read in self.flags.values()]
            yield [*numbers, *labels, *self.own(self.rows.block(start, stop)), *flags]


def _native(values: Array) -> Array:
    """The same values in the byte order of this machine, which Arrow needs."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _type(dtype: np.dtype[Any], what: str) -> Any:
    """The Arrow type of a NumPy array. Raises SpecError if there is none."""
    import pyarrow as pa

    try:
        return pa.array(np.empty(0, dtype.newbyteorder("="))).type
    except pa.ArrowNotImplementedError as error:
        raise SpecError(
            f"{what} have the dtype {dtype}, which CSV and Parquet lack: convert them first, e.g. to float64 or text"
        ) from error


@contextmanager
def _writer(suffix: str, file: IO[bytes], table: _Table) -> Iterator[Callable[[list[Any]], Any]]:
    """A writer of columns (k,) of a range of rows; text has enough digits to distinguish all numbers."""
    if suffix == ".npy":
        rows = table.rows
        header = {"descr": rows.dtype.newbyteorder("=").str, "fortran_order": False, "shape": rows.shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda part: file.write(np.stack(part, axis=1).tobytes())
        return
    import pyarrow as pa

    if table.columns is None:
        types = [_type(table.rows.dtype, "the rows")] * len(table.own_names)
    else:
        types = [values.type for values in table.own(_native(np.zeros((1, table.rows.shape[1]), table.rows.dtype)))]
    types += [_type(read(0, 1).dtype, "the flags") for read in table.flags.values()]
    if table.labels:
        types.insert(0, _type(table.labels(0, 1).dtype, "the labels"))
    if table.row_numbers:
        types.insert(0, pa.int64())
    schema = pa.schema(list(zip(table.names, types, strict=True)))
    opened: Any
    if suffix == ".csv":
        from pyarrow import csv

        opened = csv.CSVWriter(file, schema, write_options=csv.WriteOptions(quoting_style="needed"))
    else:
        from pyarrow.parquet import ParquetWriter

        opened = ParquetWriter(file, schema)
    with opened as writer:
        yield lambda part: writer.write_table(pa.table(part, schema=schema))
