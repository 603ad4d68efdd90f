"""Methods as values: a feature map, and the solver that goes with it. A string names a method's default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from bigkpca.errors import Array, SpecError, unknown_name
from bigkpca.numerics import gram_solver, solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows, PrincipalFourierRows, check_sketchable
from bigkpca.numerics.features.frequencies import Coupling
from bigkpca.numerics.kernels import Gaussian, Kernel, Polynomial
from bigkpca.numerics.kernels.base import no_spectrum
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.registry import Registry
from bigkpca.numerics.solvers import Span

Form = Literal["orthogonal", "iid", "qmc", "phase"]
Correction = Literal["pointwise", "alpha", "sampled-alpha", "none"]


class Method(Protocol):
    """From moments of its features to a solution."""

    name: ClassVar[str]
    landmarks: ClassVar[bool]  # whether features are kernel rows, else random

    @property
    def uniform(self) -> bool:
        """Whether its formulas hold for landmarks drawn uniformly alone."""

    @property
    def pairs(self) -> bool:
        """Whether features are pairs of a sine and a cosine."""

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        """Bytes of the landmarks or frequencies of `size` features."""

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        """Bytes that drawing frequencies holds beside a sample of so many rows; 0 where a rule chooses landmarks."""

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Raise SpecError unless this kernel, and this many landmarks or features, will do."""

    def solve(
        self,
        moments: Moments,
        features: Any,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
    ) -> Solution:
        """Mean, components and eigenvalues; `span` is that of the landmarks, where it is known already.

        Raises DataError when no direction varies."""

    def factor(self, moments: Moments | None, features: Any, tolerance: float) -> Array | None:
        """P (D, m) with K ≈ (V P)(V P)' for feature rows V (n, D); None where V itself is that factor."""


class _OfLandmarks:
    """Methods whose features are kernels with landmarks."""

    landmarks: ClassVar[bool] = True
    pairs: ClassVar[bool] = False

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        return size * columns * itemsize

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        return 0


@dataclass(frozen=True)
class Nystroem(_OfLandmarks):
    """Nyström: exact kernel PCA in the span of the landmarks.

    form="thesis" does not orthogonalise, and cuts W to its `rank` first, for replication.
    """

    name: ClassVar[str] = "nystroem"
    form: Literal["orthogonal", "thesis"] = "orthogonal"
    rank: int | None = None

    def __post_init__(self) -> None:
        _check_choice(self, "form", self.form, ("orthogonal", "thesis"))
        if self.rank is not None and (self.form == "orthogonal" or self.rank < 1):
            raise SpecError(f"{self}: rank is a positive number, for form='thesis' alone; components cut the other")

    @property
    def uniform(self) -> bool:
        return self.form == "thesis"

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Every kernel and every size will do."""

    def solve(
        self,
        moments: Moments,
        features: KernelRows,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
    ) -> Solution:
        span = span or solvers.span_of(features.gram(), moments, tolerance)
        if self.form == "orthogonal":
            return solvers.nystroem(span, components, center=center, tolerance=tolerance)
        return solvers.nystroem_thesis(span, components, rank=self.rank, center=center, tolerance=tolerance)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        return solvers.nystroem_map(features.gram(), tolerance)[:, : self.rank]


@dataclass(frozen=True)
class ColumnSampling(_OfLandmarks):
    """Column sampling: singular values of sampled columns of K, for uniform landmarks."""

    name: ClassVar[str] = "columns"
    uniform: ClassVar[bool] = True

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Every kernel and every size will do."""

    def solve(
        self,
        moments: Moments,
        features: KernelRows,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
    ) -> Solution:
        span = span or solvers.span_of(features.gram(), moments, tolerance)
        return solvers.columns(span, components, center=center, tolerance=tolerance)

    def factor(self, moments: Moments | None, features: KernelRows, tolerance: float) -> Array:
        assert moments is not None  # kept with every model of this method
        return solvers.columns_map(moments, tolerance)


class _Trigonometric:
    """Methods of random sines and cosines: what their form says of frequencies and pairs."""

    landmarks: ClassVar[bool] = False
    uniform: ClassVar[bool] = False
    form: Form

    @property
    def pairs(self) -> bool:
        return self.form != "phase"

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        return (size // 2 if self.pairs else size) * columns * itemsize

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        return 8 * (size * columns + 1024 * (columns + 1024))

    @property
    def coupling(self) -> Coupling:
        """How frequencies are drawn."""
        return "iid" if self.form == "phase" else self.form


@dataclass(frozen=True)
class RandomFeatures(_Trigonometric):
    """Random Fourier features, or a tensor sketch for polynomial kernels.

    form: "orthogonal" frequencies in sine and cosine pairs, "iid" ones, "qmc" for scrambled Sobol points on the
    principal axes, or "phase" for the single cosines sqrt(2) cos(w'x + b) of Rahimi and Recht, with independent w.
    """

    name: ClassVar[str] = "rff"
    form: Form = "orthogonal"

    def __post_init__(self) -> None:
        _check_choice(self, "form", self.form, ("orthogonal", "iid", "qmc", "phase"))

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
            _check_pairs(self, size)

    def solve(
        self,
        moments: Moments,
        features: FeatureMap,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
    ) -> Solution:
        return solvers.plain(moments, components, center=center, tolerance=tolerance)

    def factor(self, moments: Moments | None, features: FeatureMap, tolerance: float) -> None:
        return None


@dataclass(frozen=True)
class PrincipalFeatures(_Trigonometric):
    """RFF-PCA: random Fourier features of the leading principal axes of the rows, Gaussian kernel only.

    correction: what makes up for the axes left out. "pointwise" multiplies features by exp(-rho² / (2 sigma²)) of the
    row's own residual; "alpha" by one number for all rows, exp(-tr(Sigma_res) / (2 sigma²)); "sampled-alpha" is the
    thesis's estimate of it from 101 rows; "none" leaves k(x, y) too large. form as for RandomFeatures.
    """

    name: ClassVar[str] = "rff-pca"
    correction: Correction = "pointwise"
    form: Form = "orthogonal"

    def __post_init__(self) -> None:
        _check_choice(self, "correction", self.correction, ("pointwise", "alpha", "sampled-alpha", "none"))
        _check_choice(self, "form", self.form, ("orthogonal", "iid", "qmc", "phase"))

    def check(self, kernel: Kernel, size: int | None) -> None:
        if not isinstance(kernel, Gaussian):
            raise SpecError(
                f"method='rff-pca' needs the gaussian kernel, not {kernel.name!r}: no other is the product of what its "
                "leading axes and the rest say; use method='rff' or 'nystroem'"
            )
        _check_pairs(self, size)

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


@dataclass(frozen=True)
class Exact(_OfLandmarks):
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


def _check_pairs(method: Method, size: int | None) -> None:
    if method.pairs and size is not None and size % 2:
        raise SpecError(f"size={size}: sines and cosines come in pairs, so the number of random features must be even")


def _check_choice(method: object, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise unknown_name(f"{key} of {type(method).__name__}", str(value), known)


METHODS: Registry[Method] = Registry(
    "method",
    (Nystroem, ColumnSampling, RandomFeatures, PrincipalFeatures, Exact),
    needs=["map_bytes", "working_bytes", "check", "solve", "factor"],
    aliases={"nystrom": "nystroem", "nyström": "nystroem"},
)
named, to_dict, from_dict = METHODS.named, METHODS.to_dict, METHODS.from_dict
