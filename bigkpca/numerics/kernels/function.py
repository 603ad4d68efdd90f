"""Kernels given as a Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels.algebra import Kernel
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
