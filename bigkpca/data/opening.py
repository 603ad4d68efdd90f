"""Open the rows that a user passes: an array, a tensor, a frame, a Dask array, a Zarr array or a path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from scipy.sparse import issparse

from bigkpca.data.dask import array_rows, frame_rows, uncounted_rows
from bigkpca.data.frames import (
    check_data_array,
    checked,
    column_names,
    is_dask_array,
    is_dask_frame,
    is_data_array,
    is_tensor,
    tensor_rows,
)
from bigkpca.data.npy import NpyRows
from bigkpca.data.rows import ArrayRows, Rows, check_shape
from bigkpca.data.sparse import SparseRows, sparse_rows
from bigkpca.data.stores import absent, expanded, is_path, store_of
from bigkpca.data.zarr import ATTRIBUTE, array_path, arrays_of, group_rows, open_node, zarr_rows
from bigkpca.errors import DataError, SpecError, check_numeric, unreadable

_OPENED_BY = {  # what opens the files with these endings
    (".npz",): "scipy.sparse.load_npz({0!r}) or numpy.load({0!r})['NAME']",
    (".zip",): "zarr.open(zarr.storage.ZipStore({!r}, mode='r'), mode='r')['NAME']",
    (".nc", ".nc4", ".cdf"): "xarray.open_dataset({!r})['NAME']",
    (".h5", ".hdf5"): "dask.array.from_array(h5py.File({!r})['NAME'])",
    (".h5ad",): "anndata.experimental.read_lazy({!r}).X",
}


def open_rows(data: Any, array: str | None = None) -> Rows:
    """Open the rows that a user passes: values in memory, a Dask or Zarr array, or a path; `array` is one in a group.

    A pass counts the rows of Dask frames and of chunks of unknown sizes. Raises SpecError, DataError for dtypes and
    shapes that cannot be rows, and IncompleteError for a half-ingested dataset."""
    rows = _any_rows(data, array)
    check_numeric(rows.dtype, rows.where)
    check_shape(rows.shape, rows.where)
    return rows


def open_uncounted(data: Any) -> Rows:
    """Like `open_rows`, for results row by row: rows of a Dask array with unknown chunk sizes are not counted."""
    return open_rows(uncounted_rows(data) if is_dask_array(data) else data)


def path_of(data: Any) -> str | None:
    """The path, if a user passes a path or a Zarr array or group in a folder; None for anything else."""
    if is_path(data):
        return expanded(data)
    return array_path(data) if isinstance(data, zarr.Array | zarr.Group) else None


def is_lazy(data: Any) -> bool:
    """Whether `data` is a path, or something of Dask or Zarr, whose rows need not be in memory."""
    held = data.data if is_data_array(data) else data
    return is_path(held) or isinstance(held, zarr.Array | zarr.Group) or is_dask_array(held) or is_dask_frame(held)


def in_memory(rows: Rows) -> bool:
    """Whether the values of these rows are in memory."""
    return isinstance(rows, ArrayRows | SparseRows)


def _any_rows(data: Any, array: str | None) -> Rows:
    if is_path(data):
        return _path_rows(expanded(data), array)
    if is_data_array(data):
        check_data_array(data)
        return replace(_any_rows(data.data, array), names=column_names(data))
    if is_dask_frame(data):
        return frame_rows(data)
    if is_dask_array(data):
        return array_rows(data)
    if isinstance(data, zarr.Array):
        return zarr_rows(data, array_path(data) or f"the zarr array {data.path!r}")
    if isinstance(data, zarr.Group):
        path = array_path(data)
        if path is not None and ATTRIBUTE in data.attrs:
            return _path_rows(path, array)
        names = list(arrays_of(data, path or "the data"))
        named = f"pass one of them, as in group[{names[0]!r}]" if names else "pass an array"
        raise SpecError(
            f"{path or 'the data'} is a Zarr group of the arrays {names}, but rows must be one array: {named}"
        )
    if isinstance(data, Rows):
        return data
    if issparse(data):
        return sparse_rows(data)
    if is_tensor(data):
        return tensor_rows(data)
    values = checked(data)
    try:
        values = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    except ValueError as error:
        raise DataError(
            f"the rows do not form an array, since they differ in length or are not numbers: {error}"
        ) from error
    check_shape(values.shape, "the array")
    return ArrayRows(values, names=column_names(data))


def _path_rows(path: str, array: str | None) -> Rows:
    store = store_of(path)
    if not store.exists(path):
        raise absent(path, f"{path} does not exist")
    if not store.is_folder(path):
        if path.endswith(".npy"):
            try:
                return NpyRows.open(store.absolute(path))  # workers may run in another folder
            except OSError as error:
                raise unreadable(error, path) from error
        for endings, line in _OPENED_BY.items():
            if path.endswith(endings):
                raise SpecError(f"{path} is a file: pass an array in it, as in {line.format(path)}")
        raise SpecError(f"{path} is a file; make a dataset from it first: bigkpca ingest {path} DATASET.zarr")
    node = open_node(path)
    if node is None:  # or an output in an object store, where it is written in place
        raise absent(path, f"{path} is not a Zarr array or group, nor a .npy file")
    if isinstance(node, zarr.Array):
        return zarr_rows(node, path)
    if array is None and "encoding-type" in node.attrs:
        raise SpecError(f"{path} is of AnnData: pass anndata.experimental.read_lazy({path!r}).X")
    return group_rows(path, node, array)
