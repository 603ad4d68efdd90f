"""Copies of arrays at aligned addresses: the last bits of a product depend on how its factors lie in memory.

An array from a message of another process, or from a caller's buffer, may begin at an odd address, or hold columns one
after the other. NumPy and BLAS then take other code paths for A'A, A'x and sums, whose last bits differ. Which
operations do so depends on the processor.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from bigkpca.errors import Array

# The alignment of every allocator. Measured: offsets of 16, 32 and 48 bytes change no bit on any processor type of
# OpenBLAS; an offset of 8 changes dot products of its kernels for Prescott.
_BYTES = 16


def aligned(X: Array) -> Array:
    """X in C order at an address that is a multiple of 16: X itself, or a copy."""
    if X.flags.c_contiguous and X.ctypes.data % _BYTES == 0:
        return X
    return np.array(X, order="C", copy=True, subok=False)


def all_aligned(value: Any) -> Any:
    """The value with every array in it aligned: in tuples, lists, dictionaries and dataclasses, at any depth.

    Returns the value itself where all its arrays are aligned. Frozen dataclasses are copied together with their cached
    properties; other objects, e.g. a user's own kernel, are not changed.
    """
    if isinstance(value, np.ndarray):
        return aligned(value)
    if isinstance(value, list | tuple):
        return _rebuilt(value)
    if isinstance(value, dict) and (changed := _changed(value)):
        return value | changed
    if (
        is_dataclass(value)
        and hasattr(value, "__dict__")
        and not isinstance(value, type)
        and (changed := _changed(vars(value)))
    ):
        value = copy.copy(value)
        vars(value).update(changed)
    return value


def _rebuilt(items: list[Any] | tuple[Any, ...]) -> Any:
    """The list or tuple with aligned items; itself where they are."""
    found = [all_aligned(item) for item in items]
    if all(new is old for new, old in zip(found, items, strict=True)):
        return items
    return type(items)(*found) if hasattr(items, "_fields") else type(items)(found)


def _changed(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The entries that had to be copied, aligned."""
    items = list(values.items())  # at once, as another thread may add a cached property to the same value meanwhile
    return {key: new for key, old in items if (new := all_aligned(old)) is not old}
