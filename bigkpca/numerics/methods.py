"""Methods of kernel PCA: each is a feature map with a matching solver.

A method is a frozen dataclass; a name represents the method with default options.

Examples
--------
>>> from bigkpca import methods
>>> methods.named("nystrom")
Nystroem(form='orthogonal', rank=None)
>>> methods.from_dict(methods.to_dict(methods.RandomFeatures(form="iid")))
RandomFeatures(form='iid')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from bigkpca.errors import Array, SpecError, unknown_name
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Components, Solution
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian, Kernel, Polynomial
from bigkpca.numerics.kernels.base import Coupling, no_spectrum
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.registry import Registry


class Method(ABC):
    """The solver for a feature map, from the moments of features to components and eigenvalues."""

    name: ClassVar[str]  # in options and files
    landmarks: ClassVar[bool] = True  # whether features are kernels with landmarks, and not random
    exact: ClassVar[bool] = False  # whether every row is a landmark
    principal: ClassVar[bool] = False  # whether features are those of principal axes, which need one more pass

    @property
    def uniform(self) -> bool:
        """Whether the formulas are valid only for uniformly drawn landmarks."""
        return False

    @property
    def pairs(self) -> bool:
        """Whether features are pairs of a sine and a cosine."""
        return False

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        """Bytes of the landmarks or frequencies of `size` features."""
        return (size // 2 if self.pairs else size) * columns * itemsize

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        """Bytes that drawing frequencies needs beside a sample of `rows` rows; 0 for methods with landmarks."""
        return 0

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Raise SpecError unless the method works with this kernel, and with `size` features (None: not known)."""
        return

    @abstractmethod
    def solve(
        self, moments: Any, features: Any, components: Components, center: bool, tolerance: float, span: Any
    ) -> Solution:
        """Mean, components and eigenvalues, float64, from the moments of the features of all rows or, with landmarks,
        their span.

        `components` is a number, a share of the variance in (0, 1), or None for the numerical rank; `tolerance` is that
        of ranks, relative to the largest eigenvalue. Raises DataError if no direction varies.
        """

    def factor(self, moments: Moments | None, features: Any, tolerance: float) -> Array | None:
        """P (D, m) with K ≈ (V P)(V P)' for feature rows V (n, D); None if V itself is that factor."""
        return None


def _check_choice(method: object, key: str, known: tuple[str, ...]) -> None:
    """Raise SpecError unless the option `key` is one of the known choices."""
    if getattr(method, key) not in known:
        raise unknown_name(f"{key} of {type(method).__name__}", str(getattr(method, key)), known)


Form = Literal["orthogonal", "iid", "phase"]


class Trigonometric(Method):
    """Base of methods with random sines and cosines; their form determines frequencies and pairs."""

    landmarks: ClassVar[bool] = False
    form: Form

    def __post_init__(self) -> None:
        _check_choice(self, "form", get_args(Form))

    @property
    def pairs(self) -> bool:
        return self.form != "phase"

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        return 8 * (size * columns + 1024 * (columns + 1024))

    @property
    def coupling(self) -> Coupling:
        return "iid" if self.form == "phase" else self.form

    def check_pairs(self, size: int | None) -> None:
        if self.pairs and size is not None and size % 2:
            raise SpecError(
                f"size={size}: sines and cosines come in pairs, so the number of random features must be even"
            )

    def solve(
        self, moments: Any, features: Any, components: Components, center: bool, tolerance: float, span: Any
    ) -> Solution:
        added = features.unexplained(moments.squares, moments.weight)
        return solvers.plain(moments, components, added=added, center=center, tolerance=tolerance)


@dataclass(frozen=True)
class ColumnSampling(Method):
    """Column sampling: eigenpairs of K from the singular values of l of its columns, drawn uniformly.

    Eigenvalues √(n / l) · singular values of C = k(X, S) are nearly unbiased, while those of Nyström are lower bounds.

    Makes one pass over the data: n l (d + l) + l³ operations. Source: Talwalkar, Kumar, Mohri and Rowley (2013), *J.
    Mach. Learn. Res.* 14; `docs/numerics.md`, section 8.
    """

    name: ClassVar[str] = "columns"
    uniform: ClassVar[bool] = True

    def solve(
        self, moments: Any, features: Any, components: Components, center: bool, tolerance: float, span: Any
    ) -> Solution:
        return solvers.column_sampling(span, components, center=center, tolerance=tolerance)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        assert moments is not None  # stored with every model of this method
        return solvers.column_sampling_map(moments, tolerance)


@dataclass(frozen=True)
class Exact(Method):
    """Exact kernel PCA: every row is a landmark, so W is the Gram matrix K.

    The matrix is held in memory for up to 8192 rows. For more rows, components come from products with K, formed tile
    by tile, n² d operations each, until residuals are below the tolerance of the fit. Source: Schölkopf, Smola and
    Müller (1998), *Neural Comput.* 10; `docs/numerics.md`, sections 6 and 16.
    """

    name: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True

    def solve(
        self, moments: Any, features: Any, components: Components, center: bool, tolerance: float, span: Any = None
    ) -> Solution:
        K, positive = features.gram(), features.kernel.positive
        return solvers.gram(K, components, center=center, tolerance=tolerance, positive=positive)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        return solvers.nystroem_map(features.gram(), tolerance, positive=features.kernel.positive)


@dataclass(frozen=True)
class Nystroem(Method):
    """Nyström approximation: exact kernel PCA in the span of the landmarks.

    K ≈ C W⁺ C' with C = k(X, S), W = k(S, S). With form="orthogonal", the eigenvalues are lower bounds of those of Kc,
    for positive semidefinite kernels.

    Makes one pass over the data: with l landmarks, n l (d + l) + l³ operations. Raises SpecError if an option is
    unknown or out of range. Source: Williams and Seeger (2001), *NIPS*; `docs/numerics.md`, sections 1 and 8.

    Parameters
    ----------
    form : {"orthogonal", "thesis"}
        "thesis": components of W extended to all rows, not orthogonalised; for replication.
    rank : int, optional
        With form="thesis": truncate W to this rank first.
    """

    name: ClassVar[str] = "nystroem"
    form: Literal["orthogonal", "thesis"] = "orthogonal"
    rank: int | None = None

    def __post_init__(self) -> None:
        _check_choice(self, "form", ("orthogonal", "thesis"))
        if self.rank is not None and (self.form == "orthogonal" or self.rank < 1):
            raise SpecError(f"{self}: rank must be positive, and only form='thesis' has it; components limit the other")

    @property
    def uniform(self) -> bool:
        return self.form == "thesis"

    def solve(
        self, moments: Any, features: Any, components: Components, center: bool, tolerance: float, span: Any
    ) -> Solution:
        if self.form == "orthogonal":
            return solvers.nystroem(span, components, center=center, tolerance=tolerance)
        return solvers.nystroem_thesis(span, components, rank=self.rank, center=center, tolerance=tolerance)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        return solvers.nystroem_map(features.gram(), tolerance, positive=features.kernel.positive, rank=self.rank)


Correction = Literal["pointwise", "alpha", "sampled-alpha", "none"]


@dataclass(frozen=True)
class PrincipalFeatures(Trigonometric):
    """RFF-PCA: random Fourier features of the leading principal axes of the rows; Gaussian kernel only.

    Makes the passes of `RandomFeatures`, and one for the principal axes. Raises SpecError if an option is unknown; from
    `check`, if the kernel or the size is unsuitable. Source: `docs/numerics.md`, section 10.

    Parameters
    ----------
    correction : {"pointwise", "alpha", "sampled-alpha", "none"}
        Correction for the axes left out. "pointwise": each feature row times exp(-rho² / (2 sigma²)), where rho is the
        residual of that row. "alpha": all rows times exp(-tr(Sigma_res) / (2 sigma²)). "sampled-alpha": the thesis's
        estimate of that factor from 101 rows. "none": k(x, y) stays too large.
    form : {"orthogonal", "iid", "phase"}
        As for `RandomFeatures`.
    """

    name: ClassVar[str] = "rff-pca"
    principal: ClassVar[bool] = True
    correction: Correction = "pointwise"
    form: Form = "orthogonal"

    def __post_init__(self) -> None:
        _check_choice(self, "correction", get_args(Correction))
        super().__post_init__()

    def check(self, kernel: Kernel, size: int | None) -> None:
        if not isinstance(kernel, Gaussian):
            raise SpecError(
                f"method='rff-pca' needs the gaussian kernel, not {kernel.name!r}: no other kernel is a product over "
                "its leading axes and the rest; use method='rff' or 'nystroem'"
            )
        self.check_pairs(size)


@dataclass(frozen=True)
class RandomFeatures(Trigonometric):
    """Random Fourier features; for polynomial kernels of degree 2 or more, a tensor sketch.

    K ≈ Z Z' with D random features z(x), unbiased. Needs a kernel with a spectral density.

    Makes one pass over the data up to D = 8192, four beyond. Raises SpecError if the form is unknown; from `check`, if
    the kernel or the size is unsuitable. Source: Rahimi and Recht (2007), *NIPS*; Yu et al. (2016), *NIPS*; Pham and
    Pagh (2013), *KDD*; `docs/numerics.md`, sections 9 and 11.

    Parameters
    ----------
    form : {"orthogonal", "iid", "phase"}
        "orthogonal": orthogonal frequencies, in pairs of a sine and a cosine. "iid": independent frequencies, in pairs.
        "phase": single cosines √2 cos(w'x + b) with independent w. A tensor sketch has no form.
    """

    name: ClassVar[str] = "rff"
    form: Form = "orthogonal"

    def check(self, kernel: Kernel, size: int | None) -> None:
        if isinstance(kernel, Polynomial):
            if self != RandomFeatures():
                raise SpecError(f"{self}: a polynomial kernel has a tensor sketch, which has no form; omit form")
            if kernel.degree < 2:
                raise SpecError(
                    "a tensor sketch needs a polynomial kernel of degree 2 or more: for degree 1, use "
                    "method='nystroem' or the linear kernel"
                )
        elif not kernel.spectral:
            raise no_spectrum(kernel)
        else:
            self.check_pairs(size)


__all__ = [
    "METHODS",
    "ColumnSampling",
    "Correction",
    "Exact",
    "Form",
    "Method",
    "Nystroem",
    "PrincipalFeatures",
    "RandomFeatures",
    "from_dict",
    "named",
    "to_dict",
]

METHODS: Registry[Method] = Registry(
    "method",
    (Nystroem, ColumnSampling, RandomFeatures, PrincipalFeatures, Exact),
    aliases={"nystrom": "nystroem", "nyström": "nystroem"},
)
named, to_dict, from_dict = METHODS.named, METHODS.to_dict, METHODS.from_dict
