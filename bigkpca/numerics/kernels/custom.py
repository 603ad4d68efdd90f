"""Kernels that the caller brings: a Python function, or the Gram matrix itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels.algebra import Kernel, Leaf
from bigkpca.numerics.kernels.base import Evaluate


@dataclass(frozen=True)
class Function(Kernel):
    """A kernel given as a function of two sets of rows.

    Parameters
    ----------
    function : callable
        (X (b, d), Y (l, d)) -> (b, l) array of k(x_i, y_j). On a cluster it must be importable where tasks run.
    vectors : bool
        Whether averages of rows are meaningful rows, as k-means centres need: not for codes of letters or categories.
    psd : bool
        Whether the kernel is positive semidefinite. Without it nothing is proven about errors.

    Notes
    -----
    The solver warns where eigenvalues turn out negative. A model with such a kernel cannot be saved.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> kernel = kernels.Function(lambda X, Y: X @ Y.T, vectors=True, psd=True)
    >>> kernel(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """

    name: ClassVar[str] = "function"
    function: Callable[[Array, Array], Array]
    vectors: bool = False
    psd: bool = False

    @property
    def positive(self) -> bool:
        return self.psd

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        def evaluate(X: Array, out: Array) -> None:
            values = np.asarray(self.function(X, Y))
            if values.shape != out.shape:
                raise SpecError(
                    f"the kernel function returned shape {values.shape} for {len(X)} rows against {len(Y)}; "
                    f"it must return {out.shape}: one row for each row of its first argument"
                )
            out[:] = values

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.array([np.asarray(self.function(x, x)).item() for x in X[:, None, :]], np.float64)

    @property
    def on_vectors(self) -> bool:
        return self.vectors

    @property
    def savable(self) -> bool:
        return False

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name}


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
