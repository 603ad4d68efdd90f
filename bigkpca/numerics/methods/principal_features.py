"""RFF-PCA: random Fourier features of the leading principal axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from bigkpca.errors import SpecError
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import PrincipalFourierRows
from bigkpca.numerics.kernels import Gaussian, Kernel
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.methods.base import check_choice
from bigkpca.numerics.methods.trigonometric import Form, Trigonometric, check_pairs
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Span

Correction = Literal["pointwise", "alpha", "sampled-alpha", "none"]


@dataclass(frozen=True)
class PrincipalFeatures(Trigonometric):
    """RFF-PCA: random Fourier features of the leading principal axes of the rows; Gaussian kernel only.

    Parameters
    ----------
    correction : {"pointwise", "alpha", "sampled-alpha", "none"}
        Correction for the axes left out. "pointwise": each feature row times exp(-rho² / (2 sigma²)), rho the row's own
        residual. "alpha": all rows times exp(-tr(Sigma_res) / (2 sigma²)). "sampled-alpha": the thesis's estimate of
        that factor from 101 rows. "none": k(x, y) stays too large.
    form : {"orthogonal", "iid", "qmc", "phase"}
        As for `RandomFeatures`.

    Raises
    ------
    SpecError
        Where an option is unknown; from `check`, where the kernel or the size does not fit.

    Notes
    -----
    The passes of `RandomFeatures`, and one for the principal axes.

    References
    ----------
    `docs/numerics.md`, section 10.

    Examples
    --------
    >>> PrincipalFeatures(correction="alpha")
    PrincipalFeatures(correction='alpha', form='orthogonal')
    """

    name: ClassVar[str] = "rff-pca"
    principal: ClassVar[bool] = True
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
        in_order: Map = map,
    ) -> Solution:
        unexplained = features.unexplained(moments.squares, moments.count)
        return solvers.plain(
            moments, components, unexplained=unexplained, center=center, tolerance=tolerance, in_order=in_order
        )

    def factor(self, moments: Moments | None, features: PrincipalFourierRows, tolerance: float) -> None:
        return None
