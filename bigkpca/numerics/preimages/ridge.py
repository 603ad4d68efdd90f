""" "ridge" and "denoising": kernel ridge regression from scores, optionally of noisy rows, to rows, in one pass."""

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
from bigkpca.numerics.preimages.base import (
    Decode,
    Decoder,
    Fitted,
    Preimages,
    Regression,
    block_regression,
)


def row_noise(key: Array, first_row: int, rows: int, columns: int, copy: int = 0) -> Array:
    """Standard normal numbers for rows first_row, first_row + 1, ... of a table, (rows, columns), float32.

    Those of a row depend only on its number, `copy` and the key (2,), uint64, whatever other rows are requested: the
    counter of Philox starts again with each row. Pairs of normals by Box and Muller, from 24 bits each.
    """
    words = -(-columns // 2)  # of 64 bits, each a pair of normals
    steps = -(-words // 4)  # of the counter, each four words
    counter = np.array([first_row * steps, 0, 0, copy], np.uint64)
    raw = np.random.Philox(key=key, counter=counter).random_raw(rows * steps * 4).reshape(rows, steps * 4)[:, :words]
    radius = ((raw >> np.uint64(40)) + np.uint64(1)).astype(np.float32)
    radius *= np.float32(2.0**-24)
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    angle = (raw & np.uint64(2**24 - 1)).astype(np.float32)
    angle *= np.float32(2 * np.pi * 2.0**-24)
    noise = np.empty((rows, 2 * words), np.float32)
    np.multiply(radius, np.cos(angle), out=noise[:, :words])
    np.multiply(radius, np.sin(angle), out=noise[:, words:])
    return noise[:, :columns]


@dataclass(frozen=True)
class Noise:
    """Normal noise, independent in every column, on several copies of each row.

    deviation is in the units of the data.
    """

    deviation: float
    key: Array  # (2,), uint64
    copies: int

    def added(self, X: Array, first_row: int, copy: int) -> Array:
        """Rows X (b, d), the first of which has number `first_row` among all rows, plus the noise of a copy."""
        return X + np.float32(self.deviation) * row_noise(self.key, first_row, X.shape[0], X.shape[1], copy)


_TOLERANCE = 1e-12


def kernel_bytes(p: int, r: int, columns: int, rows: int) -> int:
    """Bytes of a tile of `rows` rows from p kernels on r scores, in float64."""
    return 8 * rows * (p + r + 2 + 2 * columns) + 3 * 8 * p * (r + 2)


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
        return kernel_bytes(p, r, features.columns, rows)


class _OnScores:
    """Base of methods that predict rows from scores with kernel ridge regression."""

    trained: ClassVar[bool] = True
    needs_rows: ClassVar[bool] = True
    ridge: float
    size: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.ridge) and self.ridge >= 0) or self.size < 2:
            raise SpecError(f"{self}: ridge must be a nonnegative number, and size at least 2")

    def check(self, kernel: Kernel, method: Method) -> None:
        """Accept every kernel and method."""

    def training_bytes(self, rows: int, columns: int) -> tuple[int, int]:
        return 8 * self.size * (self.size + columns), 8 * rows * (self.size + columns)

    def training(self, fitted: Fitted, rows: Array, count: int, seed: np.random.SeedSequence) -> KernelTraining:
        return self.prepared(None, fitted, rows, seed)

    def prepared(
        self, noise: Noise | None, fitted: Fitted, rows: Array, seed: np.random.SeedSequence
    ) -> KernelTraining:
        """Prepare the pass; its landmarks are the scores of at most `size` sampled rows (m, d), with or without
        noise."""
        features, rng = fitted.features, np.random.default_rng(seed)
        some = rows[np.sort(rng.choice(len(rows), min(self.size, len(rows)), replace=False))]
        # With the noise of a copy that is not used in a pass.
        T = fitted.scores(some if noise is None else noise.added(some, 0, noise.copies))
        if len(np.unique(T, axis=0)) <= len(T) // 2:
            what = "of rows" if noise is None else f"of rows with noise of {noise.deviation:g}"
            raise DataError(
                f"scores {what} are too similar to predict rows: most have no kernel value with any landmark, because "
                "the kernel is too narrow for them; use a larger sigma" + ("" if noise is None else ", or less noise")
            )
        sigma = bandwidth.median_sigma(bandwidth.pair_distances(T, "sqeuclidean", rng), "sqeuclidean")
        shift = Gaussian(sigma)(T, T).mean(axis=0)
        row_shift = features.shifted(some).mean(axis=0, dtype=np.float64)
        return KernelTraining(features, fitted.solution, noise, T, sigma, shift, row_shift, self.ridge)


@dataclass(frozen=True)
class Ridge(_OnScores):
    """Kernel ridge regression of rows on scores, with an intercept.

    The kernel on scores is Gaussian, with a length at which the median pair has k = exp(-1).

    Makes one pass, which adds up size x (size + d) numbers. Raises SpecError if an option is out of range. Source:
    Bakir, Weston and Schölkopf (2004), *NIPS*; `docs/numerics.md`, section 18.

    Parameters
    ----------
    ridge : float
        Penalty on the squared norm of the map, like alpha in scikit-learn: the variance of the noise relative to that
        of the rows. Noisy rows need 1 or more, clean rows less.
    size : int
        Number of sampled rows whose scores are the landmarks of the kernel on scores, at least 2.

    Examples
    --------
    >>> Ridge(ridge=1.0)
    Ridge(ridge=1.0, size=1000)
    """

    name: ClassVar[str] = "ridge"
    ridge: float = 0.3
    size: int = 1000


@dataclass(frozen=True)
class KernelTraining:
    """The data of the training pass, which makes the decoder from the sums."""

    features: FeatureMap
    solution: Solution
    noise: Noise | None
    landmarks: Array  # (p, r)
    sigma: float
    shift: Array
    row_shift: Array
    ridge: float

    def block(self, X_tiles: Iterable[Array], first_row: int, most_rows: int) -> Regression:
        fill, dtype = self.features.filling(most_rows), self.features.dtype
        values = np.empty((most_rows, self.features.size), dtype)
        project = self.solution.projection(dtype)
        evaluate = Gaussian(self.sigma).against(self.landmarks, most_rows)
        # float64, since features of a smooth kernel are nearly dependent
        kernels = np.empty((most_rows, len(self.landmarks)))

        def pairs() -> Iterator[tuple[Array, Array]]:
            """(kernels of scores with T, shifted rows) of each tile, once or once per noisy copy."""
            first = first_row
            for tile in X_tiles:
                V, K = values[: len(tile)], kernels[: len(tile)]
                for copy in range(1 if self.noise is None else self.noise.copies):
                    given = tile if self.noise is None else self.noise.added(tile, first, copy)
                    fill(self.features.shifted(given), V)
                    evaluate(project(V, overwrite=True).astype(np.float64), K)
                    yield K, self.features.shifted(tile).astype(np.float64)
                first += len(tile)

        return block_regression(pairs(), self.shift, self.row_shift)

    def decoder(self, sums: Regression) -> KernelDecoder:
        penalty = self.ridge * Gaussian(self.sigma).gram(self.landmarks)
        weights = sums.weights(penalty, _TOLERANCE)
        return KernelDecoder(self.landmarks, sums.mean, sums.mean_rows, weights, self.sigma)


_ROWS_PER_KERNEL = 10
_MOST_COPIES = 8


@dataclass(frozen=True)
class Denoising(_OnScores):
    """Kernel ridge regression from the scores of noisy rows to the clean rows: removes noise of a given size.

    Makes one pass; noise is generated on the fly. If there are few rows, each gets up to 8 copies with different noise,
    so that there are 10 noisy rows for each kernel. A map that is linear in the scores needs several times as many
    components for the same error. Raises SpecError if an option is out of range; from `check`, if the noise is missing.
    Source: `docs/numerics.md`, section 18.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise, in the units of the data: normal, independent in every column. Required.
    ridge : float
        Penalty, as in `Ridge`; scores of noisy rows vary more and need less.
    size : int
        Number of kernels on scores, at least 2.

    Examples
    --------
    >>> Denoising(noise=0.5)
    Denoising(noise=0.5, ridge=0.1, size=1000)
    """

    name: ClassVar[str] = "denoising"
    noise: float | None = None
    ridge: float = 0.1
    size: int = 1000

    def __post_init__(self) -> None:
        if self.noise is not None and not (np.isfinite(self.noise) and self.noise > 0):
            raise SpecError(f"{self}: noise must be a positive standard deviation in the units of the data")
        super().__post_init__()

    def check(self, kernel: Kernel, method: Method) -> None:
        """Accept every kernel and method. Raise SpecError if the noise is missing."""
        if self.noise is None:
            raise SpecError("pre-images by 'denoising' need the standard deviation of the noise: specify noise=...")

    def training_bytes(self, rows: int, columns: int) -> tuple[int, int]:
        sums, tile = super().training_bytes(rows, columns)
        return sums, tile + 8 * rows * columns  # of rows with noise

    def training(self, fitted: Fitted, rows: Array, count: int, seed: np.random.SeedSequence) -> KernelTraining:
        self.check(fitted.features.kernel, fitted.method)
        assert self.noise is not None  # as checked
        wanted = _ROWS_PER_KERNEL * min(self.size, len(rows))
        noise = Noise(self.noise, seed.generate_state(2, np.uint64), min(-(-wanted // count), _MOST_COPIES))
        return self.prepared(noise, fitted, rows, seed)
