"""The rows of a pass that are farthest from the offset, which a random sample may not hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import brief
from bigkpca.numerics.kernels import squared_norms

FAR_ROWS = 16  # that are kept


@dataclass(frozen=True)
class FarRows:
    """The farthest rows of a pass, at most 16, in the order of the rows: X (q, d) in the units and dtype of the data,
    and their squared distances from the offset, (q,), as tiles are shifted and scaled."""

    X: Array
    squares: Array

    __repr__ = brief

    def __add__(self, other: FarRows) -> FarRows:
        """The farthest of both; of rows that are as far, the first."""
        X, squares = np.concatenate([self.X, other.X]), np.concatenate([self.squares, other.squares])
        kept = np.sort(np.argsort(-squares, kind="stable")[:FAR_ROWS])
        return FarRows(X[kept], squares[kept])


class Farthest:
    """Keeps the farthest rows of the tiles that it sees."""

    def __init__(self) -> None:
        self.found: FarRows | None = None

    def see(self, X: Array, shifted: Array) -> None:
        """Take in one tile X (b, d), and the same rows shifted and scaled."""
        squares = squared_norms(shifted)
        if self.found is None:
            self.found = FarRows(X[:0].copy(), squares[:0])
        least = self.found.squares.min() if len(self.found.squares) == FAR_ROWS else -np.inf
        farther = np.flatnonzero(squares > least)
        if len(farther):
            self.found += FarRows(X[farther], squares[farther])
