"""Dims and coordinates of xarray's DataArrays, as models and Zarr arrays store them. xarray itself is not imported."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.data.rows import little_endian
from bigkpca.errors import Array

_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_NAME = re.compile(r"[^/\s\0.][^/\s\0]*")  # of a folder, and in a list of names
_MOST = 2_000_000  # values that a model keeps, about 40 MB of JSON


@dataclass(frozen=True)
class Labels:
    """One dim of a DataArray.

    coords: the coordinates along it, each (length,), that are numbers, text or times. levels: those of its multi-index,
    which was stacked. left_out: the names of other coordinates.
    """

    dim: str
    coords: Mapping[str, Array]
    levels: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Any, axis: int) -> Labels:
        """The labels of one axis of a DataArray."""
        dim = data.dims[axis]
        index = data.indexes.get(dim)
        levels = tuple(index.names) if index is not None and index.nlevels > 1 else ()
        along = {
            name: each for name, each in data.coords.items() if each.dims == (dim,) and not (levels and name == dim)
        }
        coords = {str(name): values for name, each in along.items() if (values := _plain(name, each)) is not None}
        return cls(str(dim), coords, levels, tuple(str(name) for name in along if str(name) not in coords))

    @property
    def identity(self) -> dict[str, str]:
        """What tells them apart from others, JSON-ready: the dim, and SHA-256 of all names and values."""
        digest = hashlib.sha256(f"{self.levels}".encode())
        for name in sorted(self.coords):
            digest.update(f"\n{name} {self.coords[name].dtype}\n".encode())
            digest.update(little_endian(self.coords[name]))
        return {"dim": self.dim, "sha256": digest.hexdigest()}

    def stored(self) -> dict[str, Any]:
        """What a model keeps, JSON-ready: coordinates without NaN and infinity, if they are not too many."""
        kept = {
            name: values
            for name, values in self.coords.items()
            if values.dtype.kind != "f" or np.isfinite(values).all()
        }
        if sum(values.size for values in kept.values()) > _MOST:
            kept = {}
        coords = {
            name: {"dtype": "U" if values.dtype.kind == "U" else values.dtype.str, "values": _numbers(values).tolist()}
            for name, values in kept.items()
        }
        found: dict[str, Any] = {"dim": self.dim, "coords": coords}
        return found | {"levels": list(self.levels)} if self.levels and set(self.levels) <= set(kept) else found


def are_stored_labels(value: Any, length: int | None = None) -> bool:
    """Whether a value of JSON can be labels of a dim, of this length if it is known."""
    if not (isinstance(value, dict) and isinstance(value.get("dim"), str) and isinstance(value.get("coords"), dict)):
        return False
    levels = value.get("levels", [])
    if not isinstance(levels, list) or not all(isinstance(each, str) and each in value["coords"] for each in levels):
        return False
    return all(_is_coordinate(each, length) for each in value["coords"].values())


def header(stored: dict[str, Any], length: int, like: Any) -> Any:
    """A DataArray without rows whose columns, the last dim, have these labels; of the class of the DataArray `like`."""
    dim = stored["dim"]
    coords = {name: (dim, _restored(each)) for name, each in stored["coords"].items()}
    found = type(like)(np.empty((0, length)), dims=(f"{dim}_", dim), coords=coords)
    return found.set_index({dim: levels}) if (levels := stored.get("levels")) else found


def as_array(values: Array) -> tuple[Array, dict[str, str | int]]:
    """The numbers or text that store a coordinate, and attributes by which xarray reads them as times."""
    numbers = _numbers(values)
    if values.dtype.kind not in "mM":
        return numbers, {}
    unit = np.datetime_data(values.dtype)[0]
    missing: dict[str, str | int] = {"_FillValue": np.iinfo(np.int64).min} if np.isnat(values).any() else {}
    if values.dtype.kind == "m":
        return numbers, {"units": _UNITS[unit], "dtype": f"timedelta64[{unit}]"} | missing
    return numbers, {"units": f"{_UNITS[unit]} since 1970-01-01", "calendar": "proleptic_gregorian"} | missing


def _plain(name: Any, coordinate: Any) -> Array | None:
    """The values of a coordinate, computed if lazy, in a dtype that can be stored; None if there is none."""
    if _NAME.fullmatch(str(name)) is None:
        return None
    values: Array = np.asarray(coordinate.values)
    if values.dtype.kind == "O" and all(isinstance(each, str) for each in values.flat):
        values = values.astype(str)
    if values.dtype.kind in "mM":
        return values if np.datetime_data(values.dtype) in [(unit, 1) for unit in _UNITS] else None
    known = values.dtype.kind == "U" or (values.dtype.kind in "buif" and 2 <= 2 * values.dtype.itemsize <= 16)
    return values.astype(values.dtype.newbyteorder("="), copy=False) if known else None


def _number_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype as which values are stored."""
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype


def _numbers(values: Array) -> Array:
    return values.view(_number_dtype(values.dtype))


def _restored(coordinate: dict[str, Any]) -> Array:
    dtype = np.dtype(coordinate["dtype"])
    values = np.asarray(coordinate["values"], _number_dtype(dtype))
    return values.view(dtype) if dtype.kind in "mM" else values


def _is_coordinate(value: Any, length: int | None) -> bool:
    if not (isinstance(value, dict) and isinstance(value.get("values"), list) and isinstance(value.get("dtype"), str)):
        return False
    if length is not None and len(value["values"]) != length:
        return False
    if not re.fullmatch(r"[<|]([biuf][1248]|[mM]8\[(s|ms|us|ns)\])|U", value["dtype"]):
        return False
    kinds = {"U": (str,), "b": (bool,), "f": (int, float)}.get(value["dtype"].lstrip("<|")[0], (int,))
    if not all(type(each) in kinds for each in value["values"]):
        return False
    try:
        restored = _restored(value)
    except (OverflowError, TypeError, ValueError):  # a number that the dtype does not have, and a dtype such as b4
        return False
    return restored.dtype.kind != "f" or bool(np.isfinite(restored).all())
