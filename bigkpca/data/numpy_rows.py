"""Rows of NumPy arrays in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.data.rows import EVERY, anonymous, little_endian
from bigkpca.errors import Array
from bigkpca.numerics.aligned import aligned
from bigkpca.numerics.display import brief


@dataclass(frozen=True)
class ArrayRows:
    """Rows first, first + 1, ... and columns first_column, ... of a table, in memory."""

    values: Array
    first: int = 0
    where: str = "the array"
    name: None = None
    grain: int = 1
    first_column: int = 0
    grid: tuple[int, int] = (1, 1)
    names: tuple[str, ...] | None = None

    __repr__ = brief

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def held_bytes(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes

    def part(self, start: int, stop: int, columns: slice = EVERY) -> ArrayRows:
        names = self.names if columns == EVERY else None
        found = self._cut(start, stop, columns)
        return ArrayRows(found, start, self.where, first_column=columns.start or 0, names=names)

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        return aligned(self._cut(start, stop, columns))

    def _cut(self, start: int, stop: int, columns: slice) -> Array:
        found = self.values[start - self.first : stop - self.first]
        if columns == EVERY:
            return found
        return found[:, columns.start - self.first_column : columns.stop - self.first_column]

    def fingerprint(self) -> dict[str, Any]:
        return anonymous(self) | {"stamp": hashlib.sha256(little_endian(self.values)).hexdigest()}
