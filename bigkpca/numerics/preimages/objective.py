"""The objective of pre-images, F(z) = <φ(z), φ^> - k(z, z) / 2, and its gradient, in batches.

|φ(z) - φ^|² = |φ^|² - 2 F(z), so that a pre-image is a maximum of F. For every kernel with a gradient weight, the
gradient of F is image - weight z, whose zero is the fixed point z = image / weight. Source: `docs/numerics.md`,
section 18.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.features import FeatureMap, PrincipalFourierRows, has_landmarks
from bigkpca.numerics.kernels import Kernel, squared_norms

_LEAST_WEIGHT = 1e-6


@dataclass(frozen=True)
class Gradient:
    """F and its gradient at rows z: F (b,), <φ(z), φ^> (b,), and the gradient image (b, d) - weight (b,) z.

    total (b,) is the weight if nothing cancelled: a weight far below it is noise, and gives no direction.
    """

    value: Array
    inner: Array
    weight: Array
    total: Array
    image: Array


@dataclass(frozen=True)
class Objective:
    """F for weights gamma over landmarks, or over random features.

    at(Z (b, d), gamma (b, D)) -> Gradient, in float64, by two matrix products; it owns its work space. length is that
    of the kernel, in the units of z. own is the gradient weight p(z, z) (its mean over landmarks). Below the share
    `least` of total, weight is noise. reach · Σ|gamma| is the largest total there can be, 0 where it is not bounded.
    """

    at: Callable[[Array, Array], Gradient]
    length: float
    own: float
    reach: float
    least: float


def objective(features: FeatureMap, most_rows: int) -> Objective:
    """F for tiles of at most `most_rows` rows."""
    if has_landmarks(features):
        return _over_landmarks(features.kernel, features.landmarks.astype(np.float64), most_rows)
    return _over_waves(features)  # `check` refuses all others


def _over_landmarks(kernel: Kernel, S: Array, most_rows: int) -> Objective:
    """F over landmarks S (l, d)."""
    evaluate = kernel.gradient_weights(S, most_rows)
    values, slopes = np.empty((2, most_rows, len(S)))

    def weighted(Z: Array, gamma: Array) -> tuple[Array, Array]:
        K, A = values[: len(Z)], slopes[: len(Z)]
        evaluate(Z, K, A)
        A *= gamma
        return np.einsum("ij,ij->i", gamma, K), A

    def of_difference(Z: Array, gamma: Array) -> Gradient:
        value, A = weighted(Z, gamma)
        image = A @ S
        return Gradient(value, value, A.sum(axis=1), np.abs(A, out=A).sum(axis=1), image)

    def of_product(Z: Array, gamma: Array) -> Gradient:
        value, A = weighted(Z, gamma)
        return Gradient(
            value - kernel.diagonal(Z) / 2, value, kernel.own_gradient_weight(Z), np.full(len(Z), own), A @ S
        )

    own, level = float(kernel.own_gradient_weight(S).mean()), float(kernel.diagonal(S).mean())
    length = float(np.sqrt(level / own))
    if kernel.towards == "difference":
        return Objective(of_difference, length, own, own, _LEAST_WEIGHT)
    return Objective(of_product, length, own, 0.0, _LEAST_WEIGHT)


def _over_waves(features: Any) -> Objective:
    """F over random Fourier features."""
    kernel, frequencies = features.kernel, features.frequencies.astype(np.float64)
    zero = np.zeros((1, features.columns))
    own, level = float(kernel.own_gradient_weight(zero)[0]), float(kernel.diagonal(zero)[0])
    m = len(frequencies)
    amplitude = np.sqrt(level / m)

    def waves(P: Array, gamma: Array) -> tuple[Array, Array]:
        """z(p)'gamma, and its gradient in p."""
        angles = P @ frequencies.T
        cosines, sines = np.cos(angles), np.sin(angles)
        value = np.einsum("ij,ij->i", gamma[:, :m], cosines) + np.einsum("ij,ij->i", gamma[:, m:], sines)
        sines *= gamma[:, :m]
        cosines *= gamma[:, m:]
        cosines -= sines
        return amplitude * value, amplitude * (cosines @ frequencies)

    def at(Z: Array, gamma: Array) -> Gradient:
        value, gradient = waves(Z, gamma) if features.directions is None else _on_axes(features, Z, gamma, waves)
        weight = own * value  # that of the kernel which the features approximate
        total = own * np.sqrt(level * squared_norms(gamma))
        return Gradient(value, value, weight, total, gradient + weight[:, None] * Z)

    # For a row far from all data, value / (√k(0) |z^|) is the inner product of two independent unit vectors in R^D:
    # about 1 / √D.
    return Objective(at, float(np.sqrt(level / own)), own, 0.0, 3 / float(np.sqrt(features.size)))


def _on_axes(
    features: PrincipalFourierRows, Z: Array, gamma: Array, waves: Callable[[Array, Array], tuple[Array, Array]]
) -> tuple[Array, Array]:
    """a(z) waves(p) for the projection p of z, and its gradient; off the axes only a(z) contributes."""
    axes = features.axes.astype(np.float64)
    P = Z @ axes
    value, gradient = waves(P, gamma)
    if features.factor is not None:
        return features.factor * value, features.factor * (gradient @ axes.T)
    rest = Z - P @ axes.T
    a = np.exp(-features.kernel.gamma * squared_norms(rest))
    value *= a
    return value, (a[:, None] * gradient) @ axes.T - (2 * features.kernel.gamma * value)[:, None] * rest
