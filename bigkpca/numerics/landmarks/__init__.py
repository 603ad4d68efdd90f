"""Landmarks: rules that choose them from a sample of rows, and landmarks provided by the caller.

A rule is a frozen dataclass; a name represents the rule with default options. `fitting/features.py` applies it.

Examples
--------
>>> from bigkpca import landmarks
>>> landmarks.named("k-means")
KMeans(iterations=3, subspace=True)
>>> rule = landmarks.RPCholesky(tol=0.01)
>>> landmarks.to_dict(rule)
{'name': 'rpcholesky', 'tol': 0.01}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from bigkpca.errors import Array, SpecError, check_finite, check_numeric
from bigkpca.numerics.display import brief
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.landmarks.basic_patterns import BasicPatterns
from bigkpca.numerics.landmarks.kmeans import KMeans
from bigkpca.numerics.landmarks.sampling import RPCholesky, Uniform
from bigkpca.numerics.registry import Registry, name_in


class LandmarkRule(Protocol):
    """A rule that chooses l landmarks from m sampled rows; options and files call it by its `name`."""

    name: ClassVar[str]

    def most_rows(self, size: int) -> int:
        """The number of sampled rows that the rule uses for `size` landmarks."""

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        """Bytes that `choose` needs besides the sample, which has `rows` x `columns` entries of `itemsize` bytes."""

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator) -> Array:
        """Landmarks (l, d), l <= size <= m, from the sample (m, d), in its dtype.

        The rows of the sample are shifted and scaled as those of the fit. `rng` is the only source of randomness.
        """


class Own:
    """Landmarks provided by the caller; equal if `to_dict` describes them equally."""

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """The landmarks as JSON-ready values."""
        raise NotImplementedError

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        """See `LandmarkRule.working_bytes`."""
        return 2 * rows * columns * itemsize

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.to_dict() == self.to_dict()

    def __hash__(self) -> int:
        return hash(str(self.to_dict()))

    __repr__ = brief


@dataclass(frozen=True, eq=False, repr=False)
class OwnRows(Own):
    """Landmarks given as rows. Of equal rows, only the first becomes a landmark.

    Raises SpecError unless the values are a table; DataError if they contain text, NaN or infinity.

    Parameters
    ----------
    values : (l, d) array
        The rows, in the units of the data.
    sha256 : str, optional
        Digest of the original values, before a model rounded them and dropped equal ones.
    given : int, optional
        Original number of rows.
    """

    name: ClassVar[str] = "rows"
    values: Array
    sha256: str | None = None
    given: int | None = None

    def __post_init__(self) -> None:
        check_numeric(self.values.dtype, "the array of landmarks")
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise SpecError(f"landmarks of shape {self.values.shape}: pass rows like those of the data, (l, d)")
        check_finite(self.values, 0, "the array of landmarks")

    @property
    def count(self) -> int:
        """Original number of rows."""
        return self.given or len(self.values)

    def to_dict(self) -> dict[str, Any]:
        values = np.ascontiguousarray(self.values, np.float64)
        digest = self.sha256 or hashlib.sha256(values.tobytes()).hexdigest()
        return {"name": self.name, "sha256": digest, "count": self.count}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], own: Array) -> Self:
        """The landmarks that `to_dict` described; `own` (l, d) are those of the model."""
        sha256, count = values.get("sha256"), values.get("count")
        if not (isinstance(sha256, str) and type(count) is int and count >= 1):
            raise SpecError(f"landmarks given as rows must have a digest and a count, not {values!r:.80}")
        return cls(own, sha256, count)


@dataclass(frozen=True, eq=False, repr=False)
class RowNumbers(Own):
    """Landmarks given as row numbers of the data, counted from 0. Of equal rows, only the first becomes a landmark.

    Raises SpecError unless they are nonnegative integers, (l,).
    """

    name: ClassVar[str] = "row-numbers"
    numbers: Array

    def __post_init__(self) -> None:
        if self.numbers.ndim != 1 or not len(self.numbers):
            raise SpecError(
                f"landmarks of shape {self.numbers.shape}: pass at least one row (l, d), or row number (l,)"
            )
        if self.numbers.dtype.kind not in "iu":
            raise SpecError(f"row numbers of landmarks must be integers, not {self.numbers.dtype}; rows are (l, d)")
        if self.numbers.min() < 0:
            raise SpecError(f"landmark {self.numbers.min()}: row numbers are counted from 0")

    @property
    def count(self) -> int:
        """The number of row numbers."""
        return len(self.numbers)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "numbers": self.numbers.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], own: Array) -> Self:
        """The row numbers that `to_dict` described."""
        numbers = values.get("numbers")
        if not (isinstance(numbers, list) and all(type(number) is int and 0 <= number < 2**63 for number in numbers)):
            raise SpecError(f"row numbers of landmarks must be a list of integers, not {numbers!r:.80}")
        return cls(np.array(numbers))


def distinct(rows: Array) -> Array:
    """Rows (q, d) without those that equal an earlier one, in order; `rows` (l, d) itself if all are distinct."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows if len(first) == len(rows) else rows[np.sort(first)]


__all__ = [
    "RULES",
    "BasicPatterns",
    "KMeans",
    "LandmarkRule",
    "OwnRows",
    "RPCholesky",
    "RowNumbers",
    "Uniform",
    "distinct",
    "from_dict",
    "named",
    "to_dict",
]

RULES: Registry[LandmarkRule] = Registry(
    "landmark rule",
    (
        KMeans,
        Uniform,
        RPCholesky,
        BasicPatterns,
    ),
    aliases={"k-means": "kmeans"},
)
named = RULES.named


def to_dict(rule: LandmarkRule | Own) -> dict[str, Any]:
    """A rule, or landmarks from the caller, as JSON-ready values: "name" and the options; a digest of given rows, since
    the model stores the rows."""
    return rule.to_dict() if isinstance(rule, Own) else RULES.to_dict(rule)


def from_dict(values: Mapping[str, Any], own: Array | None) -> LandmarkRule | Own:
    """The rule, or the given landmarks, that `to_dict` described; `own` (l, d) are the landmarks of the model, in the
    units of the data, which replace rows from the caller. Raises SpecError if the name is unknown."""
    name = name_in(values, "landmark rule")
    for kind in (OwnRows, RowNumbers):
        if name == kind.name:
            return kind.from_dict(values, np.empty((0, 0)) if own is None else own)
    return RULES.from_dict(values)
