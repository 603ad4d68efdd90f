"""Scores of rows, or of noised copies of them, beside the rows: what decoders are trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.preimages.base import Fitted
from bigkpca.numerics.preimages.noise import Noise


@dataclass(frozen=True)
class Scored:
    """Pairs (scores of x, or of x + noise, and x) for tiles of rows."""

    features: FeatureMap
    solution: Solution
    noise: Noise | None = None

    def pairs(self, X_tiles: Iterable[Array], first_row: int, most_rows: int) -> Iterator[tuple[Array, Array]]:
        """(scores (b, r), shifted rows (b, d)), both to be overwritten, of tiles X (b, d) in the units of the data.

        `first_row` is the number of the first row among all. Each tile comes once, or once for each noised copy.
        """
        fill, dtype = self.features.filling(most_rows), self.features.dtype
        values = np.empty((most_rows, self.features.size), dtype)
        project = self.solution.projection(dtype)
        for tile in X_tiles:
            V = values[: len(tile)]
            for given in self._copies(tile, first_row):
                fill(self.features.shifted(given), V)
                yield project(V, overwrite=True), self.features.shifted(tile)
            first_row += len(tile)

    def _copies(self, tile: Array, first_row: int) -> Iterator[Array]:
        if self.noise is None:
            yield tile
        else:
            yield from (self.noise.added(tile, first_row, copy) for copy in range(self.noise.copies))

    def sample(self, fitted: Fitted, rows: Array) -> Array:
        """Scores (m, r) of sampled rows, with noise of their own: that of a copy which no pass makes."""
        return fitted.scores(rows if self.noise is None else self.noise.added(rows, 0, self.noise.copies))
