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
from bigkpca.numerics.solvers import Span


@dataclass(frozen=True)
class Exact(OfLandmarks):
    """The whole Gram matrix: every row is a landmark, and W is K."""

    name: ClassVar[str] = "exact"
    uniform: ClassVar[bool] = False

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Every kernel and every size will do."""

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
        K, positive = features.gram(), features.kernel.positive
        return gram_solver.gram(K, components, center=center, tolerance=tolerance, positive=positive, in_order=in_order)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        return solvers.nystroem_map(features.gram(), tolerance)
