"""Arrays that lie in memory as NumPy would not allocate them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


def at_offset(X, offset):
    """Equal to X, at an address that is `offset` bytes after a multiple of 64."""
    buffer = np.empty(X.nbytes + 128, np.uint8)
    found = np.frombuffer(buffer, X.dtype, X.size, -buffer.ctypes.data % 64 + offset).reshape(X.shape)
    found[...] = X
    return found


def misaligned(X):
    return at_offset(X, 19)  # where distributed was seen to put arrays


def read_only(X):
    found = X[...]
    found.flags.writeable = False
    return found


ASKEW = {
    "misaligned": misaligned,
    "off by eight": lambda X: at_offset(X, 8),  # aligned as NumPy sees it, but not to 16 bytes
    "read-only": read_only,
    "transposed": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=-1)[..., ::2],
    "misaligned and read-only": lambda X: read_only(misaligned(X)),
}


def in_order(X):
    return X.flags.c_contiguous and X.flags.aligned and X.ctypes.data % 16 == 0


class Pair(NamedTuple):
    first: Array
    second: Any


@dataclass(frozen=True)
class Held:
    """A value as those of the package: frozen, with arrays at some depth, and one that was cached."""

    X: Array
    others: Any

    def cached(self, X):
        vars(self)["_cached"] = X
        return self
