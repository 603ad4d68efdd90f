"""Results in the container of the input: a Dask frame with its index, a DataArray with its dims and coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigkpca.data.frames import FRAME, frame_dtype
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import Array
from bigkpca.execution.carried import Carried
from bigkpca.execution.on_graphs import constant
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
        values = view(model.value, rows).compute(scheduler="synchronous")
    return _labelled(values.reshape(len(part), len(columns)), part, columns)


def _labelled(values: Array, frame: Any, columns: Sequence[Any]) -> Any:
    return type(frame)(values, index=frame.index, columns=columns)


def in_data_array(given: Any, values: Any, name: str, columns: str = "component", labels: Any = None) -> Any:
    """Values (n, c) or (n,) of the rows of a DataArray, in memory or lazy, with the dim of its rows and what belongs to
    that; the dim of new columns is called `columns`, with coordinates if there are labels."""
    rows = given.dims[0]
    columns += "_" * (columns == rows)  # a dim occurs once
    kept = {key: own for key, own in given.coords.items() if set(own.dims) <= {rows}}
    if labels is not None:
        kept[columns] = labels
    return type(given)(values, dims=(rows, columns)[: values.ndim], coords=kept, name=name)
