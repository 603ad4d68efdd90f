"""Feature maps v(x): what a row becomes before anything is added up.

A map turns tiles of rows into tiles of features. It prepares its work space once for a stream of tiles and
reuses it, so that a pass allocates nothing per tile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.fft
from scipy.sparse import csr_array

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import brief
from bigkpca.numerics.kernels import Gaussian, Kernel, Polynomial, squared_norms

Fill = Callable[[Array, Array], None]  # (X (b, d), V (b, D)) -> None; writes v(x_i) into row i of V


def shifted_rows(X: Array, offset: Array, scale: Array | None, out: Array) -> None:
    """out = (X - offset) / scale, subtracted in the precision of X before it is rounded to the dtype of out.

    Data far from the origin (longitudes, time stamps) would otherwise lose their variation to rounding.
    """
    precision = np.result_type(X.dtype, out.dtype)
    if scale is None:
        np.subtract(X, offset.astype(precision), out=out, dtype=precision, casting="same_kind")
    else:
        # Divided before it is rounded too: columns in tiny or huge units are as good as any.
        np.divide(np.subtract(X, offset.astype(precision), dtype=precision), scale, out=out, casting="same_kind")


@dataclass(frozen=True)
class FeatureMap(ABC):
    """v(x) in R^D of rows x in R^d. Every row first becomes (x - offset) / scale.

    offset (d,) and scale (d,), float64, are zero and None where nothing asks for them: an offset is what
    kernels of x - y allow, both are what standardisation is.
    """

    name: ClassVar[str]
    kernel: Kernel
    offset: Array
    scale: Array | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def size(self) -> int:
        """D, the length of v(x)."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The dtype of block work."""

    @abstractmethod
    def filling(self, most_rows: int) -> Fill:
        """Prepare v for tiles of at most `most_rows` shifted rows; the returned function owns its work space."""

    @property
    def columns(self) -> int:
        """d, the number of input columns."""
        return len(self.offset)

    def as_columns(self) -> Columns:
        """The rows themselves, shifted and scaled as for this map, with its kernel."""
        return Columns(self.kernel, self.offset, self.dtype, scale=self.scale)

    def half(self) -> tuple[FeatureMap, Array] | None:
        """A map of every other of the features, up to their scale, and their numbers; None where they do not part."""
        return None

    def shifted(self, X: Array) -> Array:
        """(X - offset) / scale in the dtype of block work, (b, d)."""
        out = np.empty(X.shape, self.dtype)
        shifted_rows(X, self.offset, self.scale, out)
        return out

    def in_precision(self, dtype: np.dtype[Any]) -> Self:
        """The same map with block work in that dtype: landmarks or frequencies are rounded to it, or exact in it."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name not in ("offset", "scale")}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        real: dict[str, Any] = {name: value.astype(dtype) for name, value in arrays.items() if value.dtype.kind == "f"}
        return replace(self, **real)

    def tiles(self, X_tiles: Iterable[Array], most_rows: int) -> Iterator[tuple[Array, Array]]:
        """For each tile X (b, d): (V (b, D), k(x_i, x_i) (b,)).

        V lives in a work space that the next tile overwrites; the caller may overwrite it too.
        """
        fill = self.filling(most_rows)
        rows = np.empty((most_rows, self.columns), self.dtype)
        values = np.empty((most_rows, self.size), self.dtype)
        for X in X_tiles:
            tile, V = rows[: len(X)], values[: len(X)]
            shifted_rows(X, self.offset, self.scale, tile)
            fill(tile, V)
            yield V, self.kernel.diagonal(tile)

    def arrays(self) -> dict[str, Array]:
        """The arrays that a file must hold."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def parameters(self) -> dict[str, Any]:
        """The numbers that a file must hold besides, JSON-ready, the name among them."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "kernel"}
        plain = {name: value for name, value in values.items() if not isinstance(value, np.ndarray | None)}
        return {"name": self.name, **plain}


@dataclass(frozen=True)
class KernelRows(FeatureMap):
    """v(x) = (k(x, s_1), ..., k(x, s_l)) for landmarks S.

    landmarks (l, d) are stored as rows are compared with them: shifted, scaled, in the dtype of block work.
    """

    name: ClassVar[str] = "kernel-rows"
    landmarks: Array

    __repr__ = brief

    @property
    def size(self) -> int:
        return len(self.landmarks)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.landmarks.dtype

    def filling(self, most_rows: int) -> Fill:
        return self.kernel.against(self.landmarks, most_rows)

    def half(self) -> tuple[KernelRows, Array]:
        return replace(self, landmarks=self.landmarks[::2]), np.arange(0, self.size, 2)

    def gram(self) -> Array:
        """W = k(S, S) in float64, from the landmarks as they are stored, (l, l), exactly symmetric."""
        return self.kernel.gram(self.landmarks)

    def landmarks_in_user_units(self) -> Array:
        """The landmarks as rows like those of the data, (l, d), float64."""
        S = self.landmarks.astype(np.float64)
        return (S if self.scale is None else S * self.scale) + self.offset


class _Itself(FeatureMap):
    """v(x) = x itself, shifted and scaled."""

    @property
    def size(self) -> int:
        return self.columns

    def filling(self, most_rows: int) -> Fill:
        def fill(X: Array, V: Array) -> None:
            V[:] = X

        return fill


@dataclass(frozen=True)
class Columns(_Itself):
    """v(x) = x itself, shifted and scaled: its moments are the means and the covariance of the columns."""

    name: ClassVar[str] = "columns"
    block_dtype: np.dtype[Any]

    __repr__ = brief

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.block_dtype


@dataclass(frozen=True)
class GivenKernels(_Itself):
    """v(x) = (k(x, x_1), ..., k(x, x_n)), kernels with the n fitted rows, which come as the row itself."""

    name: ClassVar[str] = "given-kernels"
    precision: str  # of block work: float32 or float64

    __repr__ = brief

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.precision)

    def gram(self) -> Array:
        """Raises SpecError: no model keeps the matrix."""
        raise SpecError(
            "the model of a precomputed kernel keeps neither its rows nor their matrix, which this needs; its "
            "certificate has the residual of every component"
        )


def _trigonometric(angles: Array, phases: Array | None, amplitude: Any, V: Array) -> None:
    """V = amplitude · (cos(angles), sin(angles)) side by side, or amplitude · sqrt(2) · cos(angles + phases)."""
    m = angles.shape[1]
    if phases is None:
        np.cos(angles, out=V[:, :m])
        np.sin(angles, out=V[:, m:])
        V *= amplitude
    else:
        angles += phases
        np.cos(angles, out=V)
        V *= amplitude * V.dtype.type(np.sqrt(2))


class _Waves(FeatureMap):
    """Cosines and sines of m frequencies, cosines first; or cosines alone, with phases."""

    frequencies: Array
    phases: Array | None

    @property
    def size(self) -> int:
        return len(self.frequencies) * (2 if self.phases is None else 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.frequencies.dtype

    def half(self) -> tuple[Self, Array]:
        phases = None if self.phases is None else self.phases[::2]
        cosines = np.arange(0, len(self.frequencies), 2)
        numbers = cosines if self.phases is not None else np.concatenate([cosines, len(self.frequencies) + cosines])
        changed: dict[str, Any] = {"frequencies": self.frequencies[::2], "phases": phases}
        return replace(self, **changed), numbers


@dataclass(frozen=True)
class FourierRows(_Waves):
    """Random Fourier features z(x), with E z(x)'z(y) = k(x, y).

        pairs: z(x) = sqrt(k(0) / m) (cos w_1'x, ..., cos w_m'x, sin w_1'x, ..., sin w_m'x),   D = 2m,
        phase: z(x) = sqrt(2 k(0) / m) (cos(w_j'x + b_j))_j,                                   D = m.

    frequencies (m, d) are draws from the spectral density of the kernel; phases b (m,) uniform on [0, 2π), or None
    for pairs, whose diagonal is exact and whose variance is lower (Sutherland and Schneider 2015).
    """

    name: ClassVar[str] = "fourier"
    frequencies: Array
    phases: Array | None = None

    __repr__ = brief

    def filling(self, most_rows: int) -> Fill:
        m = len(self.frequencies)
        right = np.ascontiguousarray(self.frequencies.T)
        angles = np.empty((most_rows, m), self.dtype)
        at_zero = self.kernel.diagonal(np.zeros((1, self.columns)))[0]
        amplitude = self.dtype.type(np.sqrt(at_zero / m))

        def fill(X: Array, V: Array) -> None:
            np.matmul(X, right, out=angles[: len(X)])
            _trigonometric(angles[: len(X)], self.phases, amplitude, V)

        return fill


@dataclass(frozen=True)
class PrincipalFourierRows(_Waves):
    """RFF-PCA: Fourier features of the projection p = axes'x on the d* leading principal axes of the rows,

        v(x) = a(x) z(p),   a(x) = exp(-rho^2 / (2 sigma^2)),   rho^2 = |x|^2 - |p|^2,

    for the Gaussian kernel, whose exact factorisation is k(x, y) = a(x) a(y) k(p_x, p_y) exp(<r_x, r_y> / sigma^2) with
    r the residuals; the last factor has mean about 1. `factor` replaces a(x) by one number for all rows: alpha^(-1/2)
    for the thesis's correction, 1 for none. offset is the mean of the rows. Source: `docs/numerics.md`, section 10.
    """

    name: ClassVar[str] = "principal-fourier"
    kernel: Gaussian
    frequencies: Array  # (m, d*)
    axes: Array  # (d, d*)
    phases: Array | None = None
    factor: float | None = None

    __repr__ = brief

    def filling(self, most_rows: int) -> Fill:
        m, kept = self.frequencies.shape
        right = np.ascontiguousarray(self.frequencies.T)
        projections = np.empty((most_rows, kept), self.dtype)
        angles = np.empty((most_rows, m), self.dtype)
        amplitude = np.sqrt(1 / m)

        def fill(X: Array, V: Array) -> None:
            P = projections[: len(X)]
            np.matmul(X, self.axes, out=P)
            np.matmul(P, right, out=angles[: len(X)])
            a = self._pointwise(X, P)[:, None] if self.factor is None else self.factor
            _trigonometric(angles[: len(X)], self.phases, np.asarray(amplitude * a, self.dtype), V)

        return fill

    def _pointwise(self, X: Array, P: Array) -> Array:
        residual = np.maximum(squared_norms(X) - squared_norms(P), 0) if P.shape[1] < self.columns else np.zeros(len(X))
        return np.exp(-self.kernel.gamma * residual.astype(np.float64))

    def unexplained(self, squares: float, count: int) -> float:
        """mean(1 - a²): what K ≈ ZZ' + diag(1 - a_i²) adds to every eigenvalue.

        `squares` is Σ |v(x_i)|², which is Σ a_i² for pairs and has that mean for phases.
        """
        return 1 - squares / count if self.factor is None else 1 - self.factor**2


@dataclass(frozen=True)
class TensorSketch(FeatureMap):
    """Features of the polynomial kernel (gamma <x, y> + coef0)^p, p >= 2, with E v(x)'v(y) = k(x, y).

    x^ = (sqrt(gamma) x, sqrt(coef0)) is count-sketched p times into D buckets: entry j goes to buckets[i, j] with
    signs[i, j]; the convolution of the p sketches, by FFT, sketches the p-fold tensor product of x^.
    buckets and signs are (p, d + 1). Source: Pham and Pagh 2013.
    """

    name: ClassVar[str] = "tensor-sketch"
    kernel: Polynomial
    buckets: Array
    signs: Array  # in the dtype of block work
    width: int  # D

    __repr__ = brief

    @property
    def size(self) -> int:
        return self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.signs.dtype

    def filling(self, most_rows: int) -> Fill:
        columns = np.arange(self.buckets.shape[1])
        sketches = [
            csr_array((signs, (buckets, columns)), shape=(self.width, len(columns)))
            for buckets, signs in zip(self.buckets, self.signs, strict=True)
        ]
        extended = np.empty((most_rows, self.columns + 1), self.dtype)
        extended[:, -1] = np.sqrt(self.kernel.coef0)
        root = self.dtype.type(np.sqrt(self.kernel.gamma))

        def fill(X: Array, V: Array) -> None:
            rows = extended[: len(X)]
            np.multiply(X, root, out=rows[:, :-1])
            spectrum = scipy.fft.rfft((sketches[0] @ rows.T).T, axis=1)
            for sketch in sketches[1:]:
                spectrum *= scipy.fft.rfft((sketch @ rows.T).T, axis=1)
            V[:] = scipy.fft.irfft(spectrum, self.width, axis=1)

        return fill


MAPS: dict[str, type[FeatureMap]] = {
    each.name: each for each in (KernelRows, GivenKernels, FourierRows, PrincipalFourierRows, TensorSketch)
}


def check_sketchable(kernel: Polynomial) -> None:
    """Raise SpecError for a polynomial of degree 1."""
    if kernel.degree < 2:
        raise SpecError(
            "a tensor sketch is for polynomial kernels of degree 2 or more: of degree 1, use method='nystroem' or the "
            "linear kernel"
        )


def tensor_sketch(
    kernel: Polynomial,
    size: int,
    offset: Array,
    scale: Array | None,
    rng: np.random.Generator,
    dtype: np.dtype[Any],
) -> TensorSketch:
    """A random tensor sketch of `size` features. Raises SpecError for degree 1, which needs none."""
    check_sketchable(kernel)
    shape = (int(kernel.degree), len(offset) + 1)
    signs = (2 * rng.integers(0, 2, shape) - 1).astype(dtype)
    return TensorSketch(kernel, offset, rng.integers(0, size, shape).astype(np.int32), signs, size, scale=scale)


def from_parts(parameters: Mapping[str, Any], kernel: Kernel, arrays: Mapping[str, Array]) -> FeatureMap:
    """The feature map whose `parameters()` and `arrays()` these are; other arrays are passed over."""
    cls = MAPS[parameters["name"]]
    names = {part.name for part in fields(cls)}
    plain = {name: value for name, value in parameters.items() if name in names}
    return cls(kernel=kernel, **plain, **{name: value for name, value in arrays.items() if name in names})
