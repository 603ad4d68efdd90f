"""Landmarks drawn uniformly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map


@dataclass(frozen=True)
class Uniform:
    """Rows of the sample, drawn uniformly without replacement.

    Notes
    -----
    No pass over the data. Column sampling and the thesis's form of Nyström hold for these landmarks alone.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> X = np.arange(5.0)[:, None]
    >>> Uniform().choose(X, kernels.Gaussian(1.0), 5, np.random.default_rng(0)).ravel()
    array([0., 1., 2., 3., 4.])
    """

    name: ClassVar[str] = "uniform"

    def most_rows(self, size: int) -> int:
        return size

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        return size * columns * itemsize + 8 * rows

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[np.sort(rng.choice(len(sample), size, replace=False))]
