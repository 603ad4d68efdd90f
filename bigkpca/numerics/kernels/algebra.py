"""Sums, products and positive multiples of kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels.base import (
    Evaluate,
    EvaluateWithWeights,
    FrequencyDraws,
    KernelFunction,
    Towards,
    no_gradient,
    require_positive,
)


@dataclass(frozen=True)
class Kernel(KernelFunction):
    """A kernel on rows; `+`, `*` and a positive factor combine kernels.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> kernels.Gaussian(1.0) + 2 * kernels.Linear()
    Sum(left=Gaussian(sigma=1.0), right=Scaled(kernel=Linear(), factor=2.0))
    """

    def __add__(self, other: object) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(self, other) if isinstance(other, Kernel) else Scaled(self, float(other))

    def __rmul__(self, factor: float) -> Kernel:
        return Scaled(self, float(factor))


class Leaf(Kernel):
    """A kernel whose parameters are plain numbers."""

    def to_dict(self) -> dict[str, Any]:
        parameters = asdict(self)  # NumPy's numbers become Python's, which JSON knows
        return {"name": self.name, **{key: np.asarray(value).item() for key, value in parameters.items()}}


class _Combined(Kernel):
    """A kernel of other kernels, with the properties that all of them have."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Kernel, ...]:
        """The kernels that it is made of."""

    @property
    def positive(self) -> bool:
        return all(part.positive for part in self.parts)  # of products by Schur's theorem

    @property
    def stationary(self) -> bool:
        return all(part.stationary for part in self.parts)

    @property
    def radial(self) -> bool:
        return all(part.radial for part in self.parts)

    @property
    def towards(self) -> Towards | None:
        first, *others = [part.towards for part in self.parts]
        return first if all(other == first for other in others) else None

    @property
    def on_vectors(self) -> bool:
        return all(part.on_vectors for part in self.parts)

    @property
    def savable(self) -> bool:
        return all(part.savable for part in self.parts)


@dataclass(frozen=True)
class _Pair(_Combined):
    """Two kernels, combined entry by entry.

    Parameters
    ----------
    left, right : Kernel
        Both kernels.
    """

    left: Kernel
    right: Kernel

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self.left, self.right

    def _combined(self, Y: Array, most_rows: int, combine: np.ufunc) -> Evaluate:
        """Prepare k from the values of both kernels."""
        left, right = self.left.against(Y, most_rows), self.right.against(Y, most_rows)
        work = np.empty((most_rows, len(Y)), Y.dtype)

        def evaluate(X: Array, out: Array) -> None:
            other = work[: len(X)]
            left(X, out)
            right(X, other)
            combine(out, other, out=out)

        return evaluate

    def _combined_weights(
        self, Y: Array, most_rows: int, combine: Callable[[Array, Array, Array, Array], None]
    ) -> EvaluateWithWeights:
        """Prepare k and its gradient weight; `combine` merges (K, weights) of both kernels into the first two."""
        if self.towards is None:
            raise no_gradient(self)
        left, right = self.left.gradient_weights(Y, most_rows), self.right.gradient_weights(Y, most_rows)
        values, others = np.empty((2, most_rows, len(Y)), Y.dtype)

        def evaluate(X: Array, K: Array, weights: Array) -> None:
            left(X, K, weights)
            right(X, values[: len(X)], others[: len(X)])
            combine(K, weights, values[: len(X)], others[: len(X)])

        return evaluate

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "left": self.left.to_dict(), "right": self.right.to_dict()}


class Sum(_Pair):
    """k(x, y) = left(x, y) + right(x, y).

    Parameters
    ----------
    left, right : Kernel
        Both kernels; positive semidefinite where both are.
    """

    name = "sum"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return self._combined(Y, most_rows, np.add)

    def allows_shift(self, center: bool) -> bool:
        return self.left.allows_shift(center) and self.right.allows_shift(center)

    def diagonal(self, X: Array) -> Array:
        return self.left.diagonal(X) + self.right.diagonal(X)

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        def added(K: Array, weights: Array, values: Array, others: Array) -> None:
            K += values
            weights += others

        return self._combined_weights(Y, most_rows, added)

    def own_gradient_weight(self, X: Array) -> Array:
        return self.left.own_gradient_weight(X) + self.right.own_gradient_weight(X)


class Product(_Pair):
    """k(x, y) = left(x, y) · right(x, y).

    Parameters
    ----------
    left, right : Kernel
        Both kernels; positive semidefinite where both are (Schur).
    """

    name = "product"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        return self._combined(Y, most_rows, np.multiply)

    def diagonal(self, X: Array) -> Array:
        return self.left.diagonal(X) * self.right.diagonal(X)

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        def multiplied(K: Array, weights: Array, values: Array, others: Array) -> None:
            weights *= values
            others *= K
            weights += others
            K *= values

        return self._combined_weights(Y, most_rows, multiplied)

    def own_gradient_weight(self, X: Array) -> Array:
        left, right = self.left, self.right
        return left.own_gradient_weight(X) * right.diagonal(X) + left.diagonal(X) * right.own_gradient_weight(X)

    @property
    def spectral(self) -> bool:
        return self.left.spectral and self.right.spectral

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """The sum of independent frequencies of both: the density of a product is the convolution of both densities."""
        if not self.spectral:
            return super().frequencies(draws)
        return self.left.frequencies(draws) + self.right.frequencies(draws)


@dataclass(frozen=True)
class Scaled(_Combined):
    """k(x, y) = factor · kernel(x, y).

    Parameters
    ----------
    kernel : Kernel
        The kernel to scale.
    factor : float
        Positive.

    Raises
    ------
    SpecError
        Where the factor is not positive.
    """

    name: ClassVar[str] = "scaled"
    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        require_positive(self, factor=self.factor)

    def allows_shift(self, center: bool) -> bool:
        return self.kernel.allows_shift(center)

    @property
    def spectral(self) -> bool:
        return self.kernel.spectral

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner = self.kernel.against(Y, most_rows)

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            out *= self.factor

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return self.factor * self.kernel.diagonal(X)

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        inner = self.kernel.gradient_weights(Y, most_rows)

        def evaluate(X: Array, K: Array, weights: Array) -> None:
            inner(X, K, weights)
            K *= self.factor
            weights *= self.factor

        return evaluate

    def own_gradient_weight(self, X: Array) -> Array:
        return self.factor * self.kernel.own_gradient_weight(X)

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """Frequencies of the kernel itself: the factor scales features, not frequencies."""
        return self.kernel.frequencies(draws)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kernel": self.kernel.to_dict(), "factor": self.factor}
