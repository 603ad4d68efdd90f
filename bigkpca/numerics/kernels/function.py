"""The caller's own kernel."""

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
    """The caller's own kernel: function(X (b, d), Y (l, d)) -> (b, l).

    Nothing is known of it, least of all that it is positive semidefinite: nothing is proven of its error then, unless
    `psd` says that it is, and the solver says when it is not.
    It cannot be saved with a model, and must be importable where tasks run on a cluster. `vectors` says that
    averages of rows are rows too, which k-means centres need; codes of letters or categories are not like that.
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
