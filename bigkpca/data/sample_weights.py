"""What a dataset holds beside its rows, and weights that a user gives to rows: values, or where they are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import zarr

from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.frames import check_tensor, is_tensor
from bigkpca.data.npy import NpyRows
from bigkpca.data.rows import Rows, SampleWeights
from bigkpca.data.stores import expanded, is_path, is_url, parent, store_of
from bigkpca.data.zarr import StoredArray, ZarrRows, arrays_of, open_node, read, stored_array
from bigkpca.errors import Array, DataError, IncompleteError, SpecError, nearest
from bigkpca.numerics.array_api import on_host


@dataclass(frozen=True)
class Beside:
    """Values beside the rows of a dataset, one for each row.

    option: the option of `ingest` that names them, and the entry of the attribute of a dataset. array: their array in a
    dataset. noun: what one of them is called in messages.
    """

    option: str
    array: str
    noun: str


LABELS = Beside("labels", "y", "label")
WEIGHTS = Beside("sample_weight", "sample_weight", "sample weight")
BESIDE = (LABELS, WEIGHTS)

OPTION = "--sample-weight (sample_weight= in Python)"
_NUMBERS = "buif"  # kinds of dtypes
_Rows = TypeVar("_Rows", bound=Rows)


def without(rows: _Rows, numbers: Array) -> _Rows:
    """The rows, of which those with these ascending numbers take no part in a fit, nor do those left out before."""
    weights = rows.weights or SampleWeights(None, rows.shape[0])
    return rows.changed(weights=replace(weights, excluded=np.union1d(weights.excluded, numbers)))


def number_and_weight(rows: Rows) -> tuple[int, float]:
    """The number of rows with a positive weight, and the sum of all weights. Raises the errors of `check_weights`."""
    n, weights, number, total = rows.shape[0], rows.weights, 0, 0.0
    if weights is None:
        return n, float(n)
    for start in range(0, n, READ_BYTES // 8):
        some = weights.of(start, min(start + READ_BYTES // 8, n))
        check_weights(some, start, rows.where)
        number, total = number + int(np.count_nonzero(some)), total + float(some.sum())
    return number, total


def weighted(rows: _Rows, given: Any) -> _Rows:
    """Rows with these weights: an array (n,), a Series, the path of a .npy file or of a Zarr array, or the name of an
    array beside the rows in their Zarr group. If others append rows, there can be more weights than rows.

    Raises SpecError for weights that do not exist or are not numbers, and for weights of another length, and
    IncompleteError if the weights of rows that others appended are still missing.
    """
    if given is None:
        return rows
    n, values = rows.shape[0], _opened(rows, given)
    count = values.shape[0]
    grows = isinstance(rows, ZarrRows) and rows.pinned and isinstance(values, StoredArray)
    if count < n and grows:
        raise IncompleteError(
            f"there are {count:,} sample weights for the {n:,} rows of {rows.where}: run the same command again when "
            "the others are written"
        )
    if count != n and not grows:
        raise SpecError(f"there are {count:,} sample weights for {n:,} rows of {rows.where}: give one for each row")
    if isinstance(values, StoredArray):
        stored = values.first(n)
        return rows.changed(weights=SampleWeights(partial(read, stored.array, stored.where), n))
    return rows.changed(weights=SampleWeights(values.block if isinstance(values, NpyRows) else values, n))


def _opened(rows: Rows, given: Any) -> Array | NpyRows | StoredArray:
    if isinstance(given, zarr.Array):
        where = f"the zarr array {given.path!r}"
        _check(given.dtype, given.shape, where)
        return stored_array(given, where)
    if not is_path(given):
        if is_tensor(given):
            check_tensor(given, "sample_weight")
            given = on_host(given)
        values = np.asarray(given)
        _check(values.dtype, values.shape, "sample_weight")
        return values
    path = expanded(given)
    if path.endswith(".npy") and (is_url(path) or store_of(path).exists(path)):
        found = NpyRows.open(store_of(path).absolute(path), column=True)
        _check(found.dtype, found.shape if found.shape[1] > 1 else found.shape[:1], path)
        return found
    group = rows.group if isinstance(rows, ZarrRows) else None
    beside = [] if group is None or is_url(path) or path.startswith((".", "/")) else [f"{group}/{path}"]
    for place in [*beside, store_of(path).absolute(path)]:
        if isinstance(node := open_node(place), zarr.Array):
            _check(node.dtype, node.shape, place)
            return stored_array(node, place, open_node(parent(place)))
    near, advice = None, "give the path of a .npy file or of a Zarr array"
    if group is not None and isinstance(node := open_node(group), zarr.Group):
        arrays = arrays_of(node, group)
        held = [name for name, each in arrays.items() if each.ndim == 1 and each.dtype.kind in _NUMBERS]
        near = nearest(path, held)
        advice = f"{group} has {', '.join(held) or 'no array'} with one number for each row"
    hint = f": did you mean {near!r}? " if near else "; "
    raise SpecError(f"{OPTION}: the array {path!r} does not exist{hint}{advice}")


def _check(dtype: np.dtype[Any], shape: tuple[int, ...], where: str) -> None:
    if len(shape) != 1:
        raise SpecError(f"{where} has shape {shape}: sample weights are one number for each row")
    if dtype.kind not in _NUMBERS:
        raise SpecError(f"{where} contains {dtype}: sample weights are numbers")


def check_weights(weights: Array, first: int, where: str) -> None:
    """Raise DataError for weights (b,) of rows first, first + 1, ... that are negative, NaN or infinite."""
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        i = int(wrong[0])
        raise DataError(
            f"{where}: the sample weight of row {first + i} is {weights[i]:g}: weights are finite numbers of at least 0"
        )
