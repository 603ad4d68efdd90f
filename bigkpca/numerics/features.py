"""Feature maps v(x), from tiles of rows to tiles of features: kernels with landmarks, random Fourier features, tensor
sketches.

A map prepares its work space once for a stream of tiles and reuses it, so a pass with NumPy allocates nothing per tile.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.array_api import (
    astype,
    contiguous,
    dtype_of,
    empty,
    functions_of,
    in_numpy,
    moved,
    on_host,
    set_columns,
    subtract,
)
from bigkpca.numerics.display import brief
from bigkpca.numerics.kernels import FrequencyDraws, Gaussian, Kernel, Polynomial, Precomputed, squared_norms
from bigkpca.numerics.kernels.base import Coupling
from bigkpca.numerics.linalg import arrays_of, eigh_descending, in_parts, signs
from bigkpca.numerics.registry import named_fields

Fill = Callable[[Array, Array], None]  # (X (b, d), V (b, D)) -> None; writes v(x_i) into row i of V
Evaluation = Callable[[Array], tuple[Array, Array]]  # X (b, d) -> V (b, D), k(x_i, x_i) (b,)
Place = Callable[[Array], Any]  # a NumPy array -> the same array on a device
Shape = tuple[str | int, ...]  # of an array: d, D and r are those of the model, other letters any number

_PIECE_BYTES, _LEAST_PIECE_ROWS = 2**21, 1024
_SHIFTED_ROWS = 4096  # at a time, on all processors


def piece_rows(d: int, itemsize: int) -> int:
    """Rows of a tile evaluated at a time, a power of two: at most 2 MB, which stay in cache, but at least 1024,
    for which matrix products are as fast as for more."""
    return max(_LEAST_PIECE_ROWS, 1 << (_PIECE_BYTES // (d * itemsize)).bit_length() >> 1)


def shifted_rows(X: Array, offset: Array, scale: Array | None, out: Array) -> None:
    """out = (X - offset) / scale, computed in the precision of X and then rounded to the dtype of out: otherwise data
    far from the origin (longitudes, time stamps) would lose their variation to rounding."""
    xp, precision = functions_of(out), np.result_type(dtype_of(X), dtype_of(out))
    shift = astype(offset, precision)
    if scale is None:
        subtract(X, shift, precision, out)
        return
    # Also divided before rounding, so that columns in tiny or huge units neither underflow nor overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        xp.divide(subtract(X, shift, precision), scale, out=out)
    unused = np.flatnonzero(on_host(xp.isinf(scale)))
    if len(unused):  # also where a difference overflows
        set_columns(out, unused, moved(np.zeros((out.shape[0], len(unused))), out))


@dataclass(frozen=True, repr=False)
class FeatureMap(ABC):
    """v(x) in R^D for rows x in R^d. Every row is first transformed to (x - offset) / scale.

    offset (d,), float64, is zero unless the kernel allows a shift or rows are standardised; scale (d,), float64, is
    the deviation of a standardised column over its weight, infinite for a weight of 0, and None without either. Arrays
    from a file must have the `shapes`.
    """

    name: ClassVar[str]
    shapes: ClassVar[Mapping[str, Shape]] = {"offset": ("d",), "scale": ("d",)}
    precomputed: ClassVar[bool] = False  # whether rows contain kernels with the fitted rows
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
        """v for tiles of at most `most_rows` shifted rows, as a function that owns its work space."""

    @property
    def columns(self) -> int:
        """d, the number of input columns."""
        return int(self.offset.shape[0])

    def placed(self, place: Place) -> Self:
        """The same map with its arrays on a device, where it then computes."""
        found = copy.copy(self)
        vars(found).update({name: place(value) for name, value in self.arrays().items()})
        return found

    def as_columns(self) -> Columns:
        """The map to the rows themselves."""
        return Columns(self.kernel, self.offset, self.dtype, scale=self.scale)

    def shifted(self, X: Array) -> Array:
        """(X - offset) / scale in the dtype of block work, (b, d)."""
        out, X = empty(X.shape, self.offset, self.dtype), self._beside(X)
        step = _SHIFTED_ROWS if in_numpy(out) else max(X.shape[0], 1)

        def shift(start: int) -> None:
            own = slice(start, start + step)
            shifted_rows(X[own, :], self.offset, self.scale, out[own, :])

        in_parts(shift, range(0, X.shape[0], step))
        return out

    def _beside(self, X: Array) -> Array:
        """A tile X (b, d) on the device of the map."""
        if in_numpy(self.offset) or not in_numpy(X):
            return X
        precision = min(np.result_type(X.dtype, self.dtype), np.dtype(np.float64))  # devices have no long doubles
        return moved(X.astype(precision, copy=False), self.offset)

    def unshifted(self, X: Array) -> Array:
        """X scale + offset in float64, (b, d): the inverse of `shifted`, in the units of the data."""
        return self.unscaled(X.astype(np.float64)) + self.offset

    def unscaled(self, D: Array) -> Array:
        """D scale: differences of shifted rows in the units of the data; 0 in columns of weight 0."""
        return D if self.scale is None else D * np.where(np.isinf(self.scale), 0.0, self.scale)

    def in_precision(self, dtype: np.dtype[Any]) -> Self:
        """The same map with block work in this dtype."""
        own = {name: value for name, value in self.arrays().items() if name not in ("offset", "scale")}
        real: dict[str, Any] = {name: value.astype(dtype) for name, value in own.items() if value.dtype.kind == "f"}
        return replace(self, **real)

    def tiles(self, X_tiles: Iterable[Array], most_rows: int) -> Iterator[tuple[Array, Array]]:
        """Features and diagonal (V (b, D), k(x_i, x_i) (b,)) of each tile X (b, d). V is a work space that the next
        tile overwrites, as may the caller."""
        return map(self.evaluation(most_rows), X_tiles)

    def evaluation(self, most_rows: int) -> Evaluation:
        """`tiles` of at most `most_rows` rows each, as a function that owns its work space."""
        height = most_rows
        if in_numpy(self.offset):
            height = min(height, piece_rows(self.columns, self.dtype.itemsize))
        fill = self.filling(height)
        rows = empty((height, self.columns), self.offset, self.dtype)
        values = empty((most_rows, self.size), self.offset, self.dtype)

        def evaluate_piece(X: Array, V: Array) -> Array:
            piece = rows[: X.shape[0], :]
            shifted_rows(self._beside(X), self.offset, self.scale, piece)
            fill(piece, V)
            return self.kernel.diagonal_anywhere(piece)

        def evaluate(X: Array) -> tuple[Array, Array]:
            count = X.shape[0]
            V = values[:count, :]
            if count <= height:
                return V, evaluate_piece(X, V)
            pieces = (slice(start, start + height) for start in range(0, count, height))
            return V, np.concatenate([evaluate_piece(X[piece], V[piece]) for piece in pieces])

        return evaluate

    arrays = arrays_of
    __repr__ = brief

    def parameters(self) -> dict[str, Any]:
        """The other fields except the kernel, JSON-ready, with the name of the map."""
        return {key: value for key, value in named_fields(self).items() if key != "kernel" and value is not None}

    def gram(self) -> Array | None:
        """W = k(S, S) of the landmarks S as stored, (l, l), float64, exactly symmetric; None without landmarks. Raises
        SpecError for precomputed kernels."""
        return None

    def landmarks_in_user_units(self) -> Array | None:
        """The landmarks (l, d) in the units of the data, float64; None without landmarks."""
        return None

    def unexplained(self, squares: float, weight: float) -> float:
        """Mean diagonal of K - VV', which is added to every eigenvalue; from `squares`, Σ w_i |v(x_i)|², and `weight`,
        Σ w_i."""
        return 0.0


class Itself(FeatureMap):
    """v(x) = x, shifted and scaled."""

    @property
    def size(self) -> int:
        return self.columns

    def filling(self, most_rows: int) -> Fill:
        def fill(X: Array, V: Array) -> None:
            V[:, :] = X

        return fill


@dataclass(frozen=True, repr=False)
class Columns(Itself):
    """v(x) = x, whose moments are the means and the covariance of the columns."""

    name: ClassVar[str] = "columns"
    block_dtype: np.dtype[Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.block_dtype


@dataclass(frozen=True, repr=False)
class KernelRows(FeatureMap):
    """v(x) = (k(x, s_1), ..., k(x, s_l)) for landmarks (l, d), shifted, scaled and in the dtype of block work."""

    name: ClassVar[str] = "kernel-rows"
    shapes: ClassVar[Mapping[str, Shape]] = {**FeatureMap.shapes, "landmarks": ("D", "d")}
    landmarks: Array

    @property
    def size(self) -> int:
        return int(self.landmarks.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtype_of(self.landmarks)

    def filling(self, most_rows: int) -> Fill:
        return self.kernel.against_anywhere(self.landmarks, most_rows)

    def gram(self) -> Array:
        return self.kernel.gram(self.landmarks)

    @property
    def landmark_rows(self) -> Array:
        """The landmarks as rows, shifted and scaled, (l, d)."""
        return self.landmarks

    def landmarks_in_user_units(self) -> Array:
        return self.unshifted(self.landmark_rows)


@dataclass(frozen=True, repr=False)
class SubspaceRows(KernelRows):
    """v(x) = (k(x, V c_1), ..., k(x, V c_l)) for landmarks in the span of few axes V (d, p): p (d + l) operations for a
    row instead of d l.

    For a kernel of |x|, |y| and <x, y>, k(x, V c) is that of the coordinates (V'x, h) and (c, 0), where h² = |x|² -
    |V'x|²: both have the lengths and the inner product of x and V c. Rounded axes are as good, if V'V <= I: then these
    are the kernels with landmarks (V c, (I - V'V)^(1/2) c) in more dimensions. Source: `docs/numerics.md`, section 4.

    axes (d, p), and landmarks (l, p), the coordinates c, in the dtype of block work.
    """

    name: ClassVar[str] = "subspace-rows"
    shapes: ClassVar[Mapping[str, Shape]] = {**FeatureMap.shapes, "landmarks": ("D", "p"), "axes": ("d", "p")}
    axes: Array

    def filling(self, most_rows: int) -> Fill:
        count, p = self.landmarks.shape
        points = empty((count, p + 1), self.offset, self.dtype)
        points[:, :p], points[:, p] = self.landmarks, 0
        fill = self.kernel.against_anywhere(points, most_rows)
        xp, work = functions_of(self.axes), empty((most_rows, p + 1), self.offset, self.dtype)

        def fill_from_coordinates(X: Array, V: Array) -> None:
            own = work[: X.shape[0], :]
            with np.errstate(over="ignore", invalid="ignore"):
                xp.matmul(X, self.axes, out=own[:, :p])
                rest = squared_norms(X) - squared_norms(own[:, :p])
            own[:, p] = xp.sqrt(xp.maximum(rest, 0.0, out=rest))
            fill(own, V)

        return fill_from_coordinates

    @property
    def landmark_rows(self) -> Array:
        return self.landmarks @ self.axes.T


def has_landmarks(features: FeatureMap) -> TypeGuard[KernelRows]:
    """Whether the features are kernels with landmarks, which the map keeps."""
    return isinstance(features, KernelRows)


@dataclass(frozen=True, repr=False)
class GivenKernels(Itself):
    """v(x) = (k(x, x_1), ..., k(x, x_n)), precomputed kernels with the n fitted rows: the row itself."""

    name: ClassVar[str] = "given-kernels"
    precomputed: ClassVar[bool] = True
    precision: str  # of block work: float32 or float64

    def __post_init__(self) -> None:
        if self.precision not in ("float32", "float64"):
            raise SpecError(f"the precision of block work is float32 or float64, not {self.precision!r:.80}")

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.precision)

    def gram(self) -> Array:
        raise SpecError(
            "the model of a precomputed kernel keeps neither the rows nor their matrix, which are needed here; its "
            "certificate contains the residual of every component"
        )


BIAS = 0.02  # largest root mean square of the relative bias of k(x, y) from leaving axes out


@dataclass(frozen=True)
class PrincipalAxes:
    """Mean (d,), leading axes (d, q) in orthonormal columns, variances (q,) along them, dividing by n, and the sum of
    all d variances."""

    mean: Array
    axes: Array
    variances: Array
    total: float

    def residual(self, kept: int) -> float:
        """tr(Sigma_res): the variance outside the `kept` leading axes."""
        return max(self.total - float(self.variances[:kept].sum()), 0.0)

    def directions(self, sigma: float, components: int, frequencies: int) -> int:
        """The smallest d* with |Sigma_res|_F / sigma² <= 0.02, but at least `components`, at most q and `frequencies`.

        Variances of unknown axes are at most the last known one. The components of a wide kernel are close to the
        principal axes, so fewer axes than components would lose the last ones: for 50 components on MNIST the mean
        error is 0.8 % with 50 axes and 27 % with 30, at D = 2000. With more axes than frequencies there is no complete
        block of orthogonal frequencies, whose errors largely cancel.
        """
        unknown = self.residual(len(self.variances)) * self.variances[-1]
        tails = np.sqrt(np.cumsum(self.variances[::-1] ** 2)[::-1] + unknown) / sigma**2
        return min(max(int(np.count_nonzero(tails > BIAS)), components), len(self.variances), frequencies)


def axes_of_covariance(mean: Array, scatter: Array, weight: float) -> PrincipalAxes:
    """All principal axes from the scatter matrix (d, d) of rows with this sum of weights; largest entries are
    positive."""
    variances, axes = eigh_descending(scatter / weight)
    return PrincipalAxes(mean, axes * signs(axes), np.maximum(variances, 0), float(np.trace(scatter)) / weight)


def draw_frequencies(kernel: Kernel, coupling: Coupling, count: int, d: int, rng: np.random.Generator) -> Array:
    """Frequencies (count, d), float64, from the spectral density of the kernel. Raises SpecError without one."""
    return kernel.frequencies(FrequencyDraws(coupling, count, d, rng))


class _Waves(FeatureMap):
    """Base of maps with m frequencies: a √(k(0) / m) (cosines, then sines), or a √(2 k(0) / m) cosines with phases, of
    projections of the rows, where a is 1, or a number for each row."""

    frequencies: Array
    phases: Array | None

    @property
    def size(self) -> int:
        return int(self.frequencies.shape[0]) * (2 if self.phases is None else 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtype_of(self.frequencies)

    def projection(self, most_rows: int) -> Callable[[Array], tuple[Array, Any]]:
        """The projections (b, q) of tiles X (b, d), and a: one number, or (b, 1), float64."""
        return lambda X: (X, 1.0)

    def filling(self, most_rows: int) -> Fill:
        xp, m, dtype = functions_of(self.frequencies), self.frequencies.shape[0], self.dtype
        right, project = contiguous(self.frequencies.T), self.projection(most_rows)
        work = empty((most_rows, m), self.frequencies)
        amplitude = float(np.sqrt(self.kernel.diagonal(np.zeros((1, self.columns)))[0] / m))
        root = dtype.type(1 if self.phases is None else np.sqrt(2))

        def fill(X: Array, V: Array) -> None:
            (P, a), angles = project(X), work[: X.shape[0], :]
            xp.matmul(P, right, out=angles)
            if self.phases is None:
                xp.cos(angles, out=V[:, :m])
                xp.sin(angles, out=V[:, m:])
            else:
                angles += self.phases
                xp.cos(angles, out=V)
            scale = amplitude * a
            if isinstance(scale, float):
                V *= float(dtype.type(scale) * root)
            else:
                V *= astype(scale, dtype) * float(root)

        return fill


@dataclass(frozen=True, repr=False)
class FourierRows(_Waves):
    """Random Fourier features z(x), with E z(x)'z(y) = k(x, y).

        pairs: z(x) = √(k(0) / m) (cos w_1'x, ..., cos w_m'x, sin w_1'x, ..., sin w_m'x),   D = 2m,
        phase: z(x) = √(2 k(0) / m) (cos(w_j'x + b_j))_j,                                   D = m.

    frequencies (m, d) are drawn from the spectral density of the kernel; phases b (m,) are uniform on [0, 2π), or None
    for pairs, which have an exact diagonal and a lower variance (Sutherland and Schneider 2015).
    """

    name: ClassVar[str] = "fourier"
    shapes: ClassVar[Mapping[str, Shape]] = {**FeatureMap.shapes, "frequencies": ("m", "d"), "phases": ("m",)}
    frequencies: Array
    phases: Array | None = None


@dataclass(frozen=True, repr=False)
class PrincipalFourierRows(_Waves):
    """RFF-PCA: Fourier features of the projection p = axes'x on the d* leading principal axes of the rows,

        v(x) = a(x) z(p),   a(x) = exp(-rho² / (2 sigma²)),   rho² = |x|² - |p|²,

    for the Gaussian kernel, which factors exactly as k(x, y) = a(x) a(y) k(p_x, p_y) exp(<r_x, r_y> / sigma²) with
    r the residuals; the last factor has mean about 1. `factor` replaces a(x) by one number for all rows: alpha^(-1/2)
    for the thesis's correction, 1 for none. offset is the mean of the rows off the axes.
    Source: `docs/numerics.md`, section 10.
    """

    name: ClassVar[str] = "principal-fourier"
    shapes: ClassVar[Mapping[str, Shape]] = {
        **FeatureMap.shapes,
        "frequencies": ("m", "q"),
        "axes": ("d", "q"),
        "phases": ("m",),
    }
    kernel: Gaussian
    frequencies: Array  # (m, d*)
    axes: Array  # (d, d*)
    phases: Array | None = None
    factor: float | None = None

    def projection(self, most_rows: int) -> Callable[[Array], tuple[Array, Any]]:
        xp, kept = functions_of(self.axes), self.axes.shape[1]
        work = empty((most_rows, kept), self.axes)

        def project(X: Array) -> tuple[Array, Any]:
            P = work[: X.shape[0], :]
            xp.matmul(X, self.axes, out=P)
            if self.factor is not None or kept == self.columns:
                return P, 1.0 if self.factor is None else self.factor
            left_out = xp.maximum(squared_norms(X) - squared_norms(P), 0.0)
            return P, xp.exp(-float(self.kernel.gamma) * astype(left_out, np.float64))[:, None]

        return project

    def unexplained(self, squares: float, weight: float) -> float:
        # Σ w |v(x)|² is Σ w a² for pairs, and has that mean for phases.
        return 1 - squares / weight if self.factor is None else 1 - self.factor**2


@dataclass(frozen=True, repr=False)
class TensorSketch(FeatureMap):
    """Random features of the polynomial kernel (gamma <x, y> + coef0)^p, p >= 2, with E v(x)'v(y) = k(x, y).

    x^ = (√gamma x, √coef0) is count-sketched p times: entry j goes to bucket buckets[i, j] with the sign signs[i, j].
    The convolution of the p sketches, by FFT, sketches the p-fold tensor product of x^. Source: Pham and Pagh 2013.
    """

    name: ClassVar[str] = "tensor-sketch"
    shapes: ClassVar[Mapping[str, Shape]] = {**FeatureMap.shapes, "buckets": ("p", "d+1"), "signs": ("p", "d+1")}
    kernel: Polynomial
    buckets: Array  # (p, d + 1), whole numbers below D
    signs: Array  # (p, d + 1), in the dtype of block work
    width: int  # D

    def __post_init__(self) -> None:
        if self.buckets.dtype.kind not in "iu" or self.buckets.min() < 0 or self.buckets.max() >= self.width:
            raise SpecError(f"the buckets of a tensor sketch must be whole numbers from 0 to {self.width - 1}")
        if len(self.buckets) != self.kernel.degree:
            raise SpecError(f"{len(self.buckets)} sketches do not match a kernel of degree {self.kernel.degree}")

    @property
    def size(self) -> int:
        return self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtype_of(self.signs)

    def filling(self, most_rows: int) -> Fill:
        xp, columns = functions_of(self.signs), np.arange(self.buckets.shape[1])
        sketches: list[Any] = [
            scipy.sparse.csr_array((signs, (buckets, columns)), shape=(self.width, len(columns)))
            for buckets, signs in zip(on_host(self.buckets), on_host(self.signs), strict=True)
        ]
        fft = scipy.fft
        if not in_numpy(self.signs):  # the standard has no sparse arrays
            sketches, fft = [moved(sketch.toarray(), self.signs) for sketch in sketches], xp.fft
        extended = empty((most_rows, self.columns + 1), self.signs)
        extended[:, -1] = float(np.sqrt(self.kernel.coef0))
        root = float(self.dtype.type(np.sqrt(self.kernel.gamma)))

        def fill(X: Array, V: Array) -> None:
            rows = extended[: X.shape[0], :]
            xp.multiply(X, root, out=rows[:, :-1])
            spectrum = fft.rfft((sketches[0] @ rows.T).T, axis=1)
            for sketch in sketches[1:]:
                spectrum *= fft.rfft((sketch @ rows.T).T, axis=1)
            V[:, :] = fft.irfft(spectrum, n=self.width, axis=1)

        return fill


def tensor_sketch(
    kernel: Polynomial, size: int, offset: Array, scale: Array | None, rng: np.random.Generator, dtype: np.dtype[Any]
) -> TensorSketch:
    """A random tensor sketch of `size` features."""
    shape = (int(kernel.degree), len(offset) + 1)
    signs = (2 * rng.integers(0, 2, shape) - 1).astype(dtype)
    return TensorSketch(kernel, offset, rng.integers(0, size, shape).astype(np.int32), signs, size, scale=scale)


MAPS: dict[str, type[FeatureMap]] = {
    each.name: each
    for each in (KernelRows, SubspaceRows, GivenKernels, FourierRows, PrincipalFourierRows, TensorSketch)
}


def takes(kind: type[FeatureMap], kernel: Kernel) -> bool:
    """Whether the kernel has features of this kind, one of MAPS."""
    known = {
        KernelRows: not isinstance(kernel, Precomputed),
        SubspaceRows: kernel.isotropic,
        GivenKernels: isinstance(kernel, Precomputed),
        FourierRows: kernel.spectral,
        PrincipalFourierRows: isinstance(kernel, Gaussian),
        TensorSketch: isinstance(kernel, Polynomial),
    }
    return known[kind]
