"""Tensor sketches: random features of polynomial kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import brief
from bigkpca.numerics.features.base import FeatureMap, Fill, Shape
from bigkpca.numerics.kernels import Kernel, Polynomial


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
