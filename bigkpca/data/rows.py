"""What all kinds of rows have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bigkpca.errors import Array, DataError

if TYPE_CHECKING:  # so that `--help`, which asks for the options of a fit, is quick
    from dask.delayed import Delayed

EVERY = slice(None)  # column


class Rows(Protocol):
    """A two-dimensional table of numbers that is read by row ranges."""

    @property
    def where(self) -> str:
        """What error messages call it."""

    @property
    def name(self) -> str | None:
        """Name of the array in its group, to open it again."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, None where nothing tells."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""

    @property
    def grain(self) -> int:
        """Rows that storage reads at once; blocks start at multiples of it."""

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) that storage reads at once where some columns alone are asked for: the shape of a chunk."""

    def part(self, start: int, stop: int, columns: slice = EVERY) -> Rows | Delayed:
        """What a task on rows start..stop needs, numbered as in the whole: all of it for files, or a piece."""

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        """Rows start..stop, or the columns of them from columns.start to columns.stop, in `dtype`, aligned.

        Raises CorruptionError where they cannot be read.
        """

    def fingerprint(self) -> dict[str, Any]:
        """What identifies the rows, JSON-ready: path (None without one), shape, dtype, and a stamp that changes
        when they do: sizes and times or tags of stored chunks, or SHA-256 of what is in memory. No pass over files."""


def anonymous(rows: Rows) -> dict[str, Any]:
    """The fingerprint of rows whose content is not looked at."""
    return {"path": None, "shape": list(rows.shape), "dtype": rows.dtype.str, "stamp": None}


def check_shape(shape: tuple[int, ...], where: str) -> tuple[int, int]:
    """Raise DataError unless the shape is two-dimensional with rows and columns."""
    if len(shape) != 2:
        raise DataError(f"{where} has shape {shape}: rows must be two-dimensional, (rows, columns)")
    if 0 in shape:
        raise DataError(f"{where} is empty: shape {shape}")
    return shape


def little_endian(X: Array) -> memoryview:
    """The values of X in C order and little-endian, as bytes to hash."""
    return np.ascontiguousarray(X.astype(X.dtype.newbyteorder("<"), copy=False)).view(np.uint8).data
