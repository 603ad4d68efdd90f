"""Tables of pandas, polars, pyarrow and Dask, DataArrays of xarray, and tensors: detection, column names and values.

Libraries are never imported to recognize their objects: a caller with one has imported them.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from bigkpca.data.devices import device_of
from bigkpca.data.rows import ArrayRows, check_shape
from bigkpca.data.stores import is_path
from bigkpca.errors import Array, DataError, SpecError, check_numeric
from bigkpca.numerics.array_api import dtype_of

FRAME = "the dask dataframe"
_MOST_NAMED = 5  # columns that one message names
_FILLS = ("_FillValue", "missing_value")
_NAN = {"nan", "NaN", "None", "AAAAAAAA+H8="}  # as text; the last is how xarray writes it in Zarr v3
OF_DASK = (
    "some values of the dask array are masked: dask.array.ma.filled(X.astype(float), numpy.nan) makes them NaN, and "
    "X[~dask.array.isnan(X).any(axis=1)] then leaves out their rows"
)


def is_of(data: Any, module: str, name: str) -> bool:
    """Whether `data` is of this class of a module, which is not imported."""
    return isinstance(data, getattr(sys.modules.get(module), name, ()))


def is_data_array(data: Any) -> bool:
    """Whether `data` is an xarray DataArray."""
    return is_of(data, "xarray", "DataArray")


def is_dask_array(data: Any) -> bool:
    """Whether `data` is a Dask array; the import of `dask.array` takes half a second."""
    return is_of(data, "dask.array", "Array")


def is_dask_frame(data: Any) -> bool:
    """Whether `data` is a Dask DataFrame or Series."""
    return is_dask_collection(data) and hasattr(data, "to_dask_array")


def is_frame(data: Any) -> bool:
    """Whether `data` is a pandas or polars frame, or has the same interface."""
    return all(hasattr(data, name) for name in ("columns", "dtypes", "to_numpy"))


def check_data_array(data: Any) -> None:
    """Raise DataError or SpecError for a DataArray that is not a table, has fill values, or is of unknown length."""
    if not is_data_array(data):
        return
    if data.ndim != 2:
        stacked = f"stack the dims that form one row, as in X.stack(feature={list(data.dims[1:])!r})"
        advice = stacked if data.ndim > 2 else "one column is X.expand_dims('feature', axis=1)"
        raise DataError(f"the DataArray has the dims {data.dims}: rows must be two-dimensional; {advice}")
    if any(math.isnan(length) for length in data.shape):
        raise SpecError(
            "the DataArray has unknown chunk sizes: call compute_chunk_sizes() on its Dask array before creating it"
        )
    for name, value in fills_of(data.attrs).items():
        raise DataError(
            f"the DataArray has the attribute {name}={value}, so some values may mean missing: X.where(X != {value})."
            f"assign_attrs({name}=numpy.nan) makes them NaN, and dropna({data.dims[0]!r}) leaves out their rows"
        )


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
    """Names of columns, of a DataArray as text; None without, and if some names of a frame are not strings, as in
    scikit-learn."""
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


def checked(data: Any) -> Any:
    """What a user passes as rows: a frame as an array, anything else as it is. Raises DataError for masked values, for
    text, and for columns that are not numeric, SpecError for what is not one table in memory. Numbers stored as
    objects, strings or categories are accepted, as in scikit-learn; dates are not."""
    _check_one_table(data)  # first, since accessing the columns of a lazy frame would warn
    data = unmasked(
        data,
        "some values of the array are masked: numpy.ma.compress_rows(X) leaves out their rows, and X.filled(value) "
        "fills them in",
    )
    if is_frame(data) or is_of(data, "pyarrow", "Table"):
        return _frame_values(data)
    _check_no_texts(data)
    return data


def _check_one_table(data: Any) -> None:
    """Raise SpecError, with what to pass instead, for a lazy frame, for what other libraries have to read, and for a
    container of several tables."""
    if hasattr(data, "collect") and hasattr(data, "sink_parquet"):
        raise SpecError(
            "a LazyFrame has no rows yet: pass the result of its collect() or, if that does not fit in memory, make a "
            'dataset with bigkpca.ingest(frame, "rows.zarr") and pass its path'
        )
    if is_of(data, "h5py", "HLObject"):
        raise SpecError(
            "pass a dataset of h5py as dask.array.from_array(dataset) or, of a netCDF file, as "
            "xarray.open_dataset(path)[name], where missing values are NaN"
        )
    if is_of(data, "netCDF4", "Variable"):
        raise SpecError(
            f"a netCDF4 Variable masks its missing values: pass xarray.open_dataset({data.group().filepath()!r})"
            f"[{data.name!r}], where they are NaN, and leave out their rows by dropna"
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
        raise SpecError("an AnnData object contains several matrices: pass one, as in X.X or X.layers['counts']")


def _frame_values(table: Any) -> Array:
    """The values of a frame or a table of Arrow as one array of numbers, missing ones NaN."""
    of_frame = is_frame(table)
    if of_frame and len(set(table.dtypes)) == 1:  # of others, polars would make numbers of dates
        values = np.asarray(table.to_numpy())
        if values.dtype.kind in "buif" and values.shape[1:] == (len(table.columns),):  # not an array in each row
            return values
    names, dtypes = (table.columns, table.dtypes) if of_frame else (table.schema.names, table.schema.types)
    columns, unfit = [], []
    for number, (name, dtype) in enumerate(zip(names, dtypes, strict=True)):
        of_pandas = hasattr(table, "iloc")
        column = table.iloc[:, number] if of_pandas else table.to_series(number) if of_frame else table.column(number)
        if (found := _numbers(column)) is None:
            unfit.append(f"{dtype} values in column {number} ({name!r})")
        else:
            columns.append(found)
    if unfit:
        more = [f"and in {len(unfit) - _MOST_NAMED} more columns"] if len(unfit) > _MOST_NAMED else []
        raise DataError(
            f"the frame contains {', '.join([*unfit[:_MOST_NAMED], *more])}: rows must be real numbers (integer, float "
            "or bool). Leave these columns out, encode them in a pipeline with scikit-learn's ColumnTransformer, pass "
            "a column of lists as numpy.stack(column), or make a dataset, which turns dates into days and text into "
            'columns of 0 and 1: bigkpca.ingest(frame, "rows.zarr", categorical=[...])'
        )
    return np.column_stack(columns)


def _numbers(column: Any) -> Array | None:
    """The values of a column, missing ones NaN; None if they are not numbers, however they are kept."""
    values = np.asarray(column.to_numpy())
    if values.ndim > 1 or values.dtype.kind in "mMc":  # NumPy would convert these, with another meaning
        return None
    if values.dtype.kind in "buif":
        return values
    try:  # pandas has missing values of its own
        return np.asarray(column.astype(np.float64) if hasattr(column, "iloc") else values, np.float64)
    except (TypeError, ValueError):
        return None


def _check_no_texts(data: Any) -> None:
    """Raise DataError for an array or a list of strings that are not all numbers; accept anything else."""
    if isinstance(data, list | tuple) and data:
        first = data[0] if isinstance(data[0], list | tuple) else data
        data = np.asarray(data, object) if any(isinstance(each, str) for each in first) else data
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "OU" or _are_floats(data):
        return
    for place, value in np.ndenumerate(data):
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


# Masked entries, fill values and packed numbers: what they stand for is not what is stored, so they are refused.


def fills_of(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes that name numbers for missing values. NaN is left out: a pass finds it, and names its row."""
    found = {name: np.ravel(np.asarray(attributes[name], object)) for name in _FILLS if name in attributes}
    return {name: values[0] for name, values in found.items() if not {str(each) for each in values} <= _NAN}


def check_encoding(attributes: Mapping[str, Any], where: str, opened: str) -> None:
    """Raise DataError for an array whose attributes of CF say that it is packed; the line `opened` decodes it."""
    packed = [name for name in ("scale_factor", "add_offset", "_Unsigned") if name in attributes]
    if found := [*packed, *fills_of(attributes)]:
        raise DataError(
            f"{where} has the attributes {', '.join(found)}: its numbers are packed, or some mean missing; pass "
            f"{opened}, which decodes them, and leave out rows with missing values by dropna"
        )


def unmasked(values: Any, refusal: str) -> Any:
    """Values without an empty mask. Raises DataError with this refusal if some are masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if np.ma.is_masked(values):
        raise DataError(refusal)
    return values.data


# Tensors of PyTorch, and arrays of CuPy and array_api_strict.


def is_of_torch(data: Any) -> bool:
    """Whether `data` is a PyTorch tensor."""
    return is_of(data, "torch", "Tensor")


def is_of_cupy(data: Any) -> bool:
    """Whether `data` is a CuPy array."""
    return is_of(data, "cupy", "ndarray")


def is_tensor(data: Any) -> bool:
    """Whether `data` is an array of one of these libraries."""
    return is_of_torch(data) or is_of_cupy(data) or is_of(data, "array_api_strict._array_object", "Array")


def tensor_rows(data: Any) -> ArrayRows:
    """Rows of a tensor: of the same memory, or on its device. Raises the errors of `check_tensor`."""
    where = "the array"
    check_tensor(data, where)
    check_shape(tuple(data.shape), where)
    if (device := device_of(data)) is None:
        return ArrayRows(data.numpy(force=True), where=where)  # copies only values with a lazy sign
    device.finish()  # what computes the tensor: passes do not wait for other streams
    return ArrayRows(data, where=where)


def check_tensor(data: Any, where: str) -> np.dtype[Any]:
    """The dtype of a tensor, as NumPy's. Raises SpecError if it cannot become an array of NumPy, e.g. if it is sparse
    or records operations for a gradient."""
    if is_of_torch(data) and (data.is_nested or str(data.layout) != "torch.strided"):
        raise SpecError(
            f"{where} is a nested or sparse tensor: pass one with the same columns in all rows, as X.to_dense() gives, "
            "or a sparse array of SciPy"
        )
    try:
        if is_of_torch(data):
            data[:0].resolve_conj().resolve_neg().cpu().numpy()
        dtype = dtype_of(data)
    except (IndexError, RuntimeError, TypeError) as error:
        raise SpecError(f"{where} cannot be read as an array of NumPy: {error}") from error
    check_numeric(dtype, where)
    return dtype
