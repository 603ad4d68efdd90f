"""The interface of rows: uniform access to rows in NumPy, Dask, Zarr and .npy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bigkpca.errors import Array, DataError

if TYPE_CHECKING:  # `--help` imports this file for the options of a fit, and must be quick
    from dask.delayed import Delayed

EVERY = slice(None)  # all columns


class Rows(Protocol):
    """A two-dimensional table of numbers that is read by ranges of rows."""

    @property
    def where(self) -> str:
        """Name of the source in messages."""

    @property
    def name(self) -> str | None:
        """Name of the array in its group, to open it again."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns; None where they have none."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype as stored."""

    @property
    def grain(self) -> int:
        """Number of rows that storage reads at once; blocks start at multiples of it."""

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of a chunk, which storage reads at once where only some columns are asked for."""

    def part(self, start: int, stop: int, columns: slice = EVERY) -> Rows | Delayed:
        """What a task on rows start..stop needs of the source, numbered as in the whole; all of it for files."""

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        """Rows start..stop, and columns columns.start..columns.stop of them, in `dtype`, aligned.

        Raises CorruptionError where they cannot be read.
        """

    def fingerprint(self) -> dict[str, Any]:
        """What identifies the rows, JSON-ready: path (or None), shape, dtype, and a stamp that changes with them.

        The stamp is made of sizes and times or tags of stored chunks, or is the SHA-256 of values in memory. No pass
        over files.
        """


def anonymous(rows: Rows) -> dict[str, Any]:
    """The fingerprint of rows without a path, before a stamp is added."""
    return {"path": None, "shape": list(rows.shape), "dtype": rows.dtype.str, "stamp": None}


def check_shape(shape: tuple[int, ...], where: str) -> tuple[int, int]:
    """Raise DataError unless the shape is two-dimensional, with at least one row and one column."""
    if len(shape) != 2:
        raise DataError(f"{where} has shape {shape}: rows must be two-dimensional, (rows, columns)")
    if 0 in shape:
        raise DataError(f"{where} is empty: shape {shape}")
    return shape


def little_endian(X: Array) -> memoryview:
    """The values of X in C order, little-endian, as bytes to hash."""
    return np.ascontiguousarray(X.astype(X.dtype.newbyteorder("<"), copy=False)).view(np.uint8).data
