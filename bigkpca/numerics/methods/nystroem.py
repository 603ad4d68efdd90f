"""Nyström approximation: exact kernel PCA in the span of the landmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from bigkpca.errors import Array, SpecError
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.methods.base import OfLandmarks, check_choice
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Span, span_of


@dataclass(frozen=True)
class Nystroem(OfLandmarks):
    """Nyström approximation: exact kernel PCA in the span of the landmarks.

    K ≈ C W⁺ C' with C = k(X, S), W = k(S, S). The eigenvalues of form="orthogonal" are lower bounds of those of Kc, for
    positive semidefinite kernels.

    Parameters
    ----------
    form : {"orthogonal", "thesis"}
        "thesis": components of W extended to all rows, not orthogonalised; for replication.
    rank : int, optional
        With form="thesis": cut W to this rank first.

    Raises
    ------
    SpecError
        Where an option is unknown or out of range.

    Notes
    -----
    One pass over the data; with l landmarks, n l (d + l) + l³ operations.

    References
    ----------
    Williams and Seeger (2001), *NIPS*; `docs/numerics.md`, sections 1 and 8.

    Examples
    --------
    >>> Nystroem(form="thesis", rank=60)
    Nystroem(form='thesis', rank=60)
    """

    name: ClassVar[str] = "nystroem"
    form: Literal["orthogonal", "thesis"] = "orthogonal"
    rank: int | None = None

    def __post_init__(self) -> None:
        check_choice(self, "form", self.form, ("orthogonal", "thesis"))
        if self.rank is not None and (self.form == "orthogonal" or self.rank < 1):
            raise SpecError(f"{self}: rank is a positive number, for form='thesis' alone; components cut the other")

    @property
    def uniform(self) -> bool:
        return self.form == "thesis"

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
        if self.form == "orthogonal":
            return solvers.nystroem(span, components, center=center, tolerance=tolerance, in_order=in_order)
        return solvers.nystroem_thesis(span, components, rank=self.rank, center=center, tolerance=tolerance)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        return solvers.nystroem_map(features.gram(), tolerance, self.rank)
