"""Results in the container of the input: a Dask frame with its index, a DataArray with its dims and coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigkpca.data.frames import FRAME, frame_dtype, is_data_array
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import Array
from bigkpca.execution.carried import Carried
from bigkpca.execution.graphs import constant
from bigkpca.numerics.model import Model

View = Callable[[Model, Any], Any]  # of `arrays`: lazy values (n, c) or (n,) of rows, which refuse what does not fit


def header(frame: Any) -> Any:
    """The columns of a Dask frame, as a pandas frame without rows. Raises DataError for what is no table of numbers."""
    frame_dtype(frame)
    return frame._meta


def in_frame(frame: Any, view: View, model: Model, columns: Sequence[Any]) -> Any:
    """What `view` makes of the rows of a Dask frame, as a lazy one with these columns and its own index and divisions.

    Partitions are taken one by one, whatever their lengths, which nobody counts.
    """
    dtype = frame_dtype(frame)
    made = view(model, ArrayRows(np.zeros((1, len(frame.columns)), dtype), where=FRAME))  # lazy: only its checks run
    meta = _labelled(np.empty((0, len(columns)), made.dtype), header(frame), columns)
    return frame.map_partitions(_of_partition, view, constant(model), list(columns), dtype, made.dtype, meta=meta)


def _of_partition(
    part: Any, view: View, model: Carried, columns: Sequence[Any], dtype: np.dtype[Any], made: np.dtype[Any]
) -> Any:
    values = np.empty((0, len(columns)), made)
    if len(part):
        rows = ArrayRows(part.astype(dtype).to_numpy(), where=f"a partition of {FRAME}")
        values = view(model.value, rows).compute(scheduler="synchronous").reshape(len(part), len(columns))
    return _labelled(values, part, columns)


def _labelled(values: Array, frame: Any, columns: Sequence[Any]) -> Any:
    return type(frame)(values, index=frame.index, columns=columns)


def in_data_array(given: Any, values: Any, name: str, columns: str = "component", like: Any = None) -> Any:
    """Values (n, c) or (n,) of the rows of a DataArray, in memory or lazy, with the dim of its rows and what belongs to
    that; a dim of rows that was stacked is unstacked.

    The dim of new columns is called `columns`, or is that of the columns of `like`, a DataArray or names.
    """
    rows = given.dims[0]
    coords = _coords_along(given, rows)
    if like is not None and hasattr(like, "dims"):
        columns = like.dims[1]
        coords = coords.merge(_coords_along(like, columns)).coords
    columns += "_" * (columns == rows)  # a dim occurs once
    found = type(given)(values, dims=(rows, columns)[: values.ndim], coords=coords, name=name)
    if like is not None and not hasattr(like, "dims"):
        found = found.assign_coords({columns: like})
    return found.unstack(rows) if is_stacked(given, rows) else found


def header_of(given: Any) -> Any:
    """The columns of a DataArray, as one without rows: their dim and coordinates. No values are computed."""
    coords = _coords_along(given, given.dims[1])
    return type(given)(np.empty((0, given.shape[1])), dims=given.dims, coords=coords)


def _coords_along(given: Any, dim: str) -> Any:
    """The coordinates of a DataArray that lie along one dim alone."""
    others = [key for key, own in given.coords.items() if not set(own.dims) <= {dim}]
    return given.drop_vars(others).coords


def is_stacked(given: Any, dim: str) -> bool:
    """Whether a dim of a DataArray was made of several, and can be taken apart again."""
    index = given.indexes.get(dim)
    return index is not None and index.nlevels > 1 and index.is_unique


def are_maps(scores: Any, columns: str = "component") -> bool:
    """Whether scores are a DataArray in which the rows have several dims."""
    return is_data_array(scores) and scores.ndim > 2 and columns in scores.dims


def stacked_rows(maps: Any, columns: str = "component") -> Any:
    """A DataArray of scores with the several dims of its rows stacked to one."""
    return maps.stack(sample=[dim for dim in maps.dims if dim != columns]).transpose("sample", columns)


def of_rows_there(maps: Any, function: Callable[[Any], Any], columns: str = "component") -> Any:
    """function(stacked rows) of a DataArray of scores; NaN for rows that have none, as those left out of a stack.

    They get scores of 0 meanwhile, so that nobody has to find them first: lazy scores stay lazy.
    """
    there = maps.notnull().any(columns).reset_coords(drop=True)  # else lazy coordinates would be compared
    return function(stacked_rows(maps.where(there, 0.0), columns)).where(there)
