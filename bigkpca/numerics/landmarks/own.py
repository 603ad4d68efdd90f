"""Landmarks that the caller gives, as rows or as row numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from bigkpca.errors import Array, SpecError, check_finite, check_numeric
from bigkpca.numerics.display import brief


class Own:
    """Landmarks of the caller's own: equal where they say the same to a file."""

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """What a file holds of them."""
        raise NotImplementedError

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        """As that of a LandmarkRule."""
        return 2 * rows * columns * itemsize

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.to_dict() == self.to_dict()

    def __hash__(self) -> int:
        return hash(str(self.to_dict()))


@dataclass(frozen=True, eq=False)
class Rows(Own):
    """The caller's own landmarks, (l, d), in the units of the data. Of rows that recur the first alone becomes one.

    Raises SpecError unless they are a table, DataError for text, NaN and infinity. `sha256` is the digest of the values
    as they were first given, and `given` their number, before a model rounded them and left out those that recur.
    """

    name: ClassVar[str] = "rows"
    values: Array
    sha256: str | None = None
    given: int | None = None

    @property
    def count(self) -> int:
        """How many rows were given."""
        return self.given or len(self.values)

    __repr__ = brief

    def __post_init__(self) -> None:
        check_numeric(self.values.dtype, "the array of landmarks")
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise SpecError(f"landmarks of shape {self.values.shape}: give rows like those of the data, (l, d)")
        check_finite(self.values, 0, "the array of landmarks")

    def to_dict(self) -> dict[str, Any]:
        values = np.ascontiguousarray(self.values, np.float64)
        digest = self.sha256 or hashlib.sha256(values.tobytes()).hexdigest()
        return {"name": self.name, "sha256": digest, "count": self.count}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], own: Array) -> Self:
        """The landmarks that `to_dict` described, which a model holds as `own`."""
        return cls(own, values["sha256"], values["count"])


@dataclass(frozen=True, eq=False)
class RowNumbers(Own):
    """The rows of the data with these numbers, counted from 0. Of rows that recur the first alone becomes one."""

    name: ClassVar[str] = "row-numbers"
    numbers: Array

    __repr__ = brief

    @property
    def count(self) -> int:
        """How many numbers were given."""
        return len(self.numbers)

    def __post_init__(self) -> None:
        if self.numbers.ndim != 1 or not len(self.numbers):
            raise SpecError(
                f"landmarks of shape {self.numbers.shape}: give at least one row (l, d), or row number (l,)"
            )
        if self.numbers.dtype.kind not in "iu":
            raise SpecError(f"row numbers for landmarks must be integers, not {self.numbers.dtype}; rows are (l, d)")
        if self.numbers.min() < 0:
            raise SpecError(f"landmark {self.numbers.min()}: row numbers are counted from 0")

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "numbers": self.numbers.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], own: Array) -> Self:
        """The numbers that `to_dict` described."""
        return cls(np.array(values["numbers"]))


def distinct(rows: Array) -> Array:
    """The first of each of the rows (l, d) that are the same, in their order."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows if len(first) == len(rows) else rows[np.sort(first)]
