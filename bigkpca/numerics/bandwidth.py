"""The length sigma of a kernel, from distances of sampled pairs of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics.display import ShowsSummary, Summary
from bigkpca.numerics.kernels import Distance, squared_norms
from bigkpca.numerics.linalg import in_parts

PAIRS = 100_000
_PIECE_BYTES = 2**20  # differences computed at a time, so that they stay in cache


def pair_distances(
    sample: Array, distance: Distance, rng: np.random.Generator, weights: Array | None = None
) -> tuple[Array, Array | None]:
    """Nonzero distances, |x - y|_1 or |x - y|², of PAIRS random pairs of sampled rows (m, d), ascending, and the weight
    of each pair, the product of the `weights` (m,) of its rows, if there are any.

    Differences have the precision of the sample, at least float32. Every row is the first of equally many pairs, and
    the second is drawn with replacement; if there are fewer distinct pairs than PAIRS, each is taken once. Raises
    DataError if all distances are zero.
    """
    m, d = sample.shape
    if m * (m - 1) // 2 <= PAIRS:
        first, second = np.triu_indices(m, 1)
    else:
        first, second = np.arange(PAIRS) % m, rng.integers(0, m, PAIRS)
    precision = np.result_type(sample.dtype, np.float32)
    # Squares of float32 under- or overflow for units far from 1, and so do the inverses of subnormal numbers.
    unit = max(_largest(sample), 1 / float(np.finfo(precision).max))
    step = max(1, _PIECE_BYTES // (d * precision.itemsize))

    def of_piece(start: int) -> Array:
        piece = slice(start, start + step)
        difference = np.subtract(sample[first[piece]], sample[second[piece]], dtype=precision)
        difference *= precision.type(1 / unit)
        if distance == "cityblock":
            return np.abs(difference, out=difference).sum(axis=1) * np.float64(unit)
        return squared_norms(difference) * np.float64(unit) ** 2

    distances = np.concatenate([np.empty(0), *in_parts(of_piece, range(0, len(first), step))])
    if weights is None:
        distances, pairs = np.sort(distances), None
    else:
        order = np.argsort(distances, kind="stable")
        distances, pairs = distances[order], (weights[first] * weights[second])[order]
    zeros = int(np.searchsorted(distances, 0, side="right"))
    if zeros == len(distances):
        raise DataError(
            f"all {m} sampled rows are equal, so the median distance is zero: constant data have no "
            "kernel principal components"
        )
    return distances[zeros:], None if pairs is None else pairs[zeros:]


def _largest(X: Array) -> float:
    """The largest absolute entry, or 1 if all are zero."""
    return max(float(X.max()), -float(X.min())) or 1.0


def scale_gamma(X: Array, weights: Array | None = None) -> float:
    """1 / (d var(X)) of rows X (m, d) with weights (m,), with the variance of all entries about their mean:
    scikit-learn's "scale". Raises DataError if they do not vary."""
    largest = _largest(X)  # squares of very large and small entries leave float64
    if weights is None:
        deviation = float(np.std(X / largest, dtype=np.float64)) * largest
    else:
        scaled, share = X.astype(np.float64) / largest, weights / (weights.sum() * X.shape[1])
        deviation = float(np.sqrt(share @ np.sum((scaled - share @ scaled.sum(axis=1)) ** 2, axis=1))) * largest
    if not deviation > 0:
        raise DataError("all entries of the sampled rows are equal: gamma='scale' needs rows that vary")
    return 1 / deviation / deviation / X.shape[1]


def median_sigma(distances: Array, distance: Distance, weights: Array | None = None) -> float:
    """The length at which the Gaussian or Laplacian kernel of the median pair is exp(-1), from ascending distances (k,)
    with weights (k,): √(median / 2) for squared ones, the middle value of kernlab's sigest, and the median for L1."""
    if weights is None:
        return _length(float(np.median(distances)), distance)
    below = np.cumsum(weights)
    low, high = (np.searchsorted(below, below[-1] / 2, side=side) for side in ("left", "right"))
    # For weights that are whole numbers, the median of repeated values.
    return _length(float(distances[low] + distances[min(high, len(distances) - 1)]) / 2, distance)


def _length(value: float, distance: Distance) -> float:
    """The length that corresponds to a distance."""
    return float(np.sqrt(value / 2)) if distance == "sqeuclidean" else value


@dataclass(frozen=True)
class Length:
    """A length sigma, in the units of the columns, with its standard error from sampling pairs."""

    sigma: float
    standard_error: float


class Lengths(ShowsSummary, dict[str, Length]):
    """Candidate lengths by name: "median", "sigest_low", "sigest_middle", "sigest_high" and "mean"."""

    def summary(self) -> Summary:
        """The lengths with their standard errors."""
        facts = {name: f"{each.sigma:.6g} ± {each.standard_error:.2g}" for name, each in self.items()}
        return Summary("Candidate lengths sigma", facts)


def candidate_lengths(distances: Array, distance: Distance) -> Lengths:
    """Common choices of sigma, by name: the median, kernlab's sigest quantiles (0.1, 0.5, 0.9) and the mean
    distance."""
    named = {"median": 0.5, "sigest_low": 0.1, "sigest_middle": 0.5, "sigest_high": 0.9}
    found = {}
    for name, q in named.items():
        # The order statistics one binomial standard error to either side bracket the quantile with 68 % confidence.
        spread = np.sqrt(q * (1 - q) / len(distances))
        low, value, high = np.quantile(distances, np.clip([q - spread, q, q + spread], 0, 1))
        found[name] = value, (high - low) / 2
    found["mean"] = float(distances.mean()), float(distances.std() / np.sqrt(len(distances)))
    power = 0.5 if distance == "sqeuclidean" else 1.0  # of the distance: its error moves the length to first order

    def length(value: float, error: float) -> Length:
        sigma = _length(value, distance)
        return Length(sigma, sigma * error / value * power)

    return Lengths({name: length(*each) for name, each in found.items()})
