"""Column sampling: eigenpairs from the singular values of sampled columns of K."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bigkpca.errors import Array
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.methods.base import OfLandmarks
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Span, span_of


@dataclass(frozen=True)
class ColumnSampling(OfLandmarks):
    """Column sampling: eigenpairs of K from the singular values of l of its columns, drawn uniformly.

    Eigenvalues √(n / l) · singular values of C = k(X, S) are nearly unbiased, where those of Nyström are lower bounds.

    Notes
    -----
    One pass over the data; n l (d + l) + l³ operations.

    References
    ----------
    Talwalkar, Kumar, Mohri and Rowley (2013), *J. Mach. Learn. Res.* 14; `docs/numerics.md`, section 8.

    Examples
    --------
    >>> ColumnSampling().uniform
    True
    """

    name: ClassVar[str] = "columns"
    uniform: ClassVar[bool] = True

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Accept every kernel and size."""

    def solve(
        self,
        moments: Moments,
        features: KernelRows,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
        in_order: Map = map,
    ) -> Solution:
        span = span or span_of(features.gram(in_order), moments, tolerance, in_order)
        return solvers.column_sampling(span, components, center=center, tolerance=tolerance)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        assert moments is not None  # kept with every model of this method
        return solvers.column_sampling_map(moments, tolerance)
