"""Which rows stand for all: rules that choose l landmarks from a sample of rows.

A rule is a small frozen value; a string names its default.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.sparse import csr_array

from bigkpca.errors import Array, SpecError, unknown_name
from bigkpca.numerics.kernels import squared_norms
from bigkpca.numerics.linalg import Map

_TILE_ROWS = 1024


class LandmarkRule(Protocol):
    """Chooses landmarks from sampled rows (m, d), m >= size."""

    name: ClassVar[str]

    def most_rows(self, size: int) -> int:
        """How many sampled rows it makes use of for `size` landmarks."""

    def choose(self, sample: Array, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        """Landmarks (size, d) in the dtype of the sample; `in_order` may be a parallel map."""


@dataclass(frozen=True)
class Uniform:
    """Rows of the sample, uniformly without replacement."""

    name: ClassVar[str] = "uniform"

    def most_rows(self, size: int) -> int:
        return size

    def choose(self, sample: Array, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[np.sort(rng.choice(len(sample), size, replace=False))]


@dataclass(frozen=True)
class KMeans:
    """k-means centres of a part of the sample: as good as twice as many uniform rows (Zhang, Tsang, Kwok 2008).

    Lloyd's iterations from `size` distinct rows, on `rows_per_landmark · size` rows. On MNIST with l = 1000
    more of either changes the 20 leading eigenvalues by less than 0.1 %: the error is 0.20 % with these
    defaults, 0.15 % with 20 rows per landmark and 5 iterations, at four times the work.
    The centres need not be rows, so the data must be vectors.

    The iterations are our own because they must give the same bits for any number of threads: scikit-learn's
    Lloyd adds up centres in the order in which its threads finish, and held to one thread takes 1.6 times as
    long as these matrix products do.
    """

    name: ClassVar[str] = "kmeans"
    iterations: int = 3
    rows_per_landmark: int = 10

    def __post_init__(self) -> None:
        if self.iterations < 0 or self.rows_per_landmark < 1:
            raise SpecError(f"{self}: iterations must not be negative, rows_per_landmark at least 1")

    def most_rows(self, size: int) -> int:
        return size * self.rows_per_landmark

    def choose(self, sample: Array, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        m = min(len(sample), self.most_rows(size))
        rows = sample[rng.choice(len(sample), m, replace=False)]
        centres = rows[:size].copy()
        for _ in range(self.iterations if m > size else 0):
            centres = _lloyd(rows, centres, in_order)
        return centres


def _lloyd(rows: Array, centres: Array, in_order: Map) -> Array:
    """Means of the rows nearest to each centre; a centre that is nearest to no row stays."""
    half_norms = 0.5 * squared_norms(centres)

    def nearest_of_tile(start: int) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # a row that far away is nearest to nothing in particular
            closeness = rows[start : start + _TILE_ROWS] @ centres.T
            closeness -= half_norms
        return closeness.argmax(axis=1)

    nearest = np.concatenate(list(in_order(nearest_of_tile, range(0, len(rows), _TILE_ROWS))))
    counts = np.bincount(nearest, minlength=len(centres))
    members = csr_array(
        (np.ones(len(rows), rows.dtype), nearest, np.arange(len(rows) + 1)), shape=(len(rows), len(centres))
    )
    sums = members.T @ rows
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres).astype(rows.dtype)


RULES: dict[str, type[LandmarkRule]] = {"kmeans": KMeans, "uniform": Uniform}


def named(name: str) -> LandmarkRule:
    """The default value of a rule's name; SpecError suggests the nearest known name."""
    key = name.lower().replace("k-means", "kmeans")
    if key not in RULES:
        raise unknown_name("landmark rule", name, [*RULES, "auto"])
    return RULES[key]()


def to_dict(rule: LandmarkRule) -> dict[str, Any]:
    """The rule as JSON-ready values; `from_dict` reads it back."""
    return {"name": rule.name, **asdict(rule)}  # type: ignore[call-overload]  # rules are dataclasses


def from_dict(values: dict[str, Any]) -> LandmarkRule:
    """The rule that `to_dict` described."""
    if values["name"] not in RULES:
        raise unknown_name("landmark rule", values["name"], RULES)
    return RULES[values["name"]](**{key: value for key, value in values.items() if key != "name"})
