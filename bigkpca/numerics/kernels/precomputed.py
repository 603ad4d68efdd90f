"""Precomputed kernels: the data are the Gram matrix, of texts, sequences, graphs or anything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels.algebra import Leaf
from bigkpca.numerics.kernels.base import Evaluate


@dataclass(frozen=True)
class Precomputed(Leaf):
    """k(x_i, x_j) = K_ij of a given matrix: the rows of the data are rows of K.

    Notes
    -----
    The kernel has no formula. It is not assumed to be positive semidefinite; the solver warns where it is not.
    """

    name: ClassVar[str] = "precomputed"

    @property
    def positive(self) -> bool:
        return False

    @property
    def on_vectors(self) -> bool:
        return False

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        raise SpecError(
            "a precomputed kernel has no formula to evaluate, or to combine with others: its matrix is the data, which "
            "method='exact' reads; add and scale matrices themselves"
        )

    def diagonal(self, X: Array) -> Array:
        """NaN: a row of K does not say which of its entries is k(x, x)."""
        return np.full(len(X), np.nan)
