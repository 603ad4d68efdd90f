"""The length sigma of a kernel from distances of sampled pairs of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics.kernels import Distance, squared_norms

PAIRS = 100_000
_PIECE_BYTES = 2**22


def pair_distances(sample: Array, distance: Distance, rng: np.random.Generator) -> Array:
    """Distances (|x - y|_1, or |x - y|^2) of PAIRS random pairs of sampled rows, ascending, zeros dropped.

    sample is (m, d), floating. Pairs are drawn with replacement; where there are fewer distinct pairs than
    PAIRS, each is taken once. Raises DataError when every distance is zero.
    """
    m, d = sample.shape
    if m * (m - 1) // 2 <= PAIRS:
        first, second = np.triu_indices(m, 1)
    else:
        first, second = rng.integers(0, m, (2, PAIRS))
    distances = np.empty(len(first))
    step = max(1, _PIECE_BYTES // (d * sample.itemsize))
    for a in range(0, len(first), step):
        # In float64, since squares of float32 would under- or overflow for units far from 1.
        difference = sample[first[a : a + step]].astype(np.float64) - sample[second[a : a + step]]
        if distance == "cityblock":
            distances[a : a + step] = np.abs(difference).sum(axis=1)
        else:
            distances[a : a + step] = squared_norms(difference)
    distances = np.sort(distances[distances > 0])
    if not len(distances):
        raise DataError(
            f"all {m} sampled rows are equal, so the median distance is zero: constant data have no "
            "kernel principal components"
        )
    return distances


def median_sigma(distances: Array, distance: Distance) -> float:
    """The length at which the median pair has k = exp(-1).

    For squared distances sigma = sqrt(median / 2), that is gamma = 1 / median(|x - y|^2), the middle value
    of kernlab's sigest; for L1 distances sigma = median.
    """
    return _length(float(np.median(distances)), distance)


def _length(value: float, distance: Distance) -> float:
    return float(np.sqrt(value / 2)) if distance == "sqeuclidean" else value


@dataclass(frozen=True)
class Length:
    """A length sigma in the units of the columns, with the standard error that sampling pairs leaves."""

    sigma: float
    standard_error: float


def candidate_lengths(distances: Array, distance: Distance) -> dict[str, Length]:
    """Lengths people use: the median, kernlab's sigest quantiles, and the mean distance.

    sigest_low is the smallest length (0.1 quantile of the distances), sigest_high the largest (0.9).
    """
    named = {"median": 0.5, "sigest_low": 0.1, "sigest_middle": 0.5, "sigest_high": 0.9}
    lengths = {name: _quantile_length(distances, q, distance) for name, q in named.items()}
    mean, error = float(distances.mean()), float(distances.std() / np.sqrt(len(distances)))
    lengths["mean"] = Length(_length(mean, distance), _length_error(mean, error, distance))
    return lengths


def _quantile_length(distances: Array, q: float, distance: Distance) -> Length:
    # The order statistics one standard error of a binomial to either side bracket the quantile at 68 %.
    spread = np.sqrt(q * (1 - q) / len(distances))
    low, value, high = np.quantile(distances, np.clip([q - spread, q, q + spread], 0, 1))
    return Length(_length(value, distance), _length_error(value, (high - low) / 2, distance))


def _length_error(value: float, error: float, distance: Distance) -> float:
    return _length(value, distance) * error / value * (0.5 if distance == "sqeuclidean" else 1.0)
