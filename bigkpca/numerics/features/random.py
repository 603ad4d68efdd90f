"""Random features: Fourier features of stationary kernels, and tensor sketches of polynomial kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import brief
from bigkpca.numerics.features.base import FeatureMap, Fill, Shape
from bigkpca.numerics.kernels import FrequencyDraws, Gaussian, Kernel, Polynomial, squared_norms

Coupling = Literal["iid", "orthogonal", "qmc"]


@dataclass(frozen=True)
class _Independent:
    """Independent draws."""

    count: int
    d: int
    rng: np.random.Generator

    def normals(self) -> Array:
        return self.rng.standard_normal((self.count, self.d))

    def uniforms(self) -> Array:
        return self.rng.random(self.count)


@dataclass(frozen=True)
class _Orthogonal:
    """Blocks of d orthogonal vectors, each uniform on the sphere, with chi(d) lengths (Yu et al. 2016).

    These lengths make every vector standard normal, so that features are unbiased; lengths √d would bias them.
    """

    count: int
    d: int
    rng: np.random.Generator

    def normals(self) -> Array:
        blocks = [self._directions(min(self.d, self.count - start)) for start in range(0, self.count, self.d)]
        lengths = np.sqrt(self.rng.chisquare(self.d, self.count))
        return np.concatenate(blocks) * lengths[:, None]

    def _directions(self, k: int) -> Array:
        """k <= d orthonormal rows, Haar distributed."""
        Q, R = scipy.linalg.qr(self.rng.standard_normal((self.d, k)), mode="economic", check_finite=False)
        return (Q * np.sign(np.diag(R))).T  # the signs remove LAPACK's choice, which is not uniform

    def uniforms(self) -> Array:
        return self.rng.random(self.count)


@dataclass(frozen=True)
class _QuasiRandom:
    """Scrambled Sobol points through the normal quantile, rotated so that the best coordinates lie in the first `axes`.

    A second draw is an independent scrambling with its points in random order: paired in their own order, two
    scramblings of one sequence are far from independent.
    """

    count: int
    rng: np.random.Generator
    axes: Array  # (d, d), orthonormal columns, the directions of largest variance first

    def normals(self) -> Array:
        return scipy.special.ndtri(self._points(len(self.axes))) @ self.axes.T

    def uniforms(self) -> Array:
        return self._points(1)[:, 0]

    def _points(self, d: int) -> Array:
        from scipy.stats import qmc  # here, because scipy.stats takes 30 MB and half a second that only this form needs

        sequence = qmc.Sobol(d, scramble=True, rng=self.rng)
        points = sequence.random_base2(max(0, self.count - 1).bit_length())[: self.count]
        self.rng.shuffle(points)
        return np.clip(points, 1e-12, 1 - 1e-12)


def draw_frequencies(
    kernel: Kernel, coupling: Coupling, count: int, d: int, rng: np.random.Generator, axes: Array | None = None
) -> Array:
    """`count` frequencies in R^d from the spectral density of the kernel, (count, d), float64.

    Only "qmc" uses `axes` (d, d), the principal axes of the rows. Raises SpecError for a kernel without a spectral
    density.
    """
    draws: FrequencyDraws
    if coupling == "iid":
        draws = _Independent(count, d, rng)
    elif coupling == "orthogonal":
        draws = _Orthogonal(count, d, rng)
    else:
        draws = _QuasiRandom(count, rng, np.eye(d) if axes is None else axes)
    return kernel.frequencies(draws)


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
    """Base of maps with m frequencies: cosines, then sines; or cosines with phases."""

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

        pairs: z(x) = √(k(0) / m) (cos w_1'x, ..., cos w_m'x, sin w_1'x, ..., sin w_m'x),   D = 2m,
        phase: z(x) = √(2 k(0) / m) (cos(w_j'x + b_j))_j,                                   D = m.

    frequencies (m, d) are draws from the spectral density of the kernel; phases b (m,) are uniform on [0, 2π), or None
    for pairs, whose diagonal is exact and whose variance is lower (Sutherland and Schneider 2015).
    """

    name: ClassVar[str] = "fourier"
    shapes: ClassVar[Mapping[str, Shape]] = {**FeatureMap.shapes, "frequencies": ("m", "d"), "phases": ("m",)}
    frequencies: Array
    phases: Array | None = None

    __repr__ = brief

    @classmethod
    def takes(cls, kernel: Kernel) -> bool:
        return kernel.spectral

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

    __repr__ = brief

    @classmethod
    def takes(cls, kernel: Kernel) -> bool:
        return isinstance(kernel, Gaussian)

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
        """a(x) of rows X (b, d) with projections P (b, d*), (b,)."""
        residual = np.maximum(squared_norms(X) - squared_norms(P), 0) if P.shape[1] < self.columns else np.zeros(len(X))
        return np.exp(-self.kernel.gamma * residual.astype(np.float64))

    def unexplained(self, squares: float, count: int) -> float:
        """mean(1 - a²): the amount that K ≈ ZZ' + diag(1 - a_i²) adds to every eigenvalue.

        `squares` is Σ |v(x_i)|², which is Σ a_i² for pairs and has that mean for phases.
        """
        return 1 - squares / count if self.factor is None else 1 - self.factor**2

    @property
    def blind_off_axes(self) -> bool:
        return self.factor is not None

    @property
    def directions(self) -> int:
        return self.axes.shape[1]


@dataclass(frozen=True)
class TensorSketch(FeatureMap):
    """Random features of the polynomial kernel (gamma <x, y> + coef0)^p, p >= 2, with E v(x)'v(y) = k(x, y).

    x^ = (√gamma x, √coef0) is count-sketched p times into D buckets: entry j goes to buckets[i, j] with signs[i, j].
    The convolution of the p sketches, by FFT, sketches the p-fold tensor product of x^. buckets and signs are (p, d +
    1). Source: Pham and Pagh 2013.
    """

    name: ClassVar[str] = "tensor-sketch"
    shapes: ClassVar[Mapping[str, Shape]] = {**FeatureMap.shapes, "buckets": ("p", "d+1"), "signs": ("p", "d+1")}
    kernel: Polynomial
    buckets: Array
    signs: Array  # in the dtype of block work
    width: int  # D

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.buckets.dtype.kind not in "iu" or self.buckets.min() < 0 or self.buckets.max() >= self.width:
            raise SpecError(f"the buckets of a tensor sketch are whole numbers from 0 to {self.width - 1}")
        if len(self.buckets) != self.kernel.degree:
            raise SpecError(f"{len(self.buckets)} sketches are no features of a kernel of degree {self.kernel.degree}")

    @classmethod
    def takes(cls, kernel: Kernel) -> bool:
        return isinstance(kernel, Polynomial)

    @property
    def size(self) -> int:
        return self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.signs.dtype

    def filling(self, most_rows: int) -> Fill:
        columns = np.arange(self.buckets.shape[1])
        sketches = [
            scipy.sparse.csr_array((signs, (buckets, columns)), shape=(self.width, len(columns)))
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


def check_sketchable(kernel: Polynomial) -> None:
    """Raise SpecError for a polynomial kernel of degree 1."""
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
    """A random tensor sketch of `size` features. Raises SpecError for degree 1."""
    check_sketchable(kernel)
    shape = (int(kernel.degree), len(offset) + 1)
    signs = (2 * rng.integers(0, 2, shape) - 1).astype(dtype)
    return TensorSketch(kernel, offset, rng.integers(0, size, shape).astype(np.int32), signs, size, scale=scale)
