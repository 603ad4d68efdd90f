"""Entries that are masked, fill values and packed numbers: what they stand for is not what is stored, so they are
refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigkpca.errors import DataError

_FILLS = ("_FillValue", "missing_value")
_NAN = {"nan", "NaN", "None", "AAAAAAAA+H8="}  # as text; the last is how xarray writes it in Zarr v3
OF_DASK = (
    "some values of the dask array are masked: dask.array.ma.filled(X.astype(float), numpy.nan) makes them NaN, and "
    "X[~dask.array.isnan(X).any(axis=1)] then leaves out their rows"
)


def fills_of(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes that name numbers for missing values. NaN is left out: a pass finds it, and names its row."""
    found = {name: np.ravel(np.asarray(attributes[name], object)) for name in _FILLS if name in attributes}
    return {name: values[0] for name, values in found.items() if not {str(each) for each in values} <= _NAN}


def check_encoding(attributes: Mapping[str, Any], where: str, opened: str) -> None:
    """Raise DataError for a stored array whose attributes, in the CF conventions, say that its numbers stand for
    others; `opened` is a line that decodes them."""
    packed = [name for name in ("scale_factor", "add_offset", "_Unsigned") if name in attributes]
    if found := [*packed, *fills_of(attributes)]:
        raise DataError(
            f"{where} has the attributes {', '.join(found)}: its numbers are packed, or some mean missing; pass "
            f"{opened}, which decodes them, and leave out rows with missing values by dropna"
        )


def check_fills(array: Any) -> None:
    """Raise DataError for a DataArray of xarray with an attribute that says which numbers mean missing."""
    for name, value in fills_of(array.attrs).items():
        raise DataError(
            f"the DataArray has the attribute {name}={value}, so some values may mean missing: X.where(X != {value})."
            f"assign_attrs({name}=numpy.nan) makes them NaN, and dropna({array.dims[0]!r}) leaves out their rows"
        )


def unmasked(values: Any, refusal: str) -> Any:
    """Values without an empty mask. Raises DataError with this refusal if some are masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if np.ma.is_masked(values):
        raise DataError(refusal)
    return values.data
