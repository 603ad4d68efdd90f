"""Tables of pandas, polars, pyarrow and Dask, and DataArrays of xarray: detection, column names and values; and what
has masked or packed values, which are refused."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from bigkpca.data.rows import check_shape
from bigkpca.data.stores import is_path
from bigkpca.errors import Array, DataError, SpecError, check_numeric

FRAME = "the dask dataframe"
_SERIES = (("pandas", "Series"), ("polars", "Series"), ("pyarrow", "ChunkedArray"), ("pyarrow", "Array"))
_MOST_NAMED = 5  # columns that one message names


def is_data_array(data: Any) -> bool:
    """Whether `data` is an xarray DataArray; xarray itself is not imported for this."""
    return is_of(data, "xarray", "DataArray")


def is_of(data: Any, module: str, name: str) -> bool:
    """Whether `data` is of this class; its module, which a caller with such an object has imported, is not imported."""
    return isinstance(data, getattr(sys.modules.get(module), name, ()))


def check_data_array(data: Any) -> None:
    """Raise DataError for a DataArray that is not a table, SpecError for one of unknown length, which xarray cannot
    use. Accept anything else."""
    if not is_data_array(data):
        return
    if data.ndim < 2:
        raise DataError(
            f"the DataArray has the dims {data.dims}: rows must be two-dimensional; one column is "
            "X.expand_dims('feature', axis=1)"
        )
    if data.ndim > 2:
        raise DataError(
            f"the DataArray has the dims {data.dims}: rows must be two-dimensional; stack the dims that form one row, "
            f"as in X.stack(feature={list(data.dims[1:])!r})"
        )
    if any(math.isnan(length) for length in data.shape):
        raise SpecError(
            "the DataArray has unknown chunk sizes: call compute_chunk_sizes() on its Dask array before creating it"
        )
    check_unpacked(data.attrs, "the DataArray", "xarray.open_dataset or xarray.decode_cf")


_PACKED = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
_NAN = (None, "NaN", "nan", b"NaN", b"nan", "AAAAAAAA+H8=")  # as writers of Zarr metadata put it


def check_unpacked(attributes: Mapping[str, Any], where: str, opener: str) -> None:
    """Raise DataError if attributes of the CF conventions say that numbers are packed, or that some mean missing
    values other than NaN."""
    given = {name: attributes[name] for name in _PACKED if name in attributes}
    if found := [name for name, value in given.items() if not _is_nan(value)]:
        raise DataError(
            f"{where} has the {'attributes' if found[1:] else 'attribute'} {', '.join(found)}: its values are packed, "
            f"or some are missing: decode it with {opener}, and leave out or fill in rows with missing values "
            "(dropna, fillna)"
        )


def _is_nan(value: Any) -> bool:
    if isinstance(value, str | bytes | None):
        return value in _NAN
    values = np.ravel(value)
    return values.dtype.kind == "f" and bool(np.isnan(values).all())


def check_unmasked(values: Any, where: str) -> None:
    """Raise DataError for masked values."""
    if np.ma.is_masked(values):
        raise DataError(
            f"some values of {where} are masked: leave out their rows, or impute them; filled(value) returns an array "
            "without a mask (numpy.ma, dask.array.ma)"
        )


def is_dask_array(data: Any) -> bool:
    """Whether `data` is a Dask array; the import of `dask.array` takes half a second."""
    return is_of(data, "dask.array", "Array")


def is_dask_frame(data: Any) -> bool:
    """Whether `data` is a Dask DataFrame or Series."""
    return is_dask_collection(data) and hasattr(data, "to_dask_array")


def frame_dtype(frame: Any) -> np.dtype[Any]:
    """The common dtype of all columns of a Dask frame. Raises DataError naming a column that is not numeric."""
    if frame.ndim != 2:
        raise DataError(f"{FRAME} is a Series, one column: rows must be two-dimensional; pass a frame, as in df[['x']]")
    check_shape((1, len(frame.columns)), FRAME)
    found = []
    for name, dtype in frame.dtypes.items():
        own = getattr(dtype, "numpy_dtype", dtype)  # pandas' nullable numbers and Arrow's numbers
        if not isinstance(own, np.dtype):  # categories and dates with time zones, which NumPy does not have
            own = np.dtype(object)
        check_numeric(own, f"column {name!r}")
        found.append(own if isinstance(dtype, np.dtype) or own.kind == "f" else np.dtype(np.float64))  # missing: NaN
    return np.result_type(*found)


def column_names(data: Any) -> tuple[str, ...] | None:
    """Column names of a frame, or the index of the columns of a DataArray as text; None for anything else and, as in
    scikit-learn, if some names of a frame are not strings."""
    if is_data_array(data):
        index = data.indexes.get(data.dims[1])
        return tuple(map(str, index.tolist())) if index is not None and index.is_unique else None
    names = _columns(data)
    return names if names and all(isinstance(name, str) for name in names) else None


def _columns(data: Any) -> tuple[Any, ...]:
    return tuple(data.columns) if is_frame(data) or is_dask_frame(data) else ()


def check_names(data: Any) -> None:
    """Raise SpecError for a frame with two columns of the same name, which scikit-learn does not accept."""
    names = _columns(data)
    twice = [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []
    if twice:
        raise SpecError(
            f"{names.count(twice[0])} columns of the frame are named {twice[0]!r}, but KernelPCA identifies columns by "
            "name: rename them, or pass an array"
        )


def check_frame(data: Any) -> None:
    """Raise DataError for strings and for a frame with a column that is not numeric, SpecError for a lazy frame and for
    a container of several tables; accept anything else. Numbers stored as objects, strings or categories are accepted,
    as in scikit-learn; dates are not."""
    if hasattr(data, "collect") and hasattr(data, "sink_parquet"):  # first, since accessing its columns would warn
        raise SpecError(
            "a LazyFrame has no rows yet: pass the result of its collect() or, if that does not fit in memory, make a "
            'dataset with bigkpca.ingest(frame, "rows.zarr") and pass its path'
        )
    if is_of(data, "xarray", "Dataset"):
        first = next(iter(data.data_vars), "name")
        rows = "" if len(data.dims) < 2 else f".stack(row={list(data.dims)!r})"
        dim = "row" if rows else next(iter(data.dims), "row")
        raise SpecError(
            f"a Dataset contains several arrays: pass one, as in X[{first!r}], or all as the columns of one, as in "
            f"X.to_array('variable'){rows}.transpose({dim!r}, 'variable')"
        )
    if isinstance(data, list | tuple) and data and all(map(is_path, data)):
        raise SpecError(
            f"rows must be one array or one path, not a list of paths ({os.fspath(data[0])!r}, ...): combine the files "
            "with bigkpca ingest FILE FILE ... rows.zarr, and pass the path of that dataset; --append adds more files "
            "to it"
        )
    if not is_frame(data) and all(hasattr(data, name) for name in ("X", "obs", "var")):
        raise SpecError(
            "an AnnData object contains several matrices: pass one, as in X.X or X.layers['counts'], or the path of a "
            "file"
        )
    check_unmasked(data, "the array")
    if is_of(data, "netCDF4", "Variable"):
        raise SpecError(
            "a Variable of netCDF4 masks fill values: open its file with xarray.open_dataset, and pass the DataArray"
        )
    of_arrow = is_of(data, "pyarrow", "Table")
    if not (is_frame(data) or of_arrow):
        _check_no_texts(data)
        return
    names, dtypes = (data.schema.names, data.schema.types) if of_arrow else (data.columns, data.dtypes)
    unfit = [
        f"{dtype} values in column {number} ({name!r})"
        for number, (name, dtype) in enumerate(zip(names, dtypes, strict=True))
        if not _is_numeric(data, number, dtype)
    ]
    if unfit:
        more = [f"and in {len(unfit) - _MOST_NAMED} more columns"] if len(unfit) > _MOST_NAMED else []
        raise DataError(
            f"the frame contains {', '.join([*unfit[:_MOST_NAMED], *more])}: rows must be real numbers (integer, float "
            "or bool). Leave these columns out, encode them in a pipeline with scikit-learn's ColumnTransformer, or "
            "make a dataset, which turns dates into days and text into columns of 0 and 1: "
            'bigkpca.ingest(frame, "rows.zarr", categorical=[...])'
        )


def _is_numeric(data: Any, number: int, dtype: Any) -> bool:
    """Whether a column of a frame of this dtype holds numbers, or something that can become numbers unchanged."""
    if is_of(data, "pyarrow", "Table"):
        values = data.column(number).to_numpy()
    elif dtype.kind in "buif" if hasattr(dtype, "kind") else dtype.is_numeric() or str(dtype) == "Boolean":
        return True
    else:  # numbers that pandas or polars store as something else
        values = np.asarray(data.iloc[:, number] if hasattr(data, "iloc") else data.to_series(number))
    # NumPy would convert times and complex numbers, with another meaning.
    return values.ndim == 1 and values.dtype.kind not in "mMc" and _are_floats(values)


def _check_no_texts(data: Any) -> None:
    """Raise DataError for an array or a list of strings that are not all numbers; accept anything else."""
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
                f"the array contains the text {str(value)!r:.40} at {list(place)} (counted from 0): rows must be "
                "numbers. Make a dataset of the table or its file with bigkpca ingest, which turns text into columns "
                "of 0 and 1 with --categorical, and into rows of characters for string kernels with --text"
            )


def _are_floats(values: Array) -> bool:
    """Whether all values can be converted to floats."""
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def is_frame(data: Any) -> bool:
    """Whether `data` is a pandas or polars frame, or has the same interface."""
    return all(hasattr(data, name) for name in ("columns", "dtypes", "to_numpy"))


def frame_values(frame: Any) -> Array:
    """The values of a frame as one array of numbers."""
    values: Array = frame.to_numpy()
    if values.dtype.kind in "buif":
        return values
    # Columns of several types, and pandas columns with missing values, arrive as objects.
    return frame.astype(np.float64).to_numpy() if hasattr(frame, "astype") else values.astype(np.float64)


def unnested(data: Any) -> Any:
    """A column of lists of numbers, such as embeddings, as an array (n, d): a Series, an Arrow array, or a frame of one
    such column. Anything else is returned unchanged. Raises DataError for lists of different lengths."""
    of_arrow = is_of(data, "pyarrow", "Table")
    if of_arrow or (not hasattr(data, "collect") and is_frame(data)):
        if (data.num_columns if of_arrow else len(data.columns)) != 1:
            return data
        column = data.column(0) if of_arrow else data.iloc[:, 0] if hasattr(data, "iloc") else data.to_series(0)
    elif any(is_of(data, *each) for each in _SERIES):
        column = data
    else:
        return data
    values = column.to_numpy(**({"zero_copy_only": False} if is_of(column, "pyarrow", "Array") else {}))
    if values.ndim == 2:  # lists of fixed length in polars, or structs
        return values if str(column.dtype).startswith("Array") else data
    if values.dtype != object or not len(values) or not isinstance(values[0], list | np.ndarray):
        return data
    lengths = np.array([-1 if each is None else len(each) for each in values])
    if (lengths != lengths[0]).any():
        row = int(np.argmax(lengths != lengths[0]))
        found = "is missing" if lengths[row] < 0 else f"has {lengths[row]:,} numbers"
        raise DataError(
            f"row {row} (counted from 0) {found}, and row 0 has {lengths[0]:,}: all lists must have the same length"
        )
    return np.stack(list(values))
