""" "ridge": kernel ridge regression from scores to rows, with an intercept, from one streamed pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, DataError, SpecError
from bigkpca.numerics import bandwidth
from bigkpca.numerics.display import brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, Shape
from bigkpca.numerics.kernels import Gaussian, Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Decode, Decoder, Fitted, Preimages
from bigkpca.numerics.preimages.noise import Noise
from bigkpca.numerics.preimages.regression import Regression, block_regression, training_bytes
from bigkpca.numerics.preimages.scored import Scored

_TOLERANCE = 1e-12


@dataclass(frozen=True)
class KernelDecoder(Decoder):
    """x = mean_row + (k(y, T) - mean_feature) weights, k Gaussian of length sigma, T (p, r) scores of sampled rows."""

    name: ClassVar[str] = "ridge"
    shapes: ClassVar[Mapping[str, Shape]] = {
        "landmarks": ("p", "r"),
        "mean_feature": ("p",),
        "mean_row": ("d",),
        "weights": ("p", "d"),
    }
    landmarks: Array  # T (p, r)
    mean_feature: Array  # (p,)
    mean_row: Array  # (d,)
    weights: Array  # (p, d)
    sigma: float

    __repr__ = brief

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        evaluate = Gaussian(self.sigma).against(self.landmarks, most_rows)
        work = np.empty((most_rows, len(self.landmarks)))

        def decode(Y: Array, start: Array | None) -> Preimages:
            K = work[: len(Y)]
            evaluate(Y, K)
            K -= self.mean_feature
            return Preimages.direct(self.mean_row + K @ self.weights)

        return decode

    def working_bytes(self, features: FeatureMap, rows: int) -> int:
        p, r = self.landmarks.shape
        return 8 * rows * (p + r + 2 + 2 * features.columns) + 3 * 8 * p * (r + 2)


@dataclass(frozen=True)
class Ridge:
    """Kernel ridge regression of rows on scores, with an intercept.

    The kernel on scores is Gaussian; its length gives the median pair k = exp(-1).

    Parameters
    ----------
    ridge : float
        Penalty on the squared norm of the map, like alpha of scikit-learn: the variance of the noise relative to that
        of the rows. Noisy rows need 1 or more, clean rows less.
    size : int
        Number of sampled rows whose scores are the landmarks of the kernel on scores, at least 2.

    Raises
    ------
    SpecError
        Where an option is out of range.

    Notes
    -----
    One pass, which adds up size x (size + d) numbers.

    References
    ----------
    Bakir, Weston and Schölkopf (2004), *NIPS*; `docs/numerics.md`, section 18.

    Examples
    --------
    >>> Ridge(ridge=1.0)
    Ridge(ridge=1.0, size=1000)
    """

    name: ClassVar[str] = "ridge"
    trained: ClassVar[bool] = True
    needs_rows: ClassVar[bool] = True
    ridge: float = 0.3
    size: int = 1000

    def __post_init__(self) -> None:
        if not (np.isfinite(self.ridge) and self.ridge >= 0) or self.size < 2:
            raise SpecError(f"{self}: ridge is a number that is not negative, size at least 2")

    def check(self, kernel: Kernel, method: Method) -> None:
        """Accept every kernel and method."""

    def training_bytes(self, rows: int, columns: int) -> tuple[int, int]:
        return training_bytes(self.size, rows, columns)

    def training(self, fitted: Fitted, rows: Array, count: int, seed: np.random.SeedSequence) -> KernelTraining:
        return kernel_training(fitted, None, rows, self.size, self.ridge, seed)


def kernel_training(
    fitted: Fitted, noise: Noise | None, rows: Array, size: int, ridge: float, seed: np.random.SeedSequence
) -> KernelTraining:
    """Prepare the pass; its landmarks are the scores of at most `size` sampled rows (m, d), with noise or not."""
    scored = Scored(fitted.features, fitted.solution, noise)
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(len(rows), min(size, len(rows)), replace=False))
    T = scored.sample(fitted, rows[chosen])
    if len(np.unique(T, axis=0)) <= len(T) // 2:
        raise DataError(_too_alike(noise))
    sigma = bandwidth.median_sigma(bandwidth.pair_distances(T, "sqeuclidean", rng), "sqeuclidean")
    shift = Gaussian(sigma)(T, T).mean(axis=0)
    row_shift = fitted.features.shifted(rows[chosen]).mean(axis=0, dtype=np.float64)
    return KernelTraining(scored, T, sigma, shift, row_shift, ridge)


def _too_alike(noise: Noise | None) -> str:
    """The message for scores that do not determine rows."""
    what = "of rows" if noise is None else f"of rows with noise of {noise.deviation:g}"
    return (
        f"scores {what} are too much alike to learn rows from: most have no kernel value with any landmark, as the "
        "kernel is too narrow for them; take a larger sigma" + ("" if noise is None else ", or less noise")
    )


@dataclass(frozen=True)
class KernelTraining:
    """What the training pass needs; it makes the decoder from the sums."""

    scored: Scored
    landmarks: Array  # (p, r)
    sigma: float
    shift: Array
    row_shift: Array
    ridge: float

    def block(self, X_tiles: Iterable[Array], first_row: int, most_rows: int) -> Regression:
        """Sums of one block, one tile X (b, d) at a time; `first_row` is the number of its first row in the data."""
        pairs = self.scored.pairs(X_tiles, first_row, most_rows)
        return block_regression(self._kernels(pairs, most_rows), self.shift, self.row_shift)

    def _kernels(self, pairs: Iterable[tuple[Array, Array]], most_rows: int) -> Iterator[tuple[Array, Array]]:
        """Turn (scores, rows) into (kernels with T, rows), float64."""
        evaluate = Gaussian(self.sigma).against(self.landmarks, most_rows)
        # float64, since features of a smooth kernel are nearly dependent
        kernels = np.empty((most_rows, len(self.landmarks)))
        for Y, X in pairs:
            K = kernels[: len(Y)]
            evaluate(Y.astype(np.float64), K)
            yield K, X.astype(np.float64)

    def decoder(self, sums: Regression) -> KernelDecoder:
        """Solve the regression for the decoder."""
        penalty = self.ridge * Gaussian(self.sigma).gram(self.landmarks)
        try:
            weights = sums.weights(penalty, _TOLERANCE)
        except np.linalg.LinAlgError:
            raise DataError(_too_alike(self.scored.noise)) from None
        return KernelDecoder(self.landmarks, sums.mean, sums.mean_rows, weights, self.sigma)
