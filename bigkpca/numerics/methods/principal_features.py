"""RFF-PCA: random Fourier features of the leading principal axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from bigkpca.errors import SpecError
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import PrincipalFourierRows
from bigkpca.numerics.kernels import Gaussian, Kernel
from bigkpca.numerics.methods.base import check_choice
from bigkpca.numerics.methods.trigonometric import Form, Trigonometric, check_pairs
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.solvers import Span

Correction = Literal["pointwise", "alpha", "sampled-alpha", "none"]


@dataclass(frozen=True)
class PrincipalFeatures(Trigonometric):
    """RFF-PCA: random Fourier features of the leading principal axes of the rows, Gaussian kernel only.

    correction: what makes up for the axes left out. "pointwise" multiplies features by exp(-rho² / (2 sigma²)) of the
    row's own residual; "alpha" by one number for all rows, exp(-tr(Sigma_res) / (2 sigma²)); "sampled-alpha" is the
    thesis's estimate of it from 101 rows; "none" leaves k(x, y) too large. form as for RandomFeatures.
    """

    name: ClassVar[str] = "rff-pca"
    correction: Correction = "pointwise"
    form: Form = "orthogonal"

    def __post_init__(self) -> None:
        check_choice(self, "correction", self.correction, ("pointwise", "alpha", "sampled-alpha", "none"))
        check_choice(self, "form", self.form, ("orthogonal", "iid", "qmc", "phase"))

    def check(self, kernel: Kernel, size: int | None) -> None:
        if not isinstance(kernel, Gaussian):
            raise SpecError(
                f"method='rff-pca' needs the gaussian kernel, not {kernel.name!r}: no other is the product of what its "
                "leading axes and the rest say; use method='rff' or 'nystroem'"
            )
        check_pairs(self, size)

    def solve(
        self,
        moments: Moments,
        features: PrincipalFourierRows,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
    ) -> Solution:
        unexplained = features.unexplained(moments.squares, moments.count)
        return solvers.plain(moments, components, unexplained=unexplained, center=center, tolerance=tolerance)

    def factor(self, moments: Moments | None, features: PrincipalFourierRows, tolerance: float) -> None:
        return None
