"""The interface of landmark rules."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map


class LandmarkRule(Protocol):
    """A rule that chooses l landmarks from m sampled rows.

    Attributes
    ----------
    name : str
        What options and files call the rule.
    """

    name: ClassVar[str]

    def most_rows(self, size: int) -> int:
        """The number of sampled rows that the rule uses for `size` landmarks."""

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        """Bytes that `choose` needs beside the sample, which has `rows` x `columns` entries of `itemsize` bytes."""

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        """Choose landmarks from sampled rows.

        Parameters
        ----------
        sample : (m, d) array
            Rows, shifted and scaled, in the dtype of block work.
        kernel : Kernel
            The kernel of the fit.
        size : int
            The largest number of landmarks, at most m.
        rng : numpy.random.Generator
            The only source of randomness.
        in_order : callable
            Like `map`; may be parallel. Results do not depend on the number of threads.

        Returns
        -------
        (l, d) array
            Landmarks, l <= size, in the dtype of the sample.
        """
