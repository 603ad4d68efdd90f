"""Scores, or any rows, as a file for other programs: .csv, .parquet or .npy; a model as .onnx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath, expanded, store_of
from bigkpca.errors import Array, SpecError, require
from bigkpca.execution.progress import Progress, shown
from bigkpca.numerics.model import Model
from bigkpca.serving.onnx import onnx_model
from bigkpca.storage import block_arrays, destination, models
from bigkpca.workflows.inputs import dataset_at, feature_store, labels_path, names_of, open_labels

_SUFFIXES = (".csv", ".parquet", ".npy")


@dataclass(frozen=True)
class Exported:
    """A file that was written: its path, and how many rows and columns it has; a model has no rows."""

    path: str
    rows: int
    columns: int


def export(
    data: Any,
    out: AnyPath,
    *,
    labels: AnyPath | None = None,
    row_numbers: bool = False,
    array: str | None = None,
    overwrite: bool = False,
    progress: Progress | bool = False,
) -> Exported:
    """Write scores, or any rows, to a file: .csv, .parquet or .npy, by the end of its name; or a model to .onnx.

    Columns of scores are named kernelpca0, kernelpca1 and so on, as by scikit-learn; those of other rows have their own
    names, or column0, column1 and so on. The file appears when it is complete.

    Parameters
    ----------
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
        A feature store, a dataset, or any rows; for .onnx a model, the path of one, or a fitted KernelPCA.
    out : path
        The file, on a local disk or in an object store.
    labels : path or name, optional
        Add a column `label`: a .npy file, a dataset, or the name of an array beside the rows that the scores are of,
        such as "y". Text labels are written as text.
    row_numbers : bool
        Add a column `row`: the number of each row, counted from 0.
    array : str, optional
        Name of the array where `data` is a Zarr group.
    overwrite : bool
        Replace a file that is there already.
    progress : bool or Progress
        True shows bars, or lines where there is no terminal; a Progress receives the number of rows written; by default
        nothing is shown.

    Returns
    -------
    Exported
        Path, rows and columns of the file.

    Raises
    ------
    SpecError
        A name that ends otherwise, a file that exists already, a path in a folder of arrays, labels that do not fit,
        labels in a .npy file, types that the format does not have.
    CorruptionError
        Rows that cannot be read.
    LockedError
        Another run writes `out`.
    IncompleteError
        The disk is full.

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
        if labels is not None or row_numbers:
            raise SpecError(f"{path}: a model has no rows, so neither labels nor row numbers")
        return export_model(models.model_of(data), path, overwrite=overwrite)
    suffix = next((end for end in _SUFFIXES if path.lower().endswith(end)), None)
    if suffix is None:
        raise SpecError(
            f"{path}: rows are exported as {', '.join(_SUFFIXES)}, models as .onnx: take a name that ends so"
        )
    if suffix == ".npy" and (labels is not None or row_numbers):
        raise SpecError(f"{path}: a .npy file holds numbers of one type: export labels and row numbers as .parquet")
    if suffix != ".npy":
        require("pyarrow", "tables", path)
    rows = open_rows(data, array)
    word = "column" if feature_store(data) is None else "kernelpca"
    names = rows.names or tuple(f"{word}{j}" for j in range(rows.shape[1]))
    with _locked(path, rows.fingerprint()["path"], overwrite=overwrite) as path:
        table = _Table(rows, names, _labels(labels, data, rows), row_numbers)
        twice = [name for name, count in Counter(table.names).items() if count > 1]
        if twice and (labels is not None or row_numbers or suffix == ".parquet"):
            raise SpecError(
                f"{path}: two columns would be called {twice[0]!r}, which readers do not take: rename one first"
            )
        progress.start("exporting", rows.shape[0])
        try:
            with store_of(path).writing(path) as file, _writer(suffix, file, table) as write:
                for part in table.parts():
                    write(part)
                    progress.advance(len(part[0]))
        finally:
            progress.finish()
    return Exported(path, rows.shape[0], len(table.names))


def export_model(model: Model, out: AnyPath, *, overwrite: bool = False) -> Exported:
    """Write the scores of a model to a file as a graph of ONNX, from "rows" (n, d) to "scores" (n, r). Raises SpecError
    for a kernel or features without operators in ONNX, where the library onnx is missing, and for a file that is there
    already, unless it may be replaced."""
    with _locked(expanded(out), None, overwrite=overwrite) as path:
        store_of(path).write(path, onnx_model(model.features, model.solution).SerializeToString())
    return Exported(path, 0, model.components)


@contextmanager
def _locked(path: str, source: str | None, *, overwrite: bool) -> Iterator[str]:
    """The path of a file to write, normalised, which no other run writes. Raises SpecError where it may not be."""
    path = destination.output_path(path, source)
    destination.check_file(path, lambda _: True, "scores.csv")
    store = store_of(path)
    with store.writer(path):
        if store.exists(path) and not overwrite:  # also what another run has just written
            raise SpecError(
                f"{path} exists: take another name, or replace it with --overwrite (overwrite=True in Python)"
            )
        yield path


def _labels(given: AnyPath | None, data: Any, rows: Rows) -> Callable[[int, int], Array] | None:
    """What reads the labels of a range of rows; None without labels. Raises SpecError unless each row has one."""
    if given is None:
        return None
    store = feature_store(data)
    manifest = None if store is None else block_arrays.read_manifest(store)
    source = rows.fingerprint()["path"] if manifest is None else manifest["input"]["path"]
    values, where = open_labels(labels_path(given), source)
    place = where.removesuffix("/y")  # which may be given itself
    grown = source is not None and store_of(place).absolute(place) == source  # to which rows may have been appended
    if values.ndim != 1 or values.shape[0] < rows.shape[0] or (values.shape[0] > rows.shape[0] and not grown):
        raise SpecError(f"{where} holds an array of shape {values.shape}: {rows.shape[0]:,} labels are needed")
    categories = (dataset_at(place) or {}).get("categories")

    def read(start: int, stop: int) -> Array:
        found = np.asarray(values[start:stop])
        return names_of(found, categories, where) if categories else found

    return read


@dataclass(frozen=True)
class _Table:
    """What is written: rows with the names of their columns, and what stands before them."""

    rows: Rows
    own_names: tuple[str, ...]
    labels: Callable[[int, int], Array] | None
    row_numbers: bool

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [*(["row"] if self.row_numbers else []), *(["label"] if self.labels else []), *self.own_names]

    def parts(self) -> Iterator[list[Array]]:
        """All columns (k,), some rows at a time."""
        chunk = max(self.rows.grid[0], self.rows.grain)  # read as a whole, so that none is read twice
        step = max(1, READ_BYTES // (self.rows.shape[1] * self.rows.dtype.itemsize * chunk)) * chunk
        for start in range(0, self.rows.shape[0], step):
            stop = min(start + step, self.rows.shape[0])
            numbers = [np.arange(start, stop)] if self.row_numbers else []
            labels = [_native(self.labels(start, stop))] if self.labels else []
            yield [*numbers, *labels, *_native(self.rows.block(start, stop)).T]


def _native(values: Array) -> Array:
    """The same values in the byte order of this machine, which Arrow needs."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _type(dtype: np.dtype[Any], what: str) -> Any:
    """The type of Arrow of an array of NumPy. Raises SpecError where there is none."""
    import pyarrow as pa

    try:
        return pa.array(np.empty(0, dtype.newbyteorder("="))).type
    except pa.ArrowNotImplementedError as error:
        raise SpecError(
            f"{what} are {dtype}, which neither CSV nor Parquet has: convert them first, such as to float64 or text"
        ) from error


@contextmanager
def _writer(suffix: str, file: IO[bytes], table: _Table) -> Iterator[Callable[[list[Array]], Any]]:
    """What writes columns (k,) of some rows; text has as many digits as tell numbers apart."""
    if suffix == ".npy":
        rows = table.rows
        header = {"descr": rows.dtype.newbyteorder("=").str, "fortran_order": False, "shape": rows.shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda part: file.write(np.stack(part, axis=1).tobytes())
        return
    import pyarrow as pa

    types = [_type(table.rows.dtype, "the rows")] * len(table.own_names)
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
