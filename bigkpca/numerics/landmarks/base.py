"""What every landmark rule does."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map


class LandmarkRule(Protocol):
    """Chooses landmarks from sampled rows (m, d)."""

    name: ClassVar[str]

    def most_rows(self, size: int) -> int:
        """How many sampled rows it makes use of for `size` landmarks."""

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        """Bytes that `choose` holds beside the sample, from so many sampled rows with entries of `itemsize` bytes."""

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        """Landmarks (at most `size` <= m, d) in the dtype of the sample; `in_order` may be a parallel map."""
