""" "ridge" and "denoising": kernel ridge regression from the scores of sampled rows, clean or noisy, to the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, DataError, SpecError
from bigkpca.numerics import bandwidth
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.expansion import Fitted
from bigkpca.numerics.features import FeatureMap, Shape
from bigkpca.numerics.kernels import Gaussian, Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Decode, Decoder, Preimage, Preimages, least_squares, sampled, spread
from bigkpca.numerics.random_streams import NOISE, random_stream

_TILE_ROWS = 2048
_TOLERANCE = 1e-12
_ROWS_PER_KERNEL = 10  # noisy rows, of which each row gives
_MOST_COPIES = 8  # at most


@dataclass(frozen=True, repr=False)
class KernelDecoder(Decoder):
    """x = intercept + k(y, T) weights, shifted and scaled like all rows.

    k is Gaussian of length sigma, T (p, r) are the scores of some of the sampled rows (m, d), which it keeps.
    """

    name: ClassVar[str] = "ridge"
    shapes: ClassVar[Mapping[str, Shape]] = {
        "landmarks": ("p", "r"),
        "intercept": ("d",),
        "weights": ("p", "d"),
        "rows": ("m", "d"),
    }
    landmarks: Array  # T (p, r)
    sigma: float
    intercept: Array  # (d,)
    weights: Array  # (p, d)
    rows: Array  # (m, d)

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        evaluate = Gaussian(self.sigma).against(self.landmarks, most_rows)
        work = np.empty((most_rows, len(self.landmarks)))

        def decode(Y: Array, start: Array | None) -> Preimages:
            K = work[: len(Y)]
            evaluate(Y, K)
            return Preimages.direct(self.intercept + K @ self.weights)

        return decode

    def working_bytes(self, features: FeatureMap, rows: int) -> int:
        p, r = self.landmarks.shape
        return 8 * rows * (p + r + 2 + 2 * features.columns) + 3 * 8 * p * (r + 2)


@dataclass(frozen=True)
class Ridge(Preimage):
    """Kernel ridge regression of rows on scores, with an intercept.

        x = x_bar + w'(f - f_bar),   f = k(y, T),
        w = (Σ (f - f_bar)(f - f_bar)' + ridge k(T, T))⁻¹ Σ (f - f_bar)(x - x_bar)'

    The kernel k on scores is Gaussian, with a length at which the median pair has k = exp(-1).

    Needs no pass: the regression is over sampled rows, which the model keeps to make the decoder again when rows are
    added. Raises SpecError if an option is out of range. Source: Bakir, Weston and Schölkopf (2004), *NIPS*;
    `docs/numerics.md`, section 18.

    Parameters
    ----------
    ridge : float
        Penalty on the squared norm of the map, like alpha in scikit-learn: the variance of the noise relative to that
        of the rows. Noisy rows need 1 or more, clean rows less.
    size : int
        Number of kernels on scores, at least 2.
    rows : int
        The largest number of sampled rows, at least 2.
    """

    name: ClassVar[str] = "ridge"
    ridge: float = 0.3
    size: int = 1000
    rows: int = 20_000

    def __post_init__(self) -> None:
        if not (np.isfinite(self.ridge) and self.ridge >= 0) or min(self.size, self.rows) < 2:
            raise SpecError(f"{self}: ridge must be a nonnegative number, and size and rows at least 2")

    def most_rows(self, method: Method) -> int:
        return self.rows

    def making_bytes(self, rows: int, columns: int, components: int) -> int:
        p = min(self.size, rows)
        sums, tile = 4 * p * (p + columns), _TILE_ROWS * (2 * p + 4 * columns + 2 * components)
        return 8 * (sums + tile + rows * columns)

    def copies(self, rows: int) -> int:
        """How often each of so many sampled rows is seen."""
        return 1

    def seen(self, X: Array, rng: np.random.Generator) -> Array:
        """The rows X (b, d) as their scores are computed."""
        return X

    def decoder(self, fitted: Fitted, rows: Array) -> KernelDecoder:
        features, rng = fitted.features, random_stream(0, NOISE)
        self.check(features.kernel, fitted.method)
        X = sampled(rows, self.rows, f"pre-images by {self.name!r}")
        T = fitted.scores(self.seen(spread(X, self.size), rng))
        if len(np.unique(T, axis=0)) <= len(T) // 2:
            raise DataError(
                f"scores of the rows that {self} is fitted to are too similar to predict rows: most have no kernel "
                "value with any landmark, because the kernel is too narrow for them; use a larger sigma, or less noise"
            )
        distances, _ = bandwidth.pair_distances(T, "sqeuclidean", np.random.default_rng(0))
        sigma = bandwidth.median_sigma(distances, "sqeuclidean")
        R, kernel, copies = features.shifted(X), Gaussian(sigma), self.copies(len(X))
        mean = R.mean(axis=0, dtype=np.float64)
        S, C, total = np.zeros((len(T),) * 2), np.zeros((len(T), R.shape[1])), np.zeros(len(T))
        for start in range(0, len(X), _TILE_ROWS):
            tile = slice(start, start + _TILE_ROWS)
            clean = R[tile] - mean
            for _ in range(copies):
                F = kernel(fitted.scores(self.seen(X[tile], rng)), T)
                total += F.sum(axis=0)
                S += F.T @ F
                C += F.T @ clean
        mean_kernel = total / (copies * len(X))
        S -= np.outer(total, mean_kernel)  # about the mean of f; C is so already
        S += self.ridge * kernel.gram(T)
        weights = least_squares(S, C, _TOLERANCE)
        return KernelDecoder(T, sigma, mean - mean_kernel @ weights, weights, R)


@dataclass(frozen=True)
class Denoising(Ridge):
    """Kernel ridge regression from the scores of noisy rows to the clean rows: removes noise of a given size.

    As `Ridge`, but normal noise, independent in every column, is added to the rows before their scores are computed.
    Few rows are used up to 8 times with different noise, so that there are 10 noisy rows for each kernel. A map that is
    linear in the scores needs several times as many components for the same error. Raises SpecError if an option is out
    of range, or the noise is missing. Source: `docs/numerics.md`, section 18.

    Parameters
    ----------
    ridge, size, rows
        As in `Ridge`; scores of noisy rows vary more and need a smaller penalty.
    noise : float
        Standard deviation of the noise, in the units of the data. Required, here or as the `noise` of the fit.
    """

    name: ClassVar[str] = "denoising"
    ridge: float = 0.1
    noise: float | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and not (np.isfinite(self.noise) and self.noise > 0):
            raise SpecError(f"{self}: noise must be a positive standard deviation in the units of the data")
        super().__post_init__()

    def check(self, kernel: Kernel, method: Method) -> None:
        """Accept every kernel and method. Raise SpecError if the noise is missing."""
        if self.noise is None:
            raise SpecError("pre-images by 'denoising' need the standard deviation of the noise: specify noise=...")

    def copies(self, rows: int) -> int:
        return min(-(-_ROWS_PER_KERNEL * min(self.size, rows) // rows), _MOST_COPIES)

    def seen(self, X: Array, rng: np.random.Generator) -> Array:
        return X + np.float32(self.noise or 0) * rng.standard_normal(X.shape, np.float32)
