"""Arrays as NumPy would allocate them, since the last bits of a product depend on how its factors lie in memory.

What comes out of a message of another process, or out of a caller's own buffer, may begin at an odd address, or hold
columns one after the other. On such arrays A'A, A'x and sums take other ways through NumPy and BLAS, and give other
last bits than on aligned copies: which operations do, and on which processor, differs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from bigkpca.errors import Array

# Where allocators put every array. Measured: offsets of 16, 32 and 48 bytes change no bit on any processor type of
# OpenBLAS, while dot products in its kernels for Prescott tell multiples of 8 from those of 16.
_BYTES = 16


def aligned(X: Array) -> Array:
    """X in C order, from an address that is a multiple of 16; itself where it is so, else a copy."""
    if X.flags.c_contiguous and X.ctypes.data % _BYTES == 0:
        return X
    return np.array(X, order="C", copy=True, subok=False)


def all_aligned(value: Any) -> Any:
    """A value with every array in it aligned: in tuples, lists, dictionaries and dataclasses, however deep.

    The value itself where all its arrays are. Frozen dataclasses are copied with what they have cached; other objects,
    as those of a user's own kernel, are left as they are.
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
    found = [all_aligned(item) for item in items]
    if all(new is old for new, old in zip(found, items, strict=True)):
        return items
    return type(items)(*found) if hasattr(items, "_fields") else type(items)(found)


def _changed(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The entries of which something had to be copied, aligned."""
    return {key: new for key, old in values.items() if (new := all_aligned(old)) is not old}
