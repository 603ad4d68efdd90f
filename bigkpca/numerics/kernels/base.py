"""What a kernel is: k(x, y) of rows, its diagonal, its gradient, its spectral density.

A kernel is written once, as a function of a tile of rows against a fixed set of rows (`against`), because
that is how every pass uses it; calling the kernel and everything else build on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
class KernelFunction(ABC):
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

    def gram(self, X: Array) -> Array:
        """k(X, X) in float64, (b, b): exactly symmetric, with the exact diagonal."""
        rows = X.astype(np.float64, copy=False)
        K = self(rows, rows)
        K += K.T  # elementwise from here on: rounding differs between the triangles
        K *= 0.5
        np.fill_diagonal(K, self.diagonal(rows))
        return K


def no_spectrum(kernel: KernelFunction) -> SpecError:
    """The error for a kernel without a spectral density, with the methods that do work."""
    return SpecError(
        f"the {kernel.name} kernel has no spectral density to draw random features from: gaussian, laplacian, matern, "
        "rational-quadratic, their products and multiples have one, polynomial kernels of degree 2 or more have a "
        "tensor sketch; method='nystroem' works with every kernel, 'columns' and 'exact' too"
    )


def no_pull(kernel: KernelFunction) -> SpecError:
    """The error for a kernel whose pre-images have no fixed point, with the maps that do work."""
    distances = "'mds', " if kernel.radial else ""
    return SpecError(
        f"pre-images of the {kernel.name} kernel have no fixed point: use {distances}'ridge', 'denoising' or 'linear'; "
        "gaussian, rational-quadratic, matern with nu > 1, polynomial and linear kernels have one, and sums, products "
        "and multiples of kernels of one kind"
    )


def require_positive(kernel: KernelFunction, **values: float) -> None:
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
