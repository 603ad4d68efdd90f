"""What a kernel is (k(x, y) of rows, its diagonal, its spectral density), and the algebra: sums, products, multiples.

A kernel is written once, as a function of a tile of rows against a fixed set of rows (`against`), because
that is how every pass uses it; calling the kernel and everything else build on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from bigkpca.errors import Array, SpecError

Evaluate = Callable[[Array, Array], None]  # (X (b, d), out (b, l)) -> None; out[i, j] = k(x_i, y_j)
EvaluatePull = Callable[[Array, Array, Array], None]  # (X, K (b, l), pulls (b, l)) -> None; k and its pull
Distance = Literal["sqeuclidean", "cityblock"]
Towards = Literal["difference", "product"]


class Draws(Protocol):
    """m points to turn into frequencies; each call gives numbers that are independent of those before."""

    def normals(self) -> Array:
        """m vectors whose marginal law is the standard normal of R^d, (m, d)."""

    def uniforms(self) -> Array:
        """m numbers in (0, 1), (m,)."""


@dataclass(frozen=True)
class Kernel(ABC):
    """A symmetric function k(x, y) on rows.

    Final classes are frozen dataclasses whose fields are the kernel's parameters.
    """

    name: ClassVar[str]
    distance: ClassVar[Distance | None] = None  # what its length sigma measures, None if it has no length

    @property
    def positive(self) -> bool:
        """Whether it is known to be positive semidefinite on every set of rows."""
        return True

    @property
    def stationary(self) -> bool:
        """Whether k depends on x - y alone."""
        return self.distance is not None

    def allows_shift(self, center: bool) -> bool:
        """Whether rows may be shifted: k depends on x - y alone, or, with `center`, the centred Gram matrix does."""
        return self.stationary

    @property
    def spectral(self) -> bool:
        """Whether `frequencies` knows a spectral density to draw from."""
        return False

    @property
    def radial(self) -> bool:
        """Whether k is a decreasing function of |x - y|, so that its values tell distances."""
        return self.distance == "sqeuclidean"

    @property
    def towards(self) -> Towards | None:
        """Where a row z is pulled when k(z, y) is to grow: its gradient in z is p(z, y) (y - z) ("difference", and then
        k(z, z) is the same for all z), or p(z, y) y ("product", k symmetric). None where no pull p(z, y) is known."""
        return None

    @property
    def on_vectors(self) -> bool:
        """Whether averages of rows are rows too, so that k-means centres make sense."""
        return True

    @property
    def savable(self) -> bool:
        """Whether `to_dict` says all there is to know, so that a file can hold the kernel."""
        return True

    @abstractmethod
    def against(self, Y: Array, most_rows: int) -> Evaluate:
        """Prepare k(., Y) for tiles of at most `most_rows` rows; Y is (l, d) and fixes the dtype.

        The returned function owns its work space: one per thread.
        """

    @abstractmethod
    def diagonal(self, X: Array) -> Array:
        """k(x_i, x_i), shape (b,), float64."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The kernel as JSON-ready values; `from_dict` reads it back."""

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        """Prepare k(., Y) and its pull p(., Y) for tiles of at most `most_rows` rows, as `against` prepares k.

        Raises SpecError for a kernel without one. Source: `docs/numerics.md`, section 18.
        """
        raise no_pull(self)

    def own_pull(self, X: Array) -> Array:
        """p(x_i, x_i), shape (b,), float64. Raises SpecError for a kernel without a pull."""
        raise no_pull(self)

    def frequencies(self, draws: Draws) -> Array:
        """w_1, ..., w_m with k(x, y) / k(0, 0) = E cos(w'(x - y)), (m, d): draws from the spectral density.

        Raises SpecError for a kernel without one. Source: `docs/numerics.md`, section 9.
        """
        raise no_spectrum(self)

    def __call__(self, X: Array, Y: Array) -> Array:
        """The matrix k(x_i, y_j), shape (len(X), len(Y)), in the dtype of both, at least float32."""
        dtype = np.result_type(X.dtype, Y.dtype, np.float32)
        out = np.empty((len(X), len(Y)), dtype)
        self.against(Y.astype(dtype, copy=False), len(X))(X.astype(dtype, copy=False), out)
        return out

    def __add__(self, other: object) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(self, other) if isinstance(other, Kernel) else Scaled(self, float(other))

    def __rmul__(self, factor: float) -> Kernel:
        return Scaled(self, float(factor))

    def gram(self, X: Array) -> Array:
        """k(X, X) in float64, (b, b): exactly symmetric, with the exact diagonal."""
        rows = X.astype(np.float64, copy=False)
        K = self(rows, rows)
        K += K.T  # elementwise from here on: rounding differs between the triangles
        K *= 0.5
        np.fill_diagonal(K, self.diagonal(rows))
        return K


class Leaf(Kernel):
    """A kernel whose parameters are plain numbers."""

    def to_dict(self) -> dict[str, Any]:
        parameters = asdict(self)  # NumPy's numbers become Python's, which JSON knows
        return {"name": self.name, **{key: np.asarray(value).item() for key, value in parameters.items()}}


def no_spectrum(kernel: Kernel) -> SpecError:
    """The error for a kernel without a spectral density, with the methods that do work."""
    return SpecError(
        f"the {kernel.name} kernel has no spectral density to draw random features from: gaussian, laplacian, matern, "
        "rational-quadratic, their products and multiples have one, polynomial kernels of degree 2 or more have a "
        "tensor sketch; method='nystroem' works with every kernel, 'columns' and 'exact' too"
    )


def no_pull(kernel: Kernel) -> SpecError:
    """The error for a kernel whose pre-images have no fixed point, with the maps that do work."""
    distances = "'mds', " if kernel.radial else ""
    return SpecError(
        f"pre-images of the {kernel.name} kernel have no fixed point: use {distances}'ridge', 'denoising' or 'linear'; "
        "gaussian, rational-quadratic, matern with nu > 1, polynomial and linear kernels have one, and sums, products "
        "and multiples of kernels of one kind"
    )


def require_positive(kernel: Kernel, **values: float) -> None:
    """Raise SpecError unless every value is a positive number."""
    for key, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise SpecError(f"{type(kernel).__name__}: {key} must be a positive number, not {value}")


def cached_pieces(rows: int) -> Iterator[slice]:
    """Slices of rows few enough to stay in cache from one elementwise step to the next: 6 % of a whole pass."""
    return (slice(start, start + 64) for start in range(0, rows, 64))


def squared_norms(X: Array) -> Array:
    """|x_i|^2, shape (b,), in the dtype of X."""
    return np.einsum("ij,ij->i", X, X)


@dataclass(frozen=True)
class _Pair(Kernel):
    """Two kernels combined entry by entry."""

    left: Kernel
    right: Kernel

    @property
    def positive(self) -> bool:
        return self.left.positive and self.right.positive  # of products: Schur

    @property
    def stationary(self) -> bool:
        return self.left.stationary and self.right.stationary

    @property
    def radial(self) -> bool:
        return self.left.radial and self.right.radial

    @property
    def towards(self) -> Towards | None:
        return self.left.towards if self.left.towards == self.right.towards else None

    @property
    def on_vectors(self) -> bool:
        return self.left.on_vectors and self.right.on_vectors

    @property
    def savable(self) -> bool:
        return self.left.savable and self.right.savable

    def _combined(self, Y: Array, most_rows: int, combine: np.ufunc) -> Evaluate:
        left, right = self.left.against(Y, most_rows), self.right.against(Y, most_rows)
        work = np.empty((most_rows, len(Y)), Y.dtype)

        def evaluate(X: Array, out: Array) -> None:
            other = work[: len(X)]
            left(X, out)
            right(X, other)
            combine(out, other, out=out)

        return evaluate

    def _combined_pulls(
        self, Y: Array, most_rows: int, combine: Callable[[Array, Array, Array, Array], None]
    ) -> EvaluatePull:
        """`combine` brings (K, pulls) of both into the first two."""
        if self.towards is None:
            raise no_pull(self)
        left, right = self.left.pulling(Y, most_rows), self.right.pulling(Y, most_rows)
        values, others = np.empty((2, most_rows, len(Y)), Y.dtype)

        def evaluate(X: Array, K: Array, pulls: Array) -> None:
            left(X, K, pulls)
            right(X, values[: len(X)], others[: len(X)])
            combine(K, pulls, values[: len(X)], others[: len(X)])

        return evaluate

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "left": self.left.to_dict(), "right": self.right.to_dict()}


class Sum(_Pair):
    """k(x, y) = left(x, y) + right(x, y)."""

    name = "sum"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return self._combined(Y, most_rows, np.add)

    def allows_shift(self, center: bool) -> bool:
        return self.left.allows_shift(center) and self.right.allows_shift(center)

    def diagonal(self, X: Array) -> Array:
        return self.left.diagonal(X) + self.right.diagonal(X)

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        def added(K: Array, pulls: Array, values: Array, others: Array) -> None:
            K += values
            pulls += others

        return self._combined_pulls(Y, most_rows, added)

    def own_pull(self, X: Array) -> Array:
        return self.left.own_pull(X) + self.right.own_pull(X)


class Product(_Pair):
    """k(x, y) = left(x, y) · right(x, y)."""

    name = "product"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return self._combined(Y, most_rows, np.multiply)

    def diagonal(self, X: Array) -> Array:
        return self.left.diagonal(X) * self.right.diagonal(X)

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        def multiplied(K: Array, pulls: Array, values: Array, others: Array) -> None:
            pulls *= values
            others *= K
            pulls += others
            K *= values

        return self._combined_pulls(Y, most_rows, multiplied)

    def own_pull(self, X: Array) -> Array:
        left, right = self.left, self.right
        return left.own_pull(X) * right.diagonal(X) + left.diagonal(X) * right.own_pull(X)

    @property
    def spectral(self) -> bool:
        return self.left.spectral and self.right.spectral

    def frequencies(self, draws: Draws) -> Array:
        """The sum of independent frequencies of both: a product of kernels is a convolution of densities."""
        if not self.spectral:
            return super().frequencies(draws)
        return self.left.frequencies(draws) + self.right.frequencies(draws)


@dataclass(frozen=True)
class Scaled(Kernel):
    """k(x, y) = factor · kernel(x, y), factor > 0."""

    name: ClassVar[str] = "scaled"
    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        require_positive(self, factor=self.factor)

    @property
    def positive(self) -> bool:
        return self.kernel.positive

    @property
    def stationary(self) -> bool:
        return self.kernel.stationary

    def allows_shift(self, center: bool) -> bool:
        return self.kernel.allows_shift(center)

    @property
    def spectral(self) -> bool:
        return self.kernel.spectral

    @property
    def radial(self) -> bool:
        return self.kernel.radial

    @property
    def towards(self) -> Towards | None:
        return self.kernel.towards

    @property
    def on_vectors(self) -> bool:
        return self.kernel.on_vectors

    @property
    def savable(self) -> bool:
        return self.kernel.savable

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner = self.kernel.against(Y, most_rows)

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            out *= self.factor

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return self.factor * self.kernel.diagonal(X)

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        inner = self.kernel.pulling(Y, most_rows)

        def evaluate(X: Array, K: Array, pulls: Array) -> None:
            inner(X, K, pulls)
            K *= self.factor
            pulls *= self.factor

        return evaluate

    def own_pull(self, X: Array) -> Array:
        return self.factor * self.kernel.own_pull(X)

    def frequencies(self, draws: Draws) -> Array:
        """Those of the kernel itself: the factor scales features, not frequencies."""
        return self.kernel.frequencies(draws)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kernel": self.kernel.to_dict(), "factor": self.factor}
