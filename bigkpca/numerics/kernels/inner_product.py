"""Kernels of the inner product <x, y>: linear, polynomial, sigmoid, cosine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels.algebra import Leaf
from bigkpca.numerics.kernels.base import Evaluate, EvaluatePull, Towards, require_positive, squared_norms


@dataclass(frozen=True)
class Linear(Leaf):
    """k(x, y) = <x, y>. Centred, it does not change when all rows are shifted."""

    name: ClassVar[str] = "linear"
    towards: ClassVar[Towards] = "product"

    def allows_shift(self, center: bool) -> bool:
        return center

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        right = np.ascontiguousarray(Y.T)

        def evaluate(X: Array, out: Array) -> None:
            np.matmul(X, right, out=out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        inner = self.against(Y, most_rows)

        def evaluate(X: Array, K: Array, pulls: Array) -> None:
            inner(X, K)
            pulls[:] = 1

        return evaluate

    def own_pull(self, X: Array) -> Array:
        return np.ones(len(X))


@dataclass(frozen=True)
class Polynomial(Leaf):
    """k(x, y) = (gamma <x, y> + coef0)^degree, with degree a positive integer and coef0 >= 0."""

    name: ClassVar[str] = "polynomial"
    towards: ClassVar[Towards] = "product"
    gamma: float
    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, gamma=self.gamma)
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

    def pulling(self, Y: Array, most_rows: int) -> EvaluatePull:
        """p(x, y) = degree · gamma · (gamma <x, y> + coef0)^(degree - 1)."""
        inner = Linear().against(Y, most_rows)
        base = np.empty((most_rows, len(Y)), Y.dtype)

        def evaluate(X: Array, K: Array, pulls: Array) -> None:
            factor = base[: len(X)]
            inner(X, factor)
            factor *= self.gamma
            factor += self.coef0
            pulls[:] = 1
            for _ in range(int(self.degree) - 1):
                pulls *= factor
            np.multiply(pulls, factor, out=K)
            pulls *= self.degree * self.gamma

        return evaluate

    def own_pull(self, X: Array) -> Array:
        base = self.gamma * Linear().diagonal(X) + self.coef0
        return np.asarray(self.degree * self.gamma * base ** (int(self.degree) - 1))


@dataclass(frozen=True)
class Sigmoid(Leaf):
    """k(x, y) = tanh(gamma <x, y> + coef0). Indefinite: components of negative eigenvalues are dropped."""

    name: ClassVar[str] = "sigmoid"
    gamma: float
    coef0: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, gamma=self.gamma)
        if not np.isfinite(self.coef0):
            raise SpecError(f"Sigmoid: coef0 must be finite, not {self.coef0}")

    @property
    def positive(self) -> bool:
        return False

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
class Cosine(Leaf):
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
