"""Dims and coordinates of xarray's DataArrays, as models and Zarr arrays store them. xarray itself is not imported."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigkpca.data.rows import little_endian
from bigkpca.data.stores import MOST_JSON_BYTES
from bigkpca.errors import Array

_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
MOST_BYTES = 9 * MOST_JSON_BYTES // 16  # of coordinates that a model stores: 3/4 of its metadata, in base 64
_LAZY_TEXT_BYTES = 100  # planned for a text whose length is not known before it is computed
_DTYPE = re.compile(r"\|[biu]1|<([iu][248]|f[248]|[mM]8\[(s|ms|us|ns)\]|U[1-9]\d{0,6})")


@dataclass(frozen=True)
class Labels:
    """One dim of a DataArray.

    coords: the coordinates along it, each (length,), that are numbers, text or times. attrs: their attributes that JSON
    can hold. levels: those of its multi-index, which was stacked. left_out: the names of other coordinates along it.
    """

    dim: str
    coords: Mapping[str, Array]
    attrs: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Any, axis: int, most: float = math.inf) -> Labels:
        """The labels of one axis of a DataArray. Computes coordinates that are lazy, and leaves out those with which
        all would have more than `most` bytes."""
        dim, length, along = data.dims[axis], data.shape[axis], _along(data, axis)
        coords: dict[str, Array] = {}
        for name, each in along.items():
            left = most - sum(values.nbytes for values in coords.values())
            if length * _item_bytes(each) <= left and (values := _plain(each)) is not None and values.nbytes <= left:
                coords[str(name)] = values
        attrs = {str(name): found for name, each in along.items() if (found := _attributes(each))}
        left_out = tuple(str(name) for name in along if str(name) not in coords)
        return cls(str(dim), coords, attrs, _levels(data, dim), left_out)

    @property
    def identity(self) -> dict[str, Any]:
        """What tells them apart from others, JSON-ready: the dim, levels, and SHA-256 and attributes of coordinates."""
        return self._record(lambda values: {"sha256": hashlib.sha256(little_endian(values)).hexdigest()})

    def stored(self) -> dict[str, Any]:
        """What a model keeps, JSON-ready."""
        return self._record(lambda values: {"values": base64.b64encode(little_endian(values)).decode()})

    def _record(self, described: Callable[[Array], dict[str, Any]]) -> dict[str, Any]:
        coords = {
            name: {"dtype": values.dtype.newbyteorder("<").str, **described(values)}
            | ({"attrs": self.attrs[name]} if name in self.attrs else {})
            for name, values in self.coords.items()
        }
        found: dict[str, Any] = {"dim": self.dim, "coords": coords}
        return found | {"levels": list(self.levels)} if self.levels and set(self.levels) <= set(coords) else found

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of the array that stores a coordinate: its own, and those by which xarray reads times."""
        values, found = self.coords[name], dict(self.attrs.get(name, {}))
        if values.dtype.kind in "mM":
            unit = np.datetime_data(values.dtype)[0]
            since = {"units": f"{_UNITS[unit]} since 1970-01-01", "calendar": "proleptic_gregorian"}
            found |= since if values.dtype.kind == "M" else {"units": _UNITS[unit], "dtype": f"timedelta64[{unit}]"}
            found |= {"_FillValue": np.iinfo(np.int64).min} if np.isnat(values).any() else {}
        return found

    def only(self, names: Collection[str]) -> Labels:
        """Without the coordinates of other names, which are left out."""
        kept = {name: values for name, values in self.coords.items() if name in names}
        left_out = (*self.left_out, *(name for name in self.coords if name not in kept))
        return replace(self, coords=kept, left_out=left_out)


def bytes_of_labels(data: Any, axis: int) -> int:
    """Bytes of the coordinates that `Labels.of` holds in memory; of lazy text, an estimate. Computes nothing."""
    return sum(data.shape[axis] * _item_bytes(each) for each in _along(data, axis).values())


def are_stored_labels(value: Any, length: int | None = None) -> bool:
    """Whether a value of JSON can be labels of a dim, of this length if it is known."""
    if not (isinstance(value, dict) and isinstance(value.get("dim"), str) and isinstance(value.get("coords"), dict)):
        return False
    levels = value.get("levels", [])
    if not isinstance(levels, list) or not all(isinstance(each, str) and each in value["coords"] for each in levels):
        return False
    return all(_is_coordinate(each, length) for each in value["coords"].values())


def header_from(stored: dict[str, Any], length: int, like: Any) -> Any:
    """A DataArray without rows whose columns, the last dim, have these labels; of the class of the DataArray `like`."""
    dim = stored["dim"]
    coords = {name: (dim, _restored(each), each.get("attrs", {})) for name, each in stored["coords"].items()}
    found = type(like)(np.empty((0, length)), dims=(f"{dim}_", dim), coords=coords)
    return found.set_index({dim: levels}) if (levels := stored.get("levels")) else found


def difference_of_columns(given: Any, stored: dict[str, Any]) -> str | None:
    """How the dim and index of the columns of a DataArray differ from stored ones; None if they do not. Columns of
    another number, or without an index, are not compared."""
    dim, own = stored["dim"], given.dims[1]
    if str(own) != dim:
        return (
            f"the DataArray has the dims {given.dims}: the model was fitted on columns along {dim!r}, which must be "
            "the last dim; transpose or rename"
        )
    here = {str(name): given[name].values for name in _levels(given, own) or given.indexes.keys() & {own}}
    there = index_values(stored)
    if not (here and there) or any(len(values) != given.shape[1] for values in there.values()):
        return None
    differ = f"the coordinates of the dim {dim!r} differ from the fitted ones in"
    if list(here) != list(there):
        found, fitted = (", ".join(names) for names in (here, there))
        return f"{differ} levels: they are {found} here, and {fitted} in the fit; stack the same dims in the same order"
    pairs = [_in_one_precision(here[name], there[name]) for name in here]
    same = np.logical_and.reduce([(a == b) | ((a != a) & (b != b)) for a, b in pairs])  # NaN is NaN
    if same.all():
        return None
    columns = [list(zip(*values, strict=True)) for values in zip(*pairs, strict=True)]
    reordered = set(columns[0]) == set(columns[1])
    what, advice = ("order", "sort or reindex them") if reordered else ("values", "select the columns of the fit")
    first = int(np.argmin(same))
    found, fitted = (", ".join(map(_shown, values[first])) for values in columns)
    return f"{differ} {what}: column {first} is {found} here, and {fitted} in the fit; {advice}"


def index_values(stored: dict[str, Any] | None) -> dict[str, Array]:
    """The values of the index that stored labels have: of its levels, or of the coordinate with the name of the dim;
    empty without an index."""
    if stored is None:
        return {}
    names = stored.get("levels", [stored["dim"]])
    return {name: _restored(stored["coords"][name]) for name in names if name in stored["coords"]}


def _in_one_precision(a: Array, b: Array) -> tuple[Array, Array]:
    """Two coordinates, floats in the narrower dtype of both: 0.1 in float64 is 0.1 in float32."""
    if a.dtype.kind == b.dtype.kind == "f":
        dtype = min(a.dtype, b.dtype, key=lambda each: each.itemsize)
        with np.errstate(over="ignore"):
            return a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    return a, b


def _shown(value: Any) -> str:
    """A value of a coordinate, text in quotes: '1' is not 1."""
    return repr(str(value)) if isinstance(value, str) else str(value)


def as_array(values: Array) -> Array:
    """The numbers or text that store a coordinate."""
    return values.view(np.int64) if values.dtype.kind in "mM" else values


def _along(data: Any, axis: int) -> dict[Any, Any]:
    """The coordinates along one axis of a DataArray: levels in place of their multi-index, other indexes first."""
    dim = data.dims[axis]
    index = {dim, *_levels(data, dim)}
    found = {
        name: each for name, each in data.coords.items() if each.dims == (dim,) and not (name == dim and len(index) > 1)
    }
    return dict(sorted(found.items(), key=lambda each: each[0] not in index))


def _levels(data: Any, dim: Any) -> tuple[str, ...]:
    """The names of the levels of the multi-index of a dim; empty for another index, and for none."""
    index = data.indexes.get(dim)
    return tuple(index.names) if index is not None and index.nlevels > 1 else ()


def _item_bytes(coordinate: Any) -> int:
    """Bytes of each value of a coordinate in memory: text takes 4 for each character of the longest one."""
    if coordinate.dtype.kind not in "OT":  # objects, and text of any length
        return int(coordinate.dtype.itemsize)
    if coordinate.chunks is not None:
        return _LAZY_TEXT_BYTES
    return 4 * max((len(each) for each in coordinate.values.flat if isinstance(each, str)), default=0)


def _plain(coordinate: Any) -> Array | None:
    """The values of a coordinate, computed if lazy, in a dtype that can be stored; None if there is none."""
    values: Array = np.asarray(coordinate.values)
    if values.dtype.kind in "OT" and all(isinstance(each, str) for each in values.flat):
        values = values.astype(object).astype(str)
    if values.dtype.kind in "mM":
        return values if np.datetime_data(values.dtype) in [(unit, 1) for unit in _UNITS] else None
    known = values.dtype.kind == "U" or (values.dtype.kind in "buif" and values.dtype.itemsize <= 8)
    return values.astype(values.dtype.newbyteorder("="), copy=False) if known else None


def _attributes(coordinate: Any) -> dict[str, Any]:
    """The attributes of a coordinate that are text, finite numbers, and lists of these."""
    found = {}
    for name, value in coordinate.attrs.items():
        try:
            found[str(name)] = json.loads(json.dumps(value, allow_nan=False, default=lambda given: given.tolist()))
        except (AttributeError, TypeError, ValueError):  # of other objects, and of NaN
            continue
    return found


def _restored(coordinate: dict[str, Any]) -> Array:
    values = np.frombuffer(base64.b64decode(coordinate["values"], validate=True), coordinate["dtype"])
    return values.astype(values.dtype.newbyteorder("="))


def _is_coordinate(value: Any, length: int | None) -> bool:
    if not (isinstance(value, dict) and isinstance(value.get("values"), str) and isinstance(value.get("dtype"), str)):
        return False
    if _DTYPE.fullmatch(value["dtype"]) is None or not isinstance(value.get("attrs", {}), dict):
        return False
    try:
        restored = _restored(value)
    except ValueError:
        return False
    parts, most = {"b": (np.uint8, 1), "U": (np.uint32, sys.maxunicode)}.get(restored.dtype.kind, (np.uint8, 255))
    return bool((restored.view(parts) <= most).all()) and length in (None, len(restored))
