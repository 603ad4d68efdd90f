"""Exact kernel PCA from the whole Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bigkpca.errors import Array
from bigkpca.numerics import gram_solver, solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.methods.base import OfLandmarks
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Span


@dataclass(frozen=True)
class Exact(OfLandmarks):
    """Exact kernel PCA: every row is a landmark, so that W is the Gram matrix K.

    Notes
    -----
    The matrix is held up to 8192 rows. For more rows, components come from products with K, formed tile by tile, n² d
    operations each, until residuals are below the tolerance of the fit.

    References
    ----------
    Schölkopf, Smola and Müller (1998), *Neural Comput.* 10; `docs/numerics.md`, sections 6 and 16.

    Examples
    --------
    >>> Exact().landmarks
    True
    """

    name: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True
    uniform: ClassVar[bool] = False

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Accept every kernel and size."""

    def solve(
        self,
        moments: Moments | None,
        features: KernelRows,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
        in_order: Map = map,
    ) -> Solution:
        K, positive = features.gram(in_order), features.kernel.positive
        return gram_solver.gram(K, components, center=center, tolerance=tolerance, positive=positive, in_order=in_order)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        return solvers.nystroem_map(features.gram(), tolerance)
