"""Data frames of pandas, polars and Dask, and DataArrays of xarray: detection, column names and values."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from bigkpca.data.rows import check_shape
from bigkpca.data.stores import is_path
from bigkpca.errors import Array, DataError, SpecError, check_numeric

FRAME = "the dask dataframe"


def is_data_array(data: Any) -> bool:
    """Whether `data` is a DataArray of xarray; xarray itself is not imported for that."""
    return _is_of(data, "xarray", "DataArray")


def _is_of(data: Any, module: str, name: str) -> bool:
    return isinstance(data, getattr(sys.modules.get(module), name, ()))


def check_data_array(data: Any) -> None:
    """Raise DataError for a DataArray that is no table, SpecError for one of unknown length, which xarray cannot use.
    Accept anything else."""
    if not is_data_array(data):
        return
    if data.ndim < 2:
        raise DataError(
            f"the DataArray has the dims {data.dims}: rows must be two-dimensional; one column is "
            "X.expand_dims('feature', axis=1)"
        )
    if data.ndim > 2:
        raise DataError(
            f"the DataArray has the dims {data.dims}: rows must be two-dimensional; stack what belongs to one row, as "
            f"in X.stack(feature={list(data.dims[1:])!r})"
        )
    if any(math.isnan(length) for length in data.shape):
        raise SpecError(
            "the DataArray has unknown chunk sizes: call compute_chunk_sizes() on its Dask array before you make it"
        )


def is_dask_array(data: Any) -> bool:
    """Whether `data` is an array of Dask; `dask.array`, of which half a second of imports depends, is not imported for
    that: whoever has one has imported it."""
    return _is_of(data, "dask.array", "Array")


def is_dask_frame(data: Any) -> bool:
    """Whether `data` is a DataFrame or a Series of Dask."""
    return is_dask_collection(data) and hasattr(data, "to_dask_array")


def frame_dtype(frame: Any) -> np.dtype[Any]:
    """The common dtype of all columns of a Dask frame. Raises DataError naming a column that holds no numbers."""
    if frame.ndim != 2:
        raise DataError(f"{FRAME} is a Series, one column: rows must be two-dimensional; give a frame, as df[['x']]")
    check_shape((1, len(frame.columns)), FRAME)
    found = []
    for name, dtype in frame.dtypes.items():
        own = getattr(dtype, "numpy_dtype", dtype)  # of pandas' nullable numbers and Arrow's numbers
        if not isinstance(own, np.dtype):  # categories and dates with time zones, which NumPy does not have
            own = np.dtype(object)
        check_numeric(own, f"column {name!r}")
        found.append(own if isinstance(dtype, np.dtype) or own.kind == "f" else np.dtype(np.float64))  # missing is NaN
    return np.result_type(*found)


def column_names(data: Any) -> tuple[str, ...] | None:
    """Column names of a frame; None for anything else and, as in scikit-learn, where some names are not text."""
    names = _columns(data)
    return names if names and all(isinstance(name, str) for name in names) else None


def _columns(data: Any) -> tuple[Any, ...]:
    return tuple(data.columns) if is_frame(data) or is_dask_frame(data) else ()


def check_names(data: Any) -> None:
    """Raise SpecError for a frame with two columns of one name, which scikit-learn does not take."""
    names = _columns(data)
    twice = [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []
    if twice:
        raise SpecError(
            f"{names.count(twice[0])} columns of the frame are called {twice[0]!r}, and KernelPCA tells columns by "
            "their names: rename them, or give an array"
        )


def check_frame(data: Any) -> None:
    """Raise DataError for a frame with a column that is not numeric and for texts, SpecError for a lazy frame and for
    what holds several tables; accept anything else. Numbers kept as objects, text or categories are accepted, as in
    scikit-learn; dates are not."""
    if hasattr(data, "collect") and hasattr(data, "sink_parquet"):  # first, since access to its columns would warn
        raise SpecError(
            "a LazyFrame holds no rows yet: give what its collect() returns, or, where that does not fit in memory, "
            "write it with sink_parquet(FILE.parquet) and make a dataset of that with bigkpca ingest"
        )
    if _is_of(data, "xarray", "Dataset"):
        first = next(iter(data.data_vars), "name")
        rows = "" if len(data.dims) < 2 else f".stack(row={list(data.dims)!r})"
        dim = "row" if rows else next(iter(data.dims), "row")
        raise SpecError(
            f"a Dataset holds several arrays: give one, as X[{first!r}], or all as the columns of one, as "
            f"X.to_array('variable'){rows}.transpose({dim!r}, 'variable')"
        )
    if isinstance(data, list | tuple) and data and all(map(is_path, data)):
        raise SpecError(
            f"rows are one array or one path, not a list, as of {os.fspath(data[0])!r}: make one dataset of all files "
            "with bigkpca ingest FILE FILE ... rows.zarr, and give its path; --append adds further files to it"
        )
    if not is_frame(data) and all(hasattr(data, name) for name in ("X", "obs", "var")):
        raise SpecError(
            "an AnnData holds several matrices: give one, as X.X or X.layers['counts'], or the path of a file"
        )
    if np.ma.is_masked(data):
        raise SpecError(
            "some values of the array are masked: leave their rows out, or impute them; X.filled(value) gives an array "
            "of all values"
        )
    if not is_frame(data):
        _check_no_texts(data)
        return
    for number, (name, dtype) in enumerate(zip(data.columns, data.dtypes, strict=True)):
        fits = dtype.kind in "buif" if hasattr(dtype, "kind") else dtype.is_numeric() or str(dtype) == "Boolean"
        if not fits:  # as numbers of pandas or polars that are kept as something else
            values = np.asarray(data.iloc[:, number] if hasattr(data, "iloc") else data.to_series(number))
            # NumPy would convert times and complex numbers, with another meaning.
            fits = values.ndim == 1 and values.dtype.kind not in "mMc" and _are_floats(values)
        if not fits:
            raise DataError(
                f"the frame holds {dtype} values in column {number} ({name!r}): rows must be real numbers (integer, "
                "float or bool); leave it out, or encode it: text and categories as codes, dates as the time since one"
            )


def _check_no_texts(data: Any) -> None:
    """Raise DataError for an array or a list of texts that are not all numbers; accept anything else."""
    if isinstance(data, list | tuple) and data and not isinstance(data[0], np.ndarray):
        first = data[0] if isinstance(data[0], list | tuple) else data
        values = np.asarray(data, object) if any(isinstance(each, str) for each in first) else None
    else:
        values = data if isinstance(data, np.ndarray) and data.dtype.kind in "OU" else None
    if values is None or _are_floats(values):
        return
    for place, value in np.ndenumerate(values):
        if isinstance(value, str) and not _are_floats(np.array(value)):
            raise DataError(
                f"the array holds the text {str(value)!r:.40} at {list(place)} (counted from 0): rows are numbers. "
                "Write a table to a file and make a dataset of it: bigkpca ingest turns text into columns with "
                "--categories one-hot, and into rows of characters for string kernels with --text"
            )


def _are_floats(values: Array) -> bool:
    """Whether all values can be converted to floats."""
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def is_frame(data: Any) -> bool:
    """Whether `data` is a frame of pandas or polars, or has the same interface."""
    return all(hasattr(data, name) for name in ("columns", "dtypes", "to_numpy"))


def frame_values(frame: Any) -> Array:
    """The values of a frame as one array of numbers."""
    values: Array = frame.to_numpy()
    if values.dtype.kind in "buif":
        return values
    # Columns of several types, and columns of pandas with missing values, come as objects.
    return frame.astype(np.float64).to_numpy() if hasattr(frame, "astype") else values.astype(np.float64)
