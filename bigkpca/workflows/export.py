"""Scores, or any rows, as a file for other programs: .csv, .parquet or .npy; a model as .onnx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath, expanded, is_path, store_of
from bigkpca.errors import Array, SpecError, require
from bigkpca.execution.progress import Progress, shown, shown_pass
from bigkpca.numerics.calibration import REASONS
from bigkpca.serving.onnx import onnx_model
from bigkpca.storage import groups, models, output
from bigkpca.workflows.flags import ARRAYS
from bigkpca.workflows.inputs import feature_store, names_of, open_labels, unchanged

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
    overwrite: bool = False,
    progress: Progress | bool = False,
) -> Exported:
    """Write scores, or any rows, to a .csv, .parquet or .npy file, or a model to a .onnx file, whose graph maps "rows"
    (n, d) to "scores" (n, r).

    The suffix of the file name determines the format. Columns of scores are named kernelpca0, kernelpca1, ..., as in
    scikit-learn; other rows keep their column names, or get column0, column1, .... Flags follow as the columns
    `statistic` and `flagged`: "residual", "distance" or nothing. The file appears when it is complete.

    Parameters
    ----------
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d)
        A feature store, a dataset, or any rows; for .onnx a model, the path of one, or a fitted KernelPCA.
    out : path
        The file, on a local disk or in an object store.
    labels : path or name, optional
        Begin with a column `label`: a .npy file, a dataset, or the name of an array beside the original rows, such as
        "y". Text labels are written as text.
    overwrite : bool
        Replace an existing file.
    progress : bool or Progress
        True shows bars or, without a terminal, lines; a Progress object receives the number of rows written.

    Returns
    -------
    Exported
        Path, rows and columns of the file.

    Raises
    ------
    SpecError
        An unknown suffix, a file that already exists, a path inside a folder of arrays, labels that do not match the
        rows, labels for a .npy file or a model, two columns of one name, or types that the format lacks; for .onnx, a
        kernel or features without operators in ONNX.
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
    progress, path = shown(progress), expanded(out)
    suffix = next((end for end in (*_SUFFIXES, ".onnx") if path.lower().endswith(end)), None)
    if suffix is None:
        raise SpecError(f"{path}: rows are exported as {', '.join(_SUFFIXES)}, models as .onnx: choose such a name")
    if labels is not None and suffix in (".npy", ".onnx"):
        raise SpecError(f"{path}: a {suffix} file has no column of labels: leave them out, or export rows as .parquet")
    if suffix == ".onnx":
        model = models.model_of(data)
        with _locked(path, None, overwrite=overwrite) as path:
            store_of(path).write(path, onnx_model(model.features, model.solution).SerializeToString())
        return Exported(path, 0, model.components)
    if suffix != ".npy":
        require("pyarrow", "tables", path)
    rows, store = open_rows(data), feature_store(data)
    word = "column" if store is None else "kernelpca"
    names = rows.names or tuple(f"{word}{j}" for j in range(rows.shape[1]))
    with _locked(path, rows.fingerprint()["path"], overwrite=overwrite) as path:
        parts = [] if labels is None else [_labels(labels, store, rows)]
        parts.append(_Columns(names, rows.dtype, rows.block))
        if suffix != ".npy":
            parts += _flags(store)
        columns = [name for part in parts for name in part.names]
        twice = [name for name, count in Counter(columns).items() if count > 1]
        if twice and suffix != ".npy":
            raise SpecError(
                f"{path}: two columns would have the name {twice[0]!r}, which readers reject: rename one first"
            )
        # Whole chunks of about 4 MB, so that no chunk is read twice.
        step = max(1, READ_BYTES // (rows.shape[1] * rows.dtype.itemsize * rows.chunk)) * rows.chunk
        with (
            shown_pass(progress, "exporting", rows.shape[0]) as advance,
            store_of(path).writing(path) as file,
            unchanged(rows),
            _npy(file, rows) if suffix == ".npy" else _table(suffix, file, parts) as write,
        ):
            for start in range(0, rows.shape[0], step):
                stop = min(start + step, rows.shape[0])
                write(start, stop)
                advance(stop - start)
    return Exported(path, rows.shape[0], len(columns))


@contextmanager
def _locked(path: str, source: str | None, *, overwrite: bool) -> Iterator[str]:
    """The normalised path of a file to write, locked against other runs. Raises SpecError if it must not be written."""
    path = output.output_path(path, source)
    output.check_file(path, "bigkpca export")
    store = store_of(path)
    with store.writer(path):
        if store.exists(path) and not overwrite:  # also if another run has just written it
            raise SpecError(
                f"{path} already exists: choose another name, or replace it with --overwrite (overwrite=True in Python)"
            )
        yield path


@dataclass(frozen=True)
class _Columns:
    """Columns of one dtype, and a reader of a range of their rows, (b, k) or (b,)."""

    names: Sequence[str]
    dtype: np.dtype[Any]
    read: Callable[[int, int], Array]


def _labels(given: AnyPath, store: str | None, rows: Rows) -> _Columns:
    """The labels of the rows, which may be scores in a feature store. Raises SpecError unless each row has one."""
    if not is_path(given):
        raise SpecError(
            f"labels must be a path or a name, not {type(given).__name__}: save the values with "
            "np.save('labels.npy', labels) and pass that path"
        )
    source = (rows.fingerprint() if store is None else (groups.describe(store) or {})["input"])["path"]
    values, where, categories = open_labels(expanded(given), source)
    place = where.removesuffix("/y")  # which can be passed itself
    grown = source is not None and store_of(place).absolute(place) == source  # to which rows can have been appended
    if values.ndim != 1 or values.shape[0] < rows.shape[0] or (values.shape[0] > rows.shape[0] and not grown):
        raise SpecError(f"{where} has labels of shape {values.shape}, but the rows need {rows.shape[0]:,} labels")

    def read(start: int, stop: int) -> Array:
        found = np.asarray(values[start:stop])
        return names_of(found, categories, where) if categories else found

    return _Columns(["label"], read(0, 1).dtype, read)


def _flags(store: str | None) -> list[_Columns]:
    """The flags of the rows, with reasons as words; none without a feature store with flags."""
    if store is None or (groups.describe(store) or {}).get("flag") is None:
        return []
    statistic, flagged = (groups.open_values(store, name) for name in ARRAYS)
    reasons = np.array(REASONS)
    return [
        _Columns(["statistic"], statistic.dtype, lambda start, stop: np.asarray(statistic[start:stop])),
        _Columns(["flagged"], reasons.dtype, lambda start, stop: reasons[flagged[start:stop]]),
    ]


def _native(values: Array) -> Array:
    """The same values in the byte order of this machine, which Arrow needs."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


@contextmanager
def _npy(file: IO[bytes], rows: Rows) -> Iterator[Callable[[int, int], Any]]:
    """A writer of ranges of rows to a .npy file."""
    header = {"descr": rows.dtype.newbyteorder("=").str, "fortran_order": False, "shape": rows.shape}
    np.lib.format.write_array_header_1_0(file, header)
    yield lambda start, stop: file.write(_native(rows.block(start, stop)).tobytes())


@contextmanager
def _table(suffix: str, file: IO[bytes], parts: Sequence[_Columns]) -> Iterator[Callable[[int, int], Any]]:
    """A writer of ranges of rows to a table; text has enough digits to distinguish all numbers. Raises SpecError for
    types that Arrow lacks."""
    import pyarrow as pa
    from pyarrow import csv
    from pyarrow.parquet import ParquetWriter

    fields: list[Any] = []
    for part in parts:
        try:
            kind = pa.array(np.empty(0, part.dtype.newbyteorder("="))).type
        except pa.ArrowNotImplementedError as error:
            raise SpecError(
                f"the column {part.names[0]} has the dtype {part.dtype}, which CSV and Parquet lack: convert it first, "
                "e.g. to float64 or text"
            ) from error
        fields += [(name, kind) for name in part.names]
    schema = pa.schema(fields)
    opened: Any = (
        csv.CSVWriter(file, schema, write_options=csv.WriteOptions(quoting_style="needed"))
        if suffix == ".csv"
        else ParquetWriter(file, schema)
    )

    def write(start: int, stop: int) -> None:
        blocks = [_native(part.read(start, stop)).reshape(stop - start, -1) for part in parts]
        writer.write_table(pa.table([column for block in blocks for column in block.T], schema=schema))

    with opened as writer:
        yield write
