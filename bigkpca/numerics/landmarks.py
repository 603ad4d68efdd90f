"""Which rows stand for all: rules that choose l landmarks from a sample of rows, and landmarks of the caller's own.

A rule is a small frozen value; a string names its default.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from scipy.sparse import csr_array

from bigkpca.errors import Array, SpecError, check_finite, check_numeric, unknown_name
from bigkpca.numerics import basic_patterns, cholesky, leverage
from bigkpca.numerics.display import brief
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.linalg import Map

_TILE_ROWS = 1024
_LEAST_KMEANS_ROWS = 10_000
_REFERENCE_ROWS = 2000  # over which kernel vectors of basic patterns are taken


class LandmarkRule(Protocol):
    """Chooses landmarks from sampled rows (m, d)."""

    name: ClassVar[str]

    def most_rows(self, size: int) -> int:
        """How many sampled rows it makes use of for `size` landmarks."""

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        """Landmarks (at most `size` <= m, d) in the dtype of the sample; `in_order` may be a parallel map."""


@dataclass(frozen=True)
class Uniform:
    """Rows of the sample, uniformly without replacement."""

    name: ClassVar[str] = "uniform"

    def most_rows(self, size: int) -> int:
        return size

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[np.sort(rng.choice(len(sample), size, replace=False))]


@dataclass(frozen=True)
class KMeans:
    """k-means centres of a part of the sample: as good as twice as many uniform rows (Zhang, Tsang, Kwok 2008).

    Lloyd's iterations from `size` distinct rows, on `rows_per_landmark · size` rows, at least 10,000. On MNIST with
    l = 1000 more of either changes the 20 leading eigenvalues by less than 0.1 %: the error is 0.20 % with these
    defaults, 0.15 % with 20 rows per landmark and 5 iterations, at four times the work. Few landmarks want more rows
    each, which cost little then: with l = 100 the error is 2.4 % with 80 each, 4.9 % with 10.
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
        return max(_LEAST_KMEANS_ROWS, size * self.rows_per_landmark)

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        if not kernel.on_vectors:
            raise SpecError(
                "landmarks='kmeans' takes averages of rows, which a kernel function need not be made for: use "
                "'rpcholesky', 'uniform', 'leverage' or 'basic-patterns', or say kernels.Function(f, vectors=True)"
            )
        m = min(len(sample), self.most_rows(size))
        rows = sample[rng.choice(len(sample), m, replace=False)]
        centres = rows[:size].copy()
        for _ in range(self.iterations if m > size else 0):
            centres = _lloyd(rows, centres, in_order)
        return centres


def _lloyd(rows: Array, centres: Array, in_order: Map) -> Array:
    """Means of the rows nearest to each centre; one that is nearest to no row, or whose sum overflows, stays."""
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
    means = (members.T @ rows) / np.maximum(counts, 1)[:, None]
    known = (counts > 0) & np.isfinite(means).all(axis=1)
    return np.where(known[:, None], means, centres).astype(rows.dtype)


@dataclass(frozen=True)
class RPCholesky:
    """Rows drawn in proportion to what the landmarks before leave unexplained (`numerics/cholesky.py`).

    The choice for small clusters, fast spectra and data that are not vectors. `over="sample"` draws from the bounded
    sample; `over="all"` from all rows, with the exact law: residual bounds are refreshed by a further pass over the
    data whenever less than `least_accepted` of the proposals are accepted, about ln(1/eta) / ln(1/least_accepted)
    passes for a relative residual trace eta, often none. `tol` stops when that eta is reached, with fewer landmarks
    than asked for; over all rows it costs one pass more, which makes sure.
    """

    name: ClassVar[str] = "rpcholesky"
    tol: float = 0.0
    over: Literal["sample", "all"] = "sample"
    least_accepted: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.tol < 1 or not 0 < self.least_accepted < 1 or self.over not in ("sample", "all"):
            raise SpecError(f"{self}: tol lies in [0, 1), least_accepted in (0, 1), over is 'sample' or 'all'")

    def most_rows(self, size: int) -> int:
        return max(20 * size, 20_000)

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[cholesky.choose_rows(sample, kernel, size, self.tol, rng, in_order)]


@dataclass(frozen=True)
class Leverage:
    """Rows drawn by recursive ridge leverage scores (`numerics/leverage.py`): guarantees in the spectral norm."""

    name: ClassVar[str] = "leverage"

    def most_rows(self, size: int) -> int:
        return max(20 * size, 20_000)

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[leverage.choose_rows(sample, kernel, size, rng, in_order)]


@dataclass(frozen=True)
class BasicPatterns:
    """EKPCA: rows whose kernel vectors, over a part of the sample, have cosines below `threshold` with each other.

    Without a threshold, the smallest one that finds as many as asked for; with one, at most as many.
    `centred` takes cosines of centred kernel vectors, which tell rows apart where the kernel is wide.
    """

    name: ClassVar[str] = "basic-patterns"
    threshold: float | None = None
    centred: bool = True

    def __post_init__(self) -> None:
        if self.threshold is not None and not -1 < self.threshold <= 1:
            raise SpecError(f"{self}: the threshold is a cosine, above -1 and at most 1")

    def most_rows(self, size: int) -> int:
        return 10 * size

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        candidates = sample[rng.permutation(len(sample))]
        directions = basic_patterns.kernel_directions(candidates, candidates[:_REFERENCE_ROWS], kernel, self.centred)
        if self.threshold is None:
            return candidates[basic_patterns.scan_for(directions, size)]
        return candidates[basic_patterns.scan(directions, self.threshold, size)]


@dataclass(frozen=True, eq=False)
class _Own:
    """Landmarks of the caller's own: equal where they say the same to a file."""

    name: ClassVar[str]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows | RowNumbers) and to_dict(other) == to_dict(self)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(str(to_dict(self)))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Rows(_Own):
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


@dataclass(frozen=True, eq=False)
class RowNumbers(_Own):
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


def distinct(rows: Array) -> Array:
    """The first of each of the rows (l, d) that are the same, in their order."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows if len(first) == len(rows) else rows[np.sort(first)]


RULES: dict[str, type[LandmarkRule]] = {
    rule.name: rule for rule in (KMeans, Uniform, RPCholesky, Leverage, BasicPatterns)
}


def named(name: str) -> LandmarkRule:
    """The default value of a rule's name; SpecError suggests the nearest known name."""
    key = name.lower().replace("_", "-").replace("k-means", "kmeans")
    if key not in RULES:
        raise unknown_name("landmark rule", name, [*RULES, "auto"])
    return RULES[key]()


def to_dict(rule: LandmarkRule | Rows | RowNumbers) -> dict[str, Any]:
    """The rule as JSON-ready values. Rows of the caller's are told by their digest: a model holds them anyway."""
    if isinstance(rule, Rows):
        values = np.ascontiguousarray(rule.values, np.float64)
        digest = rule.sha256 or hashlib.sha256(values.tobytes()).hexdigest()
        return {"name": rule.name, "sha256": digest, "count": rule.count}
    if isinstance(rule, RowNumbers):
        return {"name": rule.name, "numbers": rule.numbers.tolist()}
    return {"name": rule.name, **asdict(rule)}  # type: ignore[call-overload]  # rules are dataclasses


def from_dict(values: dict[str, Any], own: Array) -> LandmarkRule | Rows | RowNumbers:
    """The rule that `to_dict` described; `own` are the landmarks of the fitted model, for a caller's own rows."""
    if values["name"] == Rows.name:
        return Rows(own, values["sha256"], values["count"])
    if values["name"] == RowNumbers.name:
        return RowNumbers(np.array(values["numbers"]))
    if values["name"] not in RULES:
        raise unknown_name("landmark rule", values["name"], RULES)
    return RULES[values["name"]](**{key: value for key, value in values.items() if key != "name"})
