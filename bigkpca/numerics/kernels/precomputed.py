"""Kernels that the caller has computed already, of anything: text, sequences, graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels.algebra import Leaf
from bigkpca.numerics.kernels.base import Evaluate


@dataclass(frozen=True)
class Precomputed(Leaf):
    """k(x_i, x_j) = K_ij of a given matrix: data are rows of K, and the kernel has no formula.

    Nothing is known of it, least of all that it is positive semidefinite: the solver says when it is not.
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
        """NaN: rows of K do not say which of their entries is k(x, x)."""
        return np.full(len(X), np.nan)
