"""Random features: random Fourier features, and tensor sketches of polynomial kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bigkpca.errors import SpecError
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, check_sketchable
from bigkpca.numerics.kernels import Kernel, Polynomial
from bigkpca.numerics.kernels.base import no_spectrum
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.methods.base import check_choice
from bigkpca.numerics.methods.trigonometric import Form, Trigonometric, check_pairs
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Span


@dataclass(frozen=True)
class RandomFeatures(Trigonometric):
    """Random Fourier features; for polynomial kernels of degree 2 or more, a tensor sketch.

    K ≈ Z Z' with D random features z(x), unbiased. Needs a kernel with a spectral density.

    Parameters
    ----------
    form : {"orthogonal", "iid", "qmc", "phase"}
        "orthogonal": orthogonal frequencies, in pairs of a sine and a cosine. "iid": independent frequencies, in pairs.
        "qmc": scrambled Sobol points on the principal axes, in pairs. "phase": single cosines √2 cos(w'x + b) with
        independent w. A tensor sketch has no form.

    Raises
    ------
    SpecError
        Where the form is unknown; from `check`, where the kernel or the size does not fit.

    Notes
    -----
    One pass over the data up to D = 8192, four beyond ("qmc" needs the principal axes as well).

    References
    ----------
    Rahimi and Recht (2007), *NIPS*; Yu et al. (2016), *NIPS*; Pham and Pagh (2013), *KDD*; `docs/numerics.md`, sections
    9 and 11.

    Examples
    --------
    >>> RandomFeatures(form="phase").pairs
    False
    """

    name: ClassVar[str] = "rff"
    form: Form = "orthogonal"

    def __post_init__(self) -> None:
        check_choice(self, "form", self.form, ("orthogonal", "iid", "qmc", "phase"))

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        axes = 8 * (4 * rows * columns + 2 * columns * columns) if self.form == "qmc" else 0
        return super().working_bytes(rows, columns, size) + axes

    def check(self, kernel: Kernel, size: int | None) -> None:
        if isinstance(kernel, Polynomial):
            if self != RandomFeatures():
                raise SpecError(f"{self}: a polynomial kernel has a tensor sketch, which has no form; leave form out")
            check_sketchable(kernel)
        elif not kernel.spectral:
            raise no_spectrum(kernel)
        else:
            check_pairs(self, size)

    def solve(
        self,
        moments: Moments,
        features: FeatureMap,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
        in_order: Map = map,
    ) -> Solution:
        return solvers.plain(moments, components, center=center, tolerance=tolerance, in_order=in_order)

    def factor(self, moments: Moments | None, features: FeatureMap, tolerance: float) -> None:
        return None
