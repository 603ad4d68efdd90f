"""A linear map from the scores of noised rows to the clean rows, from one streamed pass; noise is made on the fly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Fitted
from bigkpca.numerics.preimages.linear import LinearDecoder, of_regression
from bigkpca.numerics.preimages.regression import Regression, block_regression
from bigkpca.numerics.solvers import Solution

_SHIFT_ROWS = 1024
_ROWS_PER_COMPONENT = 20
_MOST_COPIES = 8


def row_noise(key: Array, first_row: int, rows: int, columns: int, copy: int = 0) -> Array:
    """Standard normal numbers for rows first_row, first_row + 1, ... of a table, (rows, columns), float32.

    Those of a row depend on its number, on `copy` and on the key (2,), uint64, alone, whatever rows are asked for with
    it: the counter of Philox starts anew with each row. Pairs of normals by Box and Muller, from 24 bits each.
    """
    words = -(-columns // 2)  # of 64 bits: a pair each
    steps = -(-words // 4)  # of the counter: four words each
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
class Denoising:
    """Least squares from the scores of noised rows to the clean rows: the map that best undoes noise of a given size.

    noise is its standard deviation in the units of the data, added to each row on the fly, normal and independent in
    every column. ridge is relative to the mean square of the scores. Where rows are few for the number of components,
    each is noised several times over, so that there are 20 noised rows to a component, at most 8 times. One pass.
    """

    name: ClassVar[str] = "denoising"
    trained: ClassVar[bool] = True
    needs_rows: ClassVar[bool] = True
    noise: float | None = None
    ridge: float = 1e-2

    def __post_init__(self) -> None:
        if self.noise is not None and not (np.isfinite(self.noise) and self.noise > 0):
            raise SpecError(f"{self}: noise is a positive standard deviation in the units of the data")
        if not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise SpecError(f"{self}: ridge is a number that is not negative")

    def check(self, kernel: Kernel, method: Method) -> None:
        """Every kernel and every method will do, but the noise must be given."""
        if self.noise is None:
            raise SpecError("pre-images by 'denoising' need the standard deviation of the noise: give noise=...")

    def training(self, fitted: Fitted, rows: Array, count: int, seed: np.random.SeedSequence) -> NoisedTraining:
        self.check(fitted.features.kernel, fitted.method)
        assert self.noise is not None  # as checked
        copies = min(max(1, -(-_ROWS_PER_COMPONENT * fitted.solution.components.shape[1] // count)), _MOST_COPIES)
        key = seed.generate_state(2, np.uint64)
        few = rows[:: max(1, len(rows) // _SHIFT_ROWS)]
        shift = fitted.scores(_noised(few, self.noise, key, 0, copies)).mean(axis=0)
        row_shift = fitted.features.shifted(few).mean(axis=0, dtype=np.float64)
        given = fitted.features, fitted.solution, shift, row_shift
        return NoisedTraining(*given, key, copies, self.noise, self.ridge)


def _noised(X: Array, noise: float, key: Array, first_row: int, copy: int) -> Array:
    return X + np.float32(noise) * row_noise(key, first_row, X.shape[0], X.shape[1], copy)


@dataclass(frozen=True)
class NoisedTraining:
    """What a pass needs to know, and the decoder of its sums."""

    features: FeatureMap
    solution: Solution
    shift: Array
    row_shift: Array
    key: Array
    copies: int
    noise: float
    ridge: float

    def block(self, X_tiles: Iterable[Array], first_row: int, most_rows: int) -> Regression:
        """Sums of one block whose first row has the number `first_row` in all the data, one tile X (b, d) at a time."""
        return block_regression(self._pairs(X_tiles, first_row, most_rows), self.shift, self.row_shift)

    def _pairs(self, X_tiles: Iterable[Array], first_row: int, most_rows: int) -> Iterator[tuple[Array, Array]]:
        fill, dtype = self.features.filling(most_rows), self.features.dtype
        values = np.empty((most_rows, self.features.size), dtype)
        mean, A = self.solution.mean.astype(dtype), self.solution.components.astype(dtype)
        for tile in X_tiles:
            V = values[: len(tile)]
            for copy in range(self.copies):
                fill(self.features.shifted(_noised(tile, self.noise, self.key, first_row, copy)), V)
                V -= mean
                yield V @ A, self.features.shifted(tile)
            first_row += len(tile)

    def decoder(self, sums: Regression) -> LinearDecoder:
        return of_regression(sums, self.ridge, rank_tolerance(self.features.dtype))
