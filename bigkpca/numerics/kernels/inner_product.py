"""Kernels of the inner product <x, y>: linear, polynomial, sigmoid, cosine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.array_api import contiguous, empty, functions_of, inner_products, on_host
from bigkpca.numerics.kernels.base import (
    Evaluate,
    EvaluateWithWeights,
    SimpleKernel,
    Towards,
    require_positive,
    squared_norms,
)

_LARGEST_DEGREE = 10_000  # one product per degree


class InnerProduct(SimpleKernel):
    """A kernel of <x, y>, or of it and the lengths of both rows."""

    on_devices = True
    isotropic = True


@dataclass(frozen=True)
class Linear(InnerProduct):
    """k(x, y) = <x, y>: kernel PCA is then PCA."""

    name: ClassVar[str] = "linear"
    towards: ClassVar[Towards] = "product"

    def allows_shift(self, center: bool) -> bool:
        return center

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        xp = functions_of(Y)
        right = contiguous(Y.T)

        def evaluate(X: Array, out: Array) -> None:
            xp.matmul(X, right, out=out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return on_host(inner_products(X, X, np.float64))

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        return Polynomial(1.0, 1, 0.0).gradient_weights(Y, most_rows)

    def own_gradient_weight(self, X: Array) -> Array:
        return np.ones(len(X))


@dataclass(frozen=True)
class Polynomial(InnerProduct):
    """k(x, y) = (gamma <x, y> + coef0)^degree.

    Raises SpecError if a parameter is out of range.

    Parameters
    ----------
    gamma : float
        Positive, in one over the squared units of the columns.
    degree : int
        At least 1, at most 10,000.
    coef0 : float
        Not negative, so that the kernel is positive semidefinite.
    """

    name: ClassVar[str] = "polynomial"
    towards: ClassVar[Towards] = "product"
    gamma: float
    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, gamma=self.gamma)
        if not (1 <= self.degree <= _LARGEST_DEGREE and self.degree == int(self.degree)):
            raise SpecError(
                f"Polynomial: degree must be a whole number from 1 to {_LARGEST_DEGREE:,}, not {self.degree}"
            )
        if not (np.isfinite(self.coef0) and self.coef0 >= 0):
            raise SpecError(f"Polynomial: coef0 must not be negative (the kernel would be indefinite): {self.coef0}")

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner = Linear().against(Y, most_rows)
        base = empty((most_rows, Y.shape[0]), Y)

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            out *= float(self.gamma)
            out += float(self.coef0)
            factor = base[: X.shape[0], :]
            factor[:, :] = out
            for _ in range(int(self.degree) - 1):  # np.power is many times slower than a few products
                out *= factor

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return (self.gamma * Linear().diagonal(X) + self.coef0) ** int(self.degree)

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Prepare k and its gradient weight degree · gamma · (gamma <x, y> + coef0)^(degree - 1)."""
        inner = Linear().against(Y, most_rows)
        base = np.empty((most_rows, len(Y)), Y.dtype)

        def evaluate(X: Array, K: Array, weights: Array) -> None:
            factor = base[: len(X)]
            inner(X, factor)
            factor *= self.gamma
            factor += self.coef0
            weights[:] = 1
            for _ in range(int(self.degree) - 1):
                weights *= factor
            np.multiply(weights, factor, out=K)
            weights *= self.degree * self.gamma

        return evaluate

    def own_gradient_weight(self, X: Array) -> Array:
        base = self.gamma * Linear().diagonal(X) + self.coef0
        return np.asarray(self.degree * self.gamma * base ** (int(self.degree) - 1))


@dataclass(frozen=True)
class Sigmoid(InnerProduct):
    """k(x, y) = tanh(gamma <x, y> + coef0), which is not positive semidefinite.

    Components with negative eigenvalues are dropped, with a warning (`docs/numerics.md`, section 7). Raises SpecError
    if a parameter is out of range.

    Parameters
    ----------
    gamma : float
        Positive, in one over the squared units of the columns.
    coef0 : float
        Any finite number.
    """

    name: ClassVar[str] = "sigmoid"
    positive = False
    gamma: float
    coef0: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, gamma=self.gamma)
        if not np.isfinite(self.coef0):
            raise SpecError(f"Sigmoid: coef0 must be finite, not {self.coef0}")

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        xp, inner = functions_of(Y), Linear().against(Y, most_rows)

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            out *= float(self.gamma)
            out += float(self.coef0)
            xp.tanh(out, out=out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.asarray(np.tanh(self.gamma * Linear().diagonal(X) + self.coef0))


@dataclass(frozen=True)
class Cosine(InnerProduct):
    """k(x, y) = <x, y> / (|x| |y|); a zero row has kernel 0 with every row, including itself."""

    name: ClassVar[str] = "cosine"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner = Linear().against(_unit_rows(Y, empty(Y.shape, Y)), most_rows)
        work = empty((most_rows, Y.shape[1]), Y)

        def evaluate(X: Array, out: Array) -> None:
            inner(_unit_rows(X, work[: X.shape[0], :]), out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return on_host(functions_of(X).any(X != 0, axis=1)).astype(np.float64)


def _unit_rows(X: Array, out: Array) -> Array:
    """Write the rows of X (b, d), scaled to unit length, to out; zero rows stay zero."""
    # Division by the largest entry comes first, since squares of tiny and huge rows would underflow or overflow.
    xp = functions_of(X)
    largest = xp.max(xp.abs(X), axis=1, keepdims=True)
    xp.divide(X, xp.where(largest > 0, largest, 1.0), out=out)
    norms = xp.sqrt(squared_norms(out))
    out /= xp.where(norms > 0, norms, 1.0)[:, None]
    return out
