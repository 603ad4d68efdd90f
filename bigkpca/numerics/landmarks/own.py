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
    """Landmarks that the caller gives; equal where `to_dict` describes them equally."""

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """The landmarks as JSON-ready values."""
        raise NotImplementedError

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        """As `LandmarkRule.working_bytes`."""
        return 2 * rows * columns * itemsize

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.to_dict() == self.to_dict()

    def __hash__(self) -> int:
        return hash(str(self.to_dict()))


@dataclass(frozen=True, eq=False)
class OwnRows(Own):
    """Landmarks given as rows. Of equal rows, the first becomes a landmark.

    Parameters
    ----------
    values : (l, d) array
        The rows, in the units of the data.
    sha256 : str, optional
        Digest of the values as first given, before a model rounded them and dropped equal ones.
    given : int, optional
        Number of rows as first given.

    Raises
    ------
    SpecError
        Unless the values are a table.
    DataError
        Where they hold text, NaN or infinity.

    Examples
    --------
    >>> OwnRows(np.array([[0.0, 1.0], [2.0, 3.0]])).count
    2
    """

    name: ClassVar[str] = "rows"
    values: Array
    sha256: str | None = None
    given: int | None = None

    @property
    def count(self) -> int:
        """Number of rows as first given."""
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
        """The landmarks that `to_dict` described; `own` (l, d) are those of the model."""
        sha256, count = values.get("sha256"), values.get("count")
        if not (isinstance(sha256, str) and type(count) is int and count >= 1):
            raise SpecError(f"landmarks that were given as rows have a digest and a count, not {values!r:.80}")
        return cls(own, sha256, count)


@dataclass(frozen=True, eq=False)
class RowNumbers(Own):
    """Landmarks given as row numbers of the data, counted from 0. Of equal rows, the first becomes a landmark.

    Parameters
    ----------
    numbers : (l,) array of int
        The row numbers.

    Raises
    ------
    SpecError
        Unless they are integers that are not negative.

    Examples
    --------
    >>> RowNumbers(np.array([0, 10, 20])).to_dict()
    {'name': 'row-numbers', 'numbers': [0, 10, 20]}
    """

    name: ClassVar[str] = "row-numbers"
    numbers: Array

    __repr__ = brief

    @property
    def count(self) -> int:
        """Number of row numbers as given."""
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
        """The row numbers that `to_dict` described."""
        numbers = values.get("numbers")
        if not (isinstance(numbers, list) and all(type(number) is int and 0 <= number < 2**63 for number in numbers)):
            raise SpecError(f"row numbers of landmarks are a list of integers, not {numbers!r:.80}")
        return cls(np.array(numbers))


def distinct(rows: Array) -> Array:
    """Remove rows that equal an earlier one; the others keep their order.

    Parameters
    ----------
    rows : (l, d) array
        OwnRows.

    Returns
    -------
    (q, d) array
        q <= l; the array itself where all are distinct.

    Examples
    --------
    >>> distinct(np.array([[2], [1], [2]]))
    array([[2],
           [1]])
    """
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows if len(first) == len(rows) else rows[np.sort(first)]
