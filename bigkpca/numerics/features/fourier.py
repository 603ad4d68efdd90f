"""Random Fourier features, of all columns or of principal axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import brief
from bigkpca.numerics.features.base import FeatureMap, Fill, Shape
from bigkpca.numerics.kernels import Gaussian, Kernel, squared_norms


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
    for the thesis's correction, 1 for none. offset is the mean of the rows. Source: `docs/numerics.md`, section 10.
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
