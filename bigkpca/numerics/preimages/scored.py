"""Training pairs for decoders: scores of rows, or of noisy copies of them, with the rows."""

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
    """Pairs of the scores of x, or of x + noise, and x, for tiles of rows."""

    features: FeatureMap
    solution: Solution
    noise: Noise | None = None

    def pairs(self, X_tiles: Iterable[Array], first_row: int, most_rows: int) -> Iterator[tuple[Array, Array]]:
        """Pairs (scores (b, r), shifted rows (b, d)) of tiles X (b, d) in the units of the data.

        The caller may overwrite both. `first_row` is the number of the first row in the data. Each tile comes once, or
        once for each noisy copy.
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
        """The tile itself, or its noisy copies."""
        if self.noise is None:
            yield tile
        else:
            yield from (self.noise.added(tile, first_row, copy) for copy in range(self.noise.copies))

    def sample(self, fitted: Fitted, rows: Array) -> Array:
        """Scores (m, r) of sampled rows, with the noise of a copy that no pass makes."""
        return fitted.scores(rows if self.noise is None else self.noise.added(rows, 0, self.noise.copies))
