"""The interface of kernels: k(x, y) on rows, its diagonal, its gradient and its spectral density.

Each kernel implements k once, for a tile of rows against a fixed set of rows (`against`), which is how every pass over
the data uses it. Calling the kernel, and Gram matrices, are built on that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.array_api import Distance, dtype_of, functions_of, in_numpy, inner_products, moved, on_host
from bigkpca.numerics.array_api import empty as empty_array
from bigkpca.numerics.linalg import in_parts
from bigkpca.numerics.registry import named_fields

Evaluate = Callable[[Array, Array], None]  # (X (b, d), out (b, l)) -> None; out[i, j] = k(x_i, y_j)
# (X, K (b, l), weights (b, l)) -> None; k and its gradient weight
EvaluateWithWeights = Callable[[Array, Array, Array], None]
_GRAM_ROWS = 512
Towards = Literal["difference", "product"]
Coupling = Literal["iid", "orthogonal"]


@dataclass(frozen=True)
class FrequencyDraws:
    """`count` random points in R^d from which a kernel derives its frequencies; every call returns new numbers.

    Normal vectors are independent or come in blocks of d orthogonal ones, each uniform on the sphere, with chi(d)
    lengths (Yu et al. 2016). These lengths make every vector standard normal, so features are unbiased; lengths √d
    would bias them.
    """

    coupling: Coupling
    count: int
    d: int
    rng: np.random.Generator

    def normals(self) -> Array:
        """Standard normal vectors, (count, d)."""
        if self.coupling == "iid":
            return self.rng.standard_normal((self.count, self.d))
        blocks = []
        for start in range(0, self.count, self.d):
            normals = self.rng.standard_normal((self.d, min(self.d, self.count - start)))
            Q, R = scipy.linalg.qr(normals, mode="economic", check_finite=False)
            blocks.append((Q * np.sign(np.diag(R))).T)  # the signs undo LAPACK's choice, which is not uniform
        lengths = np.sqrt(self.rng.chisquare(self.d, self.count))
        return np.concatenate(blocks) * lengths[:, None]

    def uniforms(self) -> Array:
        """Uniform numbers in (0, 1), (count,)."""
        return self.rng.random(self.count)


@dataclass(frozen=True)
class Kernel(ABC):
    """A symmetric function k(x, y) of two rows; `+`, `*` and a positive factor combine kernels.

    Subclasses are frozen dataclasses whose fields are the parameters of the kernel.

    Attributes
    ----------
    name : str
        The name of the kernel in options and files.
    distance : {"sqeuclidean", "cityblock"} or None
        The distance whose scale is the length sigma; None if the kernel has no length.
    """

    name: ClassVar[str]
    distance: ClassVar[Distance | None] = None
    savable: ClassVar[bool] = True  # whether `to_dict` describes the kernel completely, so that a file can store it

    def __add__(self, other: object) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(self, other) if isinstance(other, Kernel) else Scaled(self, float(other))

    def __rmul__(self, factor: float) -> Kernel:
        return Scaled(self, float(factor))

    @property
    def positive(self) -> bool:
        """Whether k is known to be positive semidefinite on every set of rows."""
        return True

    @property
    def on_vectors(self) -> bool:
        """Whether averages of rows are meaningful rows, as k-means centres require."""
        return True

    @property
    def on_devices(self) -> bool:
        """Whether `against` and `diagonal` compute with arrays of every library, by `array_api.functions_of`. Others
        get NumPy arrays, and their results are copied to the device."""
        return False

    @property
    def towards(self) -> Towards | None:
        """The form of the gradient of k(z, y) in z, given its gradient weight p(z, y): "difference" is p(z, y) (y - z),
        and k(z, z) is constant; "product" is p(z, y) y, and k(z, z) is not constant. None if the weight is not
        known."""
        return None

    @property
    def stationary(self) -> bool:
        """Whether k depends only on x - y."""
        return self.distance is not None

    def allows_shift(self, center: bool) -> bool:
        """Whether a shift of all rows does not change k or, with `center`, the centred Gram matrix."""
        return self.stationary

    @property
    def spectral(self) -> bool:
        """Whether `frequencies` can draw from a spectral density: by default, whether the class defines it."""
        return type(self).frequencies is not Kernel.frequencies

    @property
    def radial(self) -> bool:
        """Whether k is a decreasing function of |x - y|, so that its values determine distances."""
        return self.distance == "sqeuclidean"

    @property
    def isotropic(self) -> bool:
        """Whether k(x, y) depends only on |x|, |y| and <x, y>, so that no rotation of all rows changes it."""
        return self.radial

    @abstractmethod
    def against(self, Y: Array, most_rows: int) -> Evaluate:
        """Prepare k(., Y) of fixed rows Y (l, d), in whose dtype it computes, for tiles of at most `most_rows` rows.

        The returned function (X (b, d), out (b, l)) -> None writes k(x_i, y_j) to out. It owns its work space: make one
        for each thread.
        """

    @abstractmethod
    def diagonal(self, X: Array) -> Array:
        """k(x_i, x_i) of rows X (b, d), (b,), float64, in host memory."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The kernel as JSON-ready values, which `kernels.from_dict` reads."""

    def against_anywhere(self, Y: Array, most_rows: int) -> Evaluate:
        """Like `against`, for arrays of any library: a kernel that only computes with NumPy gets copies of them."""
        if in_numpy(Y) or self.on_devices:
            return self.against(Y, most_rows)
        evaluate = self.against(on_host(Y), most_rows)

        def evaluate_copies(X: Any, out: Any) -> None:
            found = np.empty(out.shape, dtype_of(out))
            evaluate(on_host(X), found)
            out[...] = moved(found, out)

        return evaluate_copies

    def diagonal_anywhere(self, X: Array) -> Array:
        """Like `diagonal`, for rows X (b, d) of any library."""
        return self.diagonal(X if self.on_devices else on_host(X))

    def gradient_weights(self, Y: Array, most_rows: int) -> EvaluateWithWeights:
        """Like `against`, for k and its gradient weight p(., Y), of a kernel with `towards`.

        Source: `docs/numerics.md`, section 18.
        """
        raise no_gradient(self)

    def own_gradient_weight(self, X: Array) -> Array:
        """The gradient weight p(x_i, x_i), (b,), float64, of a kernel with `towards`."""
        raise no_gradient(self)

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """Draw frequencies w, (m, d), from the spectral density: k(x, y) / k(0, 0) = E cos(w'(x - y)).

        Raises SpecError for a kernel without one. Source: Rahimi and Recht (2007), *NIPS*; `docs/numerics.md`, section
        9.
        """
        raise no_spectrum(self)

    def __call__(self, X: Array, Y: Array) -> Array:
        """The matrix k(x_i, y_j), (b, l), of rows X (b, d) and Y (l, d), in their common dtype, at least float32."""
        dtype = np.result_type(X.dtype, Y.dtype, np.float32)
        out = np.empty((len(X), len(Y)), dtype)
        self.against(Y.astype(dtype, copy=False), len(X))(X.astype(dtype, copy=False), out)
        return out

    def gram(self, X: Array) -> Array:
        """k(X, X) in float64, (b, b): exactly symmetric, with the exact diagonal, and the same bits for any number of
        processors, since they share tiles of one triangle."""
        rows = X.astype(np.float64, copy=False)
        K = np.empty((len(rows), len(rows)))

        def columns(start: int) -> Array:
            own = slice(start, min(start + _GRAM_ROWS, len(rows)))
            evaluate, tile = self.against(rows[own], _GRAM_ROWS), np.empty((_GRAM_ROWS, own.stop - start))
            for first in range(0, start + 1, _GRAM_ROWS):
                others = slice(first, min(first + _GRAM_ROWS, own.stop))
                values = tile[: others.stop - first]
                evaluate(rows[others], values)
                if first == start:  # elementwise mean of both triangles, whose rounding differs
                    values += values.T.copy()
                    values *= 0.5
                K[others, own] = values
                K[own, others] = values.T
            return K[:, own]

        in_parts(columns, range(0, len(rows), _GRAM_ROWS)[::-1])  # the longest first
        np.fill_diagonal(K, self.diagonal(rows))
        return K


def no_spectrum(kernel: Kernel) -> SpecError:
    """The error for a kernel without a spectral density, with the methods that work."""
    return SpecError(
        f"the {kernel.name} kernel has no spectral density to draw random features from: gaussian, laplacian, matern "
        "and rational-quadratic kernels, and their products and multiples, have one, and polynomial kernels of degree "
        "2 or more have a tensor sketch; method='nystroem', 'columns' and 'exact' work with every kernel"
    )


def no_gradient(kernel: Kernel) -> SpecError:
    """The error for a kernel without a gradient weight, with the pre-image methods that work."""
    distances = "'mds', " if kernel.radial else ""
    return SpecError(
        f"pre-images of the {kernel.name} kernel have no fixed point: use {distances}'ridge' or 'denoising'; gaussian, "
        "matern (with nu > 1), rational-quadratic, linear and polynomial kernels have one"
    )


def require_positive(kernel: Kernel, **values: float) -> None:
    """Raise SpecError unless every value is a positive finite number."""
    for key, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise SpecError(f"{type(kernel).__name__}: {key} must be a positive number, not {value}")


def cached_pieces(X: Array) -> Iterator[slice]:
    """Slices of 64 rows of a NumPy array, which stay in cache from one elementwise step to the next; this saves 6 %
    of a pass. All rows of an array on a device, where each step is a call."""
    rows = X.shape[0]
    step = 64 if in_numpy(X) else max(rows, 1)
    return (slice(start, start + step) for start in range(0, rows, step))


def squared_norms(X: Array) -> Array:
    """|x_i|² of the rows of X (b, d), (b,), in the dtype of X."""
    return inner_products(X, X)


class SimpleKernel(Kernel):
    """A kernel whose parameters are plain numbers."""

    to_dict = named_fields


def _of_all_parts(name: str) -> Any:
    """A property that a combined kernel has if all of its parts have it."""
    return property(lambda combined: all(getattr(part, name) for part in combined.parts))


class _Combined(Kernel):
    """A kernel made from other kernels."""

    positive = _of_all_parts("positive")  # for products by Schur's theorem
    stationary = _of_all_parts("stationary")
    spectral = _of_all_parts("spectral")
    radial = _of_all_parts("radial")
    isotropic = _of_all_parts("isotropic")
    on_vectors = _of_all_parts("on_vectors")
    on_devices = _of_all_parts("on_devices")
    savable = _of_all_parts("savable")

    @property
    def parts(self) -> list[Kernel]:
        """The kernels from which it is made."""
        return [value for value in vars(self).values() if isinstance(value, Kernel)]

    def allows_shift(self, center: bool) -> bool:
        return all(part.allows_shift(center) for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        values = {key: value.to_dict() if isinstance(value, Kernel) else value for key, value in vars(self).items()}
        return {"name": self.name, **values}


@dataclass(frozen=True)
class _Pair(_Combined):
    """Two kernels, combined entry by entry."""

    combine: ClassVar[str]  # the function of two kernel values
    left: Kernel
    right: Kernel

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        left, right = self.left.against(Y, most_rows), self.right.against(Y, most_rows)
        work = empty_array((most_rows, Y.shape[0]), Y)
        combine = getattr(functions_of(Y), self.combine)

        def evaluate(X: Array, out: Array) -> None:
            other = work[: X.shape[0], :]
            left(X, out)
            right(X, other)
            combine(out, other, out=out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.asarray(getattr(np, self.combine)(self.left.diagonal(X), self.right.diagonal(X)))


class Sum(_Pair):
    """k(x, y) = left(x, y) + right(x, y), positive semidefinite if both kernels are."""

    name = "sum"
    combine = "add"
    spectral = False


class Product(_Pair):
    """k(x, y) = left(x, y) · right(x, y), positive semidefinite if both kernels are (Schur)."""

    name = "product"
    combine = "multiply"

    def allows_shift(self, center: bool) -> bool:
        return self.stationary

    def frequencies(self, draws: FrequencyDraws) -> Array:
        """The sum of frequencies of both, since the density of a product is the convolution of both densities."""
        return self.left.frequencies(draws) + self.right.frequencies(draws)


@dataclass(frozen=True)
class Scaled(_Combined):
    """k(x, y) = factor · kernel(x, y). Raises SpecError if the factor is not positive."""

    name: ClassVar[str] = "scaled"
    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        require_positive(self, factor=self.factor)

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner = self.kernel.against(Y, most_rows)

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            out *= float(self.factor)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return self.factor * self.kernel.diagonal(X)

    def frequencies(self, draws: FrequencyDraws) -> Array:
        return self.kernel.frequencies(draws)


@dataclass(frozen=True)
class Function(Kernel):
    """A kernel defined by a function of two sets of rows.

    The solver warns if eigenvalues turn out to be negative. A model with such a kernel cannot be saved.

    Parameters
    ----------
    function : callable
        (X (b, d), Y (l, d)) -> (b, l) array of k(x_i, y_j). On a cluster it must be importable on the workers.
    vectors : bool
        Whether averages of rows are meaningful rows, as k-means centres require; False for codes of letters or
        categories.
    psd : bool
        Whether the kernel is positive semidefinite. Otherwise nothing is proven about errors.
    """

    name: ClassVar[str] = "function"
    savable = False
    function: Callable[[Array, Array], Array]
    vectors: bool = False
    psd: bool = False

    @property
    def positive(self) -> bool:
        return self.psd

    @property
    def on_vectors(self) -> bool:
        return self.vectors

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

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class Precomputed(SimpleKernel):
    """k(x_i, x_j) = K_ij of a given matrix K, whose rows are the rows of the data.

    The kernel has no formula. It is not assumed to be positive semidefinite; the solver warns if it is not.
    """

    name: ClassVar[str] = "precomputed"
    positive = False
    on_vectors = False

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        raise SpecError(
            "a precomputed kernel has no formula to evaluate or to combine with others: its matrix is the data, which "
            "method='exact' reads; add and scale the matrices themselves"
        )

    def diagonal(self, X: Array) -> Array:
        """NaN, since a row of K does not show which of its entries is k(x, x)."""
        return np.full(len(X), np.nan)
