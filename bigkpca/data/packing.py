"""Packed arrays, as the CF conventions of NetCDF define them: stored numbers that represent values in physical units.

    value = stored * scale_factor + add_offset, and missing where stored is _FillValue or a missing_value

Rules for dtypes and attributes are those of xarray.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from bigkpca.errors import Array, DataError

ATTRIBUTES = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
_XARRAY_DIMS = "_ARRAY_DIMENSIONS"  # an attribute with which xarray marks its arrays in Zarr v2


@dataclass(frozen=True)
class Packing:
    """How stored numbers become values.

    stored: their dtype after `_Unsigned`. dtype: that of the values. fills: stored numbers that mean missing; their
    values are NaN.
    """

    stored: np.dtype[Any]
    dtype: np.dtype[Any]
    scale: float | None = None
    offset: float | None = None
    fills: tuple[float, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether values that are not missing are the stored integers."""
        return self.stored.kind in "iu" and self.scale is None and self.offset is None

    @property
    def shown_fills(self) -> tuple[str, ...]:
        """The fills, in the shortest form that identifies them."""
        return tuple(str(self.stored.type(fill)) for fill in self.fills)

    def decode(self, numbers: Array) -> Array:
        """The values of stored numbers, which may be changed."""
        numbers = numbers.view(self.stored)
        missing = [numbers == fill for fill in self.fills]
        values = numbers.astype(self.dtype, copy=False)
        if self.scale is not None:
            values *= self.scale
        if self.offset is not None:
            values += self.offset
        for each in missing:
            values[each] = np.nan
        return values


def packing_of_array(array: zarr.Array[Any], where: str) -> Packing | None:
    """The packing of a Zarr array; None if its numbers are values."""
    attributes = array.attrs.asdict()
    if array.metadata.zarr_format == 2 and _XARRAY_DIMS in attributes and array.fill_value is not None:
        attributes = attributes | {"_FillValue": array.fill_value}  # as xarray writes and reads it
    return packing_of(attributes, np.dtype(array.dtype), where)


def packing_of(attributes: Mapping[str, Any], dtype: np.dtype[Any], where: str) -> Packing | None:
    """The packing that attributes describe, for stored numbers of this dtype; None if the numbers are values. Raises
    DataError for an attribute that cannot be used."""
    if dtype.kind not in "iuf":
        return None
    stored, scale, offset = dtype, *(_factor(attributes, name, where) for name in ("scale_factor", "add_offset"))
    if "_Unsigned" in attributes and dtype.kind in "iu":
        unsigned = str(attributes["_Unsigned"]).lower()
        if unsigned not in ("true", "false"):
            raise _unusable(where, "_Unsigned", attributes["_Unsigned"], "'true' or 'false'")
        stored = np.dtype(f"{dtype.byteorder}{'u' if unsigned == 'true' else 'i'}{dtype.itemsize}")
    given = [number for name in ("_FillValue", "missing_value") for number in _numbers(attributes, name, dtype, where)]
    fills = tuple(dict.fromkeys(fill for number in given for fill in _as_stored(number, dtype, stored)))
    if scale is None and offset is None and not fills and stored == dtype:
        return None
    dtype = _value_dtype(stored, scale, offset, fills)
    return Packing(
        stored, dtype, None if scale is None else float(scale), None if offset is None else float(offset), fills
    )


def _factor(attributes: Mapping[str, Any], name: str, where: str) -> np.floating[Any] | None:
    """The number of scale_factor or add_offset, in its own precision; None if it is not set."""
    if name not in attributes:
        return None
    values = _as_array(attributes[name])
    usable = values.size == 1 and values.dtype.kind in "iuf" and np.isfinite(values).all()
    if not usable or (name == "scale_factor" and not values.any()):
        other = " other than 0" * (name == "scale_factor")
        raise _unusable(where, name, attributes[name], f"one finite number{other}")
    return values.astype(values.dtype if values.dtype.kind == "f" else np.float64).reshape(-1)[0]


def _as_array(given: Any) -> Array:
    """An attribute as an array, of objects if its lists differ in length."""
    try:
        return np.asarray(given)
    except ValueError:
        return np.array(None, object)


def _numbers(attributes: Mapping[str, Any], name: str, dtype: np.dtype[Any], where: str) -> Sequence[float]:
    """The stored numbers, in an attribute, that mean missing."""
    if name not in attributes:
        return ()
    given = attributes[name]
    if name == "_FillValue" and isinstance(given, str) and dtype.kind == "f":  # xarray's form in Zarr v3
        try:
            return struct.unpack("<d", base64.standard_b64decode(given))
        except (struct.error, ValueError):
            pass  # refused below
    values = [each for each in np.asarray(given, object).reshape(-1).tolist() if not _is_nothing(each)]
    if _as_array(values).dtype.kind not in "iuf":
        raise _unusable(where, name, given, "a number")
    return values


def _is_nothing(given: Any) -> bool:
    """Whether it is null or NaN as text, which writers of JSON put for NaN: that is missing anyway."""
    return given is None or (isinstance(given, str | bytes) and given.lower() in ("nan", b"nan"))


def _as_stored(number: float, dtype: np.dtype[Any], stored: np.dtype[Any]) -> Sequence[float]:
    """A number of an attribute as it is stored; empty if it cannot be, or if it is NaN, which is missing anyway."""
    if np.isnan(number):
        return ()
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return (dtype.type(number).item(),)  # 1e20 is not a number of float32
    for each in (dtype, stored):
        if np.iinfo(each).min <= number <= np.iinfo(each).max and number == int(number):
            return (np.array(int(number), each).view(stored).item(),)
    return ()


def _value_dtype(
    stored: np.dtype[Any], scale: np.floating[Any] | None, offset: np.floating[Any] | None, fills: Sequence[float]
) -> np.dtype[Any]:
    """The dtype of values: that of the factors, if it has enough digits, or one that also has NaN."""
    if offset is not None and (scale is None or scale.dtype != offset.dtype):
        return np.dtype(np.float64)  # float32 could lose digits of a large offset
    if scale is not None:
        digits = stored.kind in "iu" and stored.itemsize == 4 and offset is not None
        return np.dtype(np.float64) if digits else scale.dtype.newbyteorder("=")
    if not fills or stored.kind == "f":
        return stored.newbyteorder("=")
    return np.dtype(np.float32 if stored.itemsize <= 2 else np.float64)


def _unusable(where: str, name: str, value: Any, wanted: str) -> DataError:
    return DataError(
        f"{where}: its attribute {name} is {value!r:.80}, not {wanted}: correct the attribute, or pass the decoded "
        "values as an array"
    )
