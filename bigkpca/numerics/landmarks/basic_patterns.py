"""Basic patterns of EKPCA: rows whose kernel vectors point in different directions (Fan, Wang, Xu and Tang 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError, check_overflow
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.linalg import rank_tolerance

_BISECTIONS = 12
_PIECE_ROWS = 256


def kernel_directions(X: Array, reference: Array, kernel: Kernel, centred: bool) -> Array:
    """Kernel vectors k(x_i, R) of rows X (m, d) over reference rows R, scaled to unit length or zero, (m, |R|)."""
    with np.errstate(over="ignore", invalid="ignore"):
        V = kernel(X, reference)
    check_overflow(V, "the sampled rows")
    if centred:
        V -= V.mean(axis=0, dtype=np.float64).astype(V.dtype)
    norms = np.sqrt(squared_norms(V))
    V /= np.where(norms > 0, norms, 1)[:, None]
    return V


def scan(directions: Array, threshold: float, most: int) -> Array:
    """Numbers of at most `most` rows: in order, each row whose cosine with all rows before is below the threshold."""
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
    """Numbers of `count` rows, kept at the smallest threshold that keeps this many; fewer if rows repeat."""
    low, high = -1.0, 1 - 10 * rank_tolerance(directions.dtype)  # above this, rounding would let equal rows pass
    found = scan(directions, high, count)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        numbers = scan(directions, middle, count)
        if len(numbers) == count:
            high, found = middle, numbers
        else:
            low = middle
    return found


_REFERENCE_ROWS = 2000  # length of the kernel vectors


@dataclass(frozen=True)
class BasicPatterns:
    """EKPCA's landmarks: rows whose kernel vectors, over 2000 rows of the sample, have cosines below a threshold.

    Makes no pass over the data; scans 10 l rows of the sample, in random order. Raises SpecError if the threshold is
    out of range. Source: Fan, Wang, Xu and Tang (2014), efficient kernel PCA (EKPCA); `docs/numerics.md`, section 4.

    Parameters
    ----------
    threshold : float, optional
        The largest cosine, in (-1, 1], which keeps at most the requested number of landmarks. By default the smallest
        threshold that keeps that many.
    centred : bool
        Whether kernel vectors are centred first, which separates rows if the kernel is wide.
    """

    name: ClassVar[str] = "basic-patterns"
    threshold: float | None = None
    centred: bool = True

    def __post_init__(self) -> None:
        if self.threshold is not None and not -1 < self.threshold <= 1:
            raise SpecError(f"{self}: the threshold is a cosine and must be above -1 and at most 1")

    def most_rows(self, size: int) -> int:
        return 10 * size

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        return itemsize * (rows * columns + 2 * (rows + size) * _REFERENCE_ROWS)

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator) -> Array:
        candidates = sample[rng.permutation(len(sample))]
        directions = kernel_directions(candidates, candidates[:_REFERENCE_ROWS], kernel, self.centred)
        if self.threshold is None:
            return candidates[scan_for(directions, size)]
        return candidates[scan(directions, self.threshold, size)]
