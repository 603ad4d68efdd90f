""" "linear": a linear map from scores to rows, by least squares, without a pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, Shape, has_landmarks
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Decode, Decoder, Fitted, Preimages, sampled
from bigkpca.numerics.preimages.regression import block_regression

_TILE_ROWS = 1024
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class LinearDecoder(Decoder):
    """x = mean_row + (y - mean_score) weights, shifted and scaled like all rows; float64."""

    name: ClassVar[str] = "linear"
    shapes: ClassVar[Mapping[str, Shape]] = {"mean_score": ("r",), "mean_row": ("d",), "weights": ("r", "d")}
    mean_score: Array  # (r,)
    mean_row: Array  # (d,)
    weights: Array  # (r, d)

    __repr__ = brief

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        return lambda Y, start: Preimages.direct(self(Y))

    def __call__(self, Y: Array) -> Array:
        """Rows (b, d) of scores Y (b, r)."""
        return self.mean_row + (Y - self.mean_score) @ self.weights


@dataclass(frozen=True)
class Linear:
    """Linear least squares, with intercept, from scores to rows.

    Fitted to the landmarks and their scores; to sampled rows where there are no landmarks.

    Notes
    -----
    No pass, no iteration.

    References
    ----------
    `docs/numerics.md`, section 18.

    Examples
    --------
    >>> Linear().trained
    False
    """

    name: ClassVar[str] = "linear"
    trained: ClassVar[bool] = False
    needs_rows: ClassVar[bool] = False

    def check(self, kernel: Kernel, method: Method) -> None:
        """Accept every kernel and method."""

    def decoder(self, fitted: Fitted, rows: Array | None = None) -> LinearDecoder:
        return linear_decoder(fitted, rows)


def linear_decoder(fitted: Fitted, rows: Array | None) -> LinearDecoder:
    """Least squares from scores to rows, of the landmarks or else of `rows` (m, d) in the units of the data."""
    features, solution = fitted.features, fitted.solution
    if not has_landmarks(features):
        rows = sampled(rows, "pre-images of random features")
        X, Y = features.shifted(rows), fitted.scores(rows)
    elif fitted.moments is None:
        X, Y = features.landmarks, solution.components * solution.eigenvalues  # = (K - mean) A
    else:
        X, Y = features.landmarks, solution.projection()(fitted.basis.W if fitted.basis else features.gram())
    tiles = (slice(start, start + _TILE_ROWS) for start in range(0, len(X), _TILE_ROWS))
    pairs = ((Y[tile].copy(), X[tile].astype(np.float64)) for tile in tiles)
    sums = block_regression(pairs, Y.mean(axis=0), X.mean(axis=0, dtype=np.float64))
    no_penalty = np.zeros((len(sums.mean), len(sums.mean)))
    return LinearDecoder(sums.mean, sums.mean_rows, sums.weights(no_penalty, _TOLERANCE))
