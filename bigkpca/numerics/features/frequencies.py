"""Random frequencies: independent, orthogonal or quasi-random draws from the spectral density of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics.kernels import FrequencyDraws, Kernel

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
