"""Kernels as values: k(x, y), its diagonal, and an algebra of sums, products and positive scalings.

A kernel is written once, as a function of a tile of rows against a fixed set of rows (`against`), because
that is how every pass uses it; calling the kernel and everything else build on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.spatial.distance import cdist

from bigkpca.errors import Array, SpecError, unknown_name

Evaluate = Callable[[Array, Array], None]  # (X (b, d), out (b, l)) -> None; out[i, j] = k(x_i, y_j)
Distance = Literal["sqeuclidean", "cityblock"]


@dataclass(frozen=True)
class Kernel(ABC):
    """A symmetric function k(x, y) on rows.

    Final classes below are frozen dataclasses whose fields are the kernel's parameters.
    """

    name: ClassVar[str]
    positive: ClassVar[bool] = True  # known to be positive semidefinite on every set of rows
    distance: ClassVar[Distance | None] = None  # what its length sigma measures, None if it has no length

    @property
    def stationary(self) -> bool:
        """Whether k depends on x - y alone, so that rows may be shifted."""
        return self.distance is not None

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


class _Leaf(Kernel):
    """A kernel whose parameters are plain numbers."""

    def to_dict(self) -> dict[str, Any]:
        parameters = asdict(self)  # NumPy's numbers become Python's, which JSON knows
        return {"name": self.name, **{key: np.asarray(value).item() for key, value in parameters.items()}}


def _require_positive(kernel: Kernel, **values: float) -> None:
    for key, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise SpecError(f"{type(kernel).__name__}: {key} must be a positive number, not {value}")


def _cached_pieces(rows: int) -> Iterator[slice]:
    """Slices of rows few enough to stay in cache from one elementwise step to the next: 6 % of a whole pass."""
    return (slice(start, start + 64) for start in range(0, rows, 64))


def squared_norms(X: Array) -> Array:
    """|x_i|^2, shape (b,), in the dtype of X."""
    return np.einsum("ij,ij->i", X, X)


@dataclass(frozen=True)
class Gaussian(_Leaf):
    """k(x, y) = exp(-|x - y|^2 / (2 sigma^2)); sigma in the units of the columns."""

    name: ClassVar[str] = "gaussian"
    distance: ClassVar[Distance] = "sqeuclidean"
    sigma: float

    def __post_init__(self) -> None:
        _require_positive(self, sigma=self.sigma)

    @property
    def gamma(self) -> float:
        """1 / (2 sigma^2)."""
        return 0.5 / self.sigma**2

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        # The whole exponent is one matrix product: [x/σ, 1, -|x/σ|²/2] · [y/σ; -|y/σ|²/2; 1]. Dividing by
        # σ costs nothing, since rows are copied beside their two extra columns anyway, and it keeps
        # float32 far from overflow whatever the units of the data.
        d = Y.shape[1]
        scaled = Y.astype(np.float64) / self.sigma
        right = np.empty((d + 2, len(Y)), Y.dtype)
        right[:d] = scaled.T
        right[d] = -0.5 * squared_norms(scaled)
        right[d + 1] = 1
        work = np.empty((most_rows, d + 2), Y.dtype)
        work[:, d] = 1
        inverse = Y.dtype.type(1 / self.sigma)

        def evaluate(X: Array, out: Array) -> None:
            left = work[: len(X)]
            for piece in _cached_pieces(len(X)):
                rows = left[piece, :d]
                np.multiply(X[piece], inverse, out=rows)
                np.multiply(squared_norms(rows), -0.5, out=left[piece, d + 1])
            np.matmul(left, right, out=out)
            for piece in _cached_pieces(len(X)):
                values = out[piece]
                np.minimum(values, 0, out=values)  # rounding may leave a squared distance a little below zero
                np.exp(values, out=values)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


@dataclass(frozen=True)
class Laplacian(_Leaf):
    """k(x, y) = exp(-|x - y|_1 / sigma); sigma in the units of the columns, gamma = 1 / sigma."""

    name: ClassVar[str] = "laplacian"
    distance: ClassVar[Distance] = "cityblock"
    sigma: float

    def __post_init__(self) -> None:
        _require_positive(self, sigma=self.sigma)

    @property
    def gamma(self) -> float:
        """1 / sigma."""
        return 1 / self.sigma

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        work = np.empty((most_rows, len(Y)))
        fixed = Y.astype(np.float64)

        def evaluate(X: Array, out: Array) -> None:
            distances = work[: len(X)]
            cdist(X, fixed, "cityblock", out=distances)
            distances *= -1 / self.sigma
            np.exp(distances, out=out, casting="same_kind")

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


@dataclass(frozen=True)
class Linear(_Leaf):
    """k(x, y) = <x, y>."""

    name: ClassVar[str] = "linear"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        right = np.ascontiguousarray(Y.T)

        def evaluate(X: Array, out: Array) -> None:
            np.matmul(X, right, out=out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)


@dataclass(frozen=True)
class Polynomial(_Leaf):
    """k(x, y) = (gamma <x, y> + coef0)^degree, with degree a positive integer and coef0 >= 0."""

    name: ClassVar[str] = "polynomial"
    gamma: float
    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(self, gamma=self.gamma)
        if not (np.isfinite(self.degree) and self.degree == int(self.degree) and self.degree >= 1):
            raise SpecError(f"Polynomial: degree must be a positive integer, not {self.degree}")
        if not (np.isfinite(self.coef0) and self.coef0 >= 0):
            raise SpecError(f"Polynomial: coef0 must not be negative (the kernel would be indefinite): {self.coef0}")

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner = Linear().against(Y, most_rows)
        base = np.empty((most_rows, len(Y)), Y.dtype)

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            out *= self.gamma
            out += self.coef0
            factor = base[: len(X)]
            factor[:] = out
            for _ in range(int(self.degree) - 1):  # np.power is many times slower than a few products
                out *= factor

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return (self.gamma * Linear().diagonal(X) + self.coef0) ** int(self.degree)


@dataclass(frozen=True)
class Sigmoid(_Leaf):
    """k(x, y) = tanh(gamma <x, y> + coef0). Not positive semidefinite: its negative part is dropped."""

    name: ClassVar[str] = "sigmoid"
    positive: ClassVar[bool] = False
    gamma: float
    coef0: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(self, gamma=self.gamma)
        if not np.isfinite(self.coef0):
            raise SpecError(f"Sigmoid: coef0 must be finite, not {self.coef0}")

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner = Linear().against(Y, most_rows)

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            out *= self.gamma
            out += self.coef0
            np.tanh(out, out=out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.asarray(np.tanh(self.gamma * Linear().diagonal(X) + self.coef0))


@dataclass(frozen=True)
class Cosine(_Leaf):
    """k(x, y) = <x, y> / (|x| |y|); a zero row has kernel 0 with everything, itself included."""

    name: ClassVar[str] = "cosine"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner = Linear().against(_unit_rows(Y, np.empty_like(Y)), most_rows)
        work = np.empty((most_rows, Y.shape[1]), Y.dtype)

        def evaluate(X: Array, out: Array) -> None:
            inner(_unit_rows(X, work[: len(X)]), out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.asarray(X.any(axis=1), np.float64)


def _unit_rows(X: Array, out: Array) -> Array:
    # Dividing by the largest entry first keeps the norm of tiny and huge rows from under- or overflowing.
    largest = np.abs(X).max(axis=1, keepdims=True)
    np.divide(X, np.where(largest > 0, largest, 1), out=out)
    norms = np.sqrt(squared_norms(out))
    out /= np.where(norms > 0, norms, 1)[:, None]
    return out


@dataclass(frozen=True)
class Function(Kernel):
    """The caller's own kernel: function(X (b, d), Y (l, d)) -> (b, l).

    Nothing is known of it, least of all that it is positive semidefinite: the solver says when it is not.
    It cannot be saved with a model, and must be importable where tasks run on a cluster.
    """

    name: ClassVar[str] = "function"
    positive: ClassVar[bool] = False
    function: Callable[[Array, Array], Array]

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        def evaluate(X: Array, out: Array) -> None:
            values = np.asarray(self.function(X, Y))
            if values.shape != out.shape:
                raise SpecError(
                    f"the kernel function returned shape {values.shape} for {len(X)} rows against {len(Y)}; "
                    f"it must return {out.shape}: one row for each row of its first argument"
                )
            out[:] = values

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.array([np.asarray(self.function(x, x)).item() for x in X[:, None, :]], np.float64)

    @property
    def savable(self) -> bool:
        return False

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class _Pair(Kernel):
    """Two kernels combined entry by entry."""

    positive: ClassVar[bool] = False  # not known without asking both
    left: Kernel
    right: Kernel

    @property
    def stationary(self) -> bool:
        return self.left.stationary and self.right.stationary

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

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "left": self.left.to_dict(), "right": self.right.to_dict()}


class Sum(_Pair):
    """k(x, y) = left(x, y) + right(x, y)."""

    name = "sum"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return self._combined(Y, most_rows, np.add)

    def diagonal(self, X: Array) -> Array:
        return self.left.diagonal(X) + self.right.diagonal(X)


class Product(_Pair):
    """k(x, y) = left(x, y) · right(x, y)."""

    name = "product"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return self._combined(Y, most_rows, np.multiply)

    def diagonal(self, X: Array) -> Array:
        return self.left.diagonal(X) * self.right.diagonal(X)


@dataclass(frozen=True)
class Scaled(Kernel):
    """k(x, y) = factor · kernel(x, y), factor > 0."""

    name: ClassVar[str] = "scaled"
    positive: ClassVar[bool] = False  # not known without asking the kernel
    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        _require_positive(self, factor=self.factor)

    @property
    def stationary(self) -> bool:
        return self.kernel.stationary

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

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kernel": self.kernel.to_dict(), "factor": self.factor}


_LEAVES: dict[str, type[Kernel]] = {
    kernel.name: kernel for kernel in (Gaussian, Laplacian, Linear, Polynomial, Sigmoid, Cosine)
}
ALIASES = {"rbf": "gaussian", "poly": "polynomial"}


def kernel_class(name: str) -> type[Kernel]:
    """The class of a kernel name ("gaussian", "rbf", ...); SpecError suggests the nearest known name."""
    key = ALIASES.get(name.lower(), name.lower())
    if key not in _LEAVES:
        raise unknown_name("kernel", name, [*_LEAVES, *ALIASES])
    return _LEAVES[key]


def from_dict(values: Mapping[str, Any]) -> Kernel:
    """The kernel that `to_dict` described."""
    fields = {key: value for key, value in values.items() if key != "name"}
    name = values["name"]
    if name == Scaled.name:
        return Scaled(from_dict(fields["kernel"]), fields["factor"])
    for pair in (Sum, Product):
        if name == pair.name:
            return pair(from_dict(fields["left"]), from_dict(fields["right"]))
    return kernel_class(name)(**fields)
