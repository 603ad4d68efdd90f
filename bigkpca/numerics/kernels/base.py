"""The interface of kernels: k(x, y) on rows, its diagonal, its gradient and its spectral density.

Each kernel implements k once, for a tile of rows against a fixed set of rows (`against`), which is how every pass over
the data uses it. Calling the kernel, and Gram matrices, are built on that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.linalg import Map

Evaluate = Callable[[Array, Array], None]  # (X (b, d), out (b, l)) -> None; out[i, j] = k(x_i, y_j)
# (X, K (b, l), weights (b, l)) -> None; k and its gradient weight
EvaluateWithWeights = Callable[[Array, Array, Array], None]
_GRAM_ROWS = 512
Distance = Literal["sqeuclidean", "cityblock"]
Towards = Literal["difference", "product"]


class FrequencyDraws(Protocol):
    """m random points from which a kernel makes its frequencies; every call returns new, independent numbers."""

    def normals(self) -> Array:
        """m vectors, each standard normal in R^d, (m, d)."""

    def uniforms(self) -> Array:
        """m numbers, each uniform in (0, 1), (m,)."""


@dataclass(frozen=True)
class KernelFunction(ABC):
    """A symmetric function k(x, y) of two rows.

    Subclasses are frozen dataclasses, whose fields are the parameters of the kernel.

    Attributes
    ----------
    name : str
        What options and files call the kernel.
    distance : {"sqeuclidean", "cityblock"} or None
        The distance whose scale is the length sigma; None where the kernel has no length.
    """

    name: ClassVar[str]
    distance: ClassVar[Distance | None] = None

    @property
    def positive(self) -> bool:
        """Whether k is known to be positive semidefinite on every set of rows."""
        return True

    @property
    def stationary(self) -> bool:
        """Whether k depends on x - y alone."""
        return self.distance is not None

    def allows_shift(self, center: bool) -> bool:
        """Whether a shift of all rows changes nothing: of k itself or, with `center`, of the centred Gram matrix."""
        return self.stationary

    @property
    def spectral(self) -> bool:
        """Whether `frequencies` can draw from a spectral density."""
        return False

    @property
    def radial(self) -> bool:
        """Whether k is a decreasing function of |x - y|, so that its values determine distances."""
        return self.distance == "sqeuclidean"

    @property
    def towards(self) -> Towards | None:
        """The form of the gradient of k(z, y) in z, by its gradient weight p(z, y); None where the weight is not known.

        "difference": p(z, y) (y - z), and k(z, z) is constant. "product": p(z, y) y, and k(z, z) is not constant.
        """
        return None

    @property
    def on_vectors(self) -> bool:
        """Whether averages of rows are meaningful rows, as k-means centres need."""
        return True

    @property
    def savable(self) -> bool:
        """Whether `to_dict` describes the kernel completely, so that a file can hold it."""
        return True

    @abstractmethod
    def against(self, Y: Array, most_rows: int) -> Evaluate:
        """Prepare k(., Y) for tiles of at most `most_rows` rows.

        Parameters
        ----------
        Y : (l, d) array
            The fixed rows; their dtype is that of the evaluation.
        most_rows : int
            The largest number of rows in a tile.

        Returns
        -------
        function
            (X (b, d), out (b, l)) -> None, which writes k(x_i, y_j) to out. It owns its work space: make one for each
            thread.
        """

    @abstractmethod
    def diagonal(self, X: Array) -> Array:
        """k(x_i, x_i) of rows X (b, d), (b,), float64."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The kernel as JSON-ready values, which `kernels.from_dict` reads."""

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Prepare k(., Y) and its gradient weight p(., Y) for tiles of at most `most_rows` rows, like `against`.

        Raises SpecError for a kernel without one. Source: `docs/numerics.md`, section 18.
        """
        raise no_gradient(self)

    def own_gradient_weight(self, X: Array) -> Array:
        """The gradient weight p(x_i, x_i), (b,), float64. Raises SpecError for a kernel without one."""
        raise no_gradient(self)

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """Draw frequencies w from the spectral density: k(x, y) / k(0, 0) = E cos(w'(x - y)).

        Parameters
        ----------
        draws : FrequencyDraws
            m random points.

        Returns
        -------
        (m, d) array
            One frequency in each row.

        Raises
        ------
        SpecError
            For a kernel without a spectral density.

        References
        ----------
        Rahimi and Recht (2007), *NIPS*; `docs/numerics.md`, section 9.
        """
        raise no_spectrum(self)

    def __call__(self, X: Array, Y: Array) -> Array:
        """The matrix k(x_i, y_j), (b, l), of rows X (b, d) and Y (l, d), in their common dtype, at least float32."""
        dtype = np.result_type(X.dtype, Y.dtype, np.float32)
        out = np.empty((len(X), len(Y)), dtype)
        self.against(Y.astype(dtype, copy=False), len(X))(X.astype(dtype, copy=False), out)
        return out

    def gram(self, X: Array, in_order: Map = map) -> Array:
        """k(X, X) in float64, (b, b): exactly symmetric, with the exact diagonal.

        By tiles of one triangle, which `in_order` may run in parallel: the same bits for any number of threads.
        """
        rows = X.astype(np.float64, copy=False)
        K = np.empty((len(rows), len(rows)))

        def columns(start: int) -> Array:
            own = slice(start, min(start + _GRAM_ROWS, len(rows)))
            evaluate, tile = self.against(rows[own], _GRAM_ROWS), np.empty((_GRAM_ROWS, own.stop - start))
            for first in range(0, start + 1, _GRAM_ROWS):
                others = slice(first, min(first + _GRAM_ROWS, own.stop))
                values = tile[: others.stop - first]
                evaluate(rows[others], values)
                if first == start:  # elementwise mean of both triangles, in which rounding differs
                    values += values.T.copy()
                    values *= 0.5
                K[others, own] = values
                K[own, others] = values.T
            return K[:, own]

        for _ in in_order(columns, range(0, len(rows), _GRAM_ROWS)[::-1]):  # the longest first
            pass
        np.fill_diagonal(K, self.diagonal(rows))
        return K


def no_spectrum(kernel: KernelFunction) -> SpecError:
    """The error for a kernel without a spectral density; it names the methods that work."""
    return SpecError(
        f"the {kernel.name} kernel has no spectral density to draw random features from: gaussian, laplacian, matern, "
        "rational-quadratic, their products and multiples have one, polynomial kernels of degree 2 or more have a "
        "tensor sketch; method='nystroem' works with every kernel, 'columns' and 'exact' too"
    )


def no_gradient(kernel: KernelFunction) -> SpecError:
    """The error for a kernel without a gradient weight; it names the pre-image methods that work."""
    distances = "'mds', " if kernel.radial else ""
    return SpecError(
        f"pre-images of the {kernel.name} kernel have no fixed point: use {distances}'ridge', 'denoising' or 'linear'; "
        "gaussian, rational-quadratic, matern with nu > 1, polynomial and linear kernels have one, and sums, products "
        "and multiples of kernels of one kind"
    )


def require_positive(kernel: KernelFunction, **values: float) -> None:
    """Raise SpecError unless every value is a positive finite number."""
    for key, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise SpecError(f"{type(kernel).__name__}: {key} must be a positive number, not {value}")


def cached_pieces(rows: int) -> Iterator[slice]:
    """Slices of 64 rows, which stay in cache from one elementwise step to the next: this saves 6 % of a pass."""
    return (slice(start, start + 64) for start in range(0, rows, 64))


def squared_norms(X: Array) -> Array:
    """|x_i|² of the rows of X (b, d), (b,), in the dtype of X.

    Examples
    --------
    >>> squared_norms(np.array([[3.0, 4.0]]))
    array([25.])
    """
    return np.einsum("ij,ij->i", X, X)
