"""Arrays that lie in memory as NumPy would not allocate them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

Array = np.ndarray[Any, Any]


def at_offset(X: Array, offset: int) -> Array:
    """Equal to X, at an address that is `offset` bytes after a multiple of 64."""
    buffer = np.empty(X.nbytes + 128, np.uint8)
    found = np.frombuffer(buffer, X.dtype, X.size, -buffer.ctypes.data % 64 + offset).reshape(X.shape)
    found[...] = X
    return found


def misaligned(X: Array) -> Array:
    return at_offset(X, 19)  # where distributed was seen to put arrays


def off_by_eight(X: Array) -> Array:
    return at_offset(X, 8)  # aligned as NumPy sees it, but not to 16 bytes


def read_only(X: Array) -> Array:
    found = X.copy()
    found.flags.writeable = False
    return found


def every_other(X: Array) -> Array:
    return np.repeat(X, 2, axis=-1)[..., ::2]


ASKEW: dict[str, Callable[[Array], Array]] = {
    "misaligned": misaligned,
    "off by eight": off_by_eight,
    "read-only": read_only,
    "transposed": np.asfortranarray,
    "strided": every_other,
    "misaligned and read-only": lambda X: read_only_view(misaligned(X)),
}
every_askew = pytest.mark.parametrize("how", ASKEW)


def read_only_view(X: Array) -> Array:
    X.flags.writeable = False
    return X


def in_order(X: Array) -> bool:
    return X.flags.c_contiguous and X.flags.aligned and X.ctypes.data % 16 == 0


class Pair(NamedTuple):
    first: Array
    second: Any


@dataclass(frozen=True)
class Held:
    """A value as those of the package: frozen, with arrays at some depth, and one that was cached."""

    X: Array
    others: Any

    def cached(self, X: Array) -> Held:
        vars(self)["_cached"] = X
        return self
