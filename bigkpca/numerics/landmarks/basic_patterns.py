"""Basic patterns of EKPCA: rows whose kernel vectors point in different directions (Fan, Wang, Xu and Tang 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError, check_overflow
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.linalg import Map, rank_tolerance

_BISECTIONS = 12
_PIECE_ROWS = 256


def kernel_directions(X: Array, reference: Array, kernel: Kernel, centred: bool) -> Array:
    """Unit kernel vectors k(x_i, R) of rows X over reference rows R, (m, |R|); zero where the vector is."""
    with np.errstate(over="ignore", invalid="ignore"):
        V = kernel(X, reference)
    check_overflow(V, "the sampled rows")
    if centred:
        V -= V.mean(axis=0, dtype=np.float64).astype(V.dtype)
    norms = np.sqrt(squared_norms(V))
    V /= np.where(norms > 0, norms, 1)[:, None]
    return V


def scan(directions: Array, threshold: float, most: int) -> Array:
    """The first `most` rows, in order, whose cosine with every one kept before is below the threshold."""
    kept = np.empty((most, directions.shape[1]), directions.dtype)
    numbers: list[int] = []
    for start in range(0, len(directions), _PIECE_ROWS):
        piece = directions[start : start + _PIECE_ROWS]
        closest = (piece @ kept[: len(numbers)].T).max(axis=1, initial=-np.inf)
        among = piece @ piece.T
        for i in np.flatnonzero(closest < threshold):
            if closest[i] < threshold:
                kept[len(numbers)] = piece[i]
                numbers.append(start + int(i))
                np.maximum(closest, among[i], out=closest)
                if len(numbers) == most:
                    return np.array(numbers, np.intp)
    return np.array(numbers, np.intp)


def scan_for(directions: Array, count: int) -> Array:
    """`count` rows by the smallest threshold that finds as many, by bisection: as different as they can be.

    Fewer where rows repeat.
    """
    low, high = -1.0, 1 - 10 * rank_tolerance(directions.dtype)  # above it, equal rows would pass by rounding
    found = scan(directions, high, count)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        numbers = scan(directions, middle, count)
        if len(numbers) == count:
            high, found = middle, numbers
        else:
            low = middle
    return found


_REFERENCE_ROWS = 2000  # over which kernel vectors of basic patterns are taken


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

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        return itemsize * (rows * columns + 2 * (rows + size) * _REFERENCE_ROWS)

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        candidates = sample[rng.permutation(len(sample))]
        directions = kernel_directions(candidates, candidates[:_REFERENCE_ROWS], kernel, self.centred)
        if self.threshold is None:
            return candidates[scan_for(directions, size)]
        return candidates[scan(directions, self.threshold, size)]
