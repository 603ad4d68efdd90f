"""How well rows z explain φ^, and where they are pulled: F(z) = <φ(z), φ^> - k(z, z) / 2 and its gradient, in batches.

|φ(z) - φ^|² = |φ^|² - 2 F(z), so that a pre-image is a maximum of F. For every kernel with a pull the gradient has the
form image - weight z, whose zero is the fixed point z = image / weight. Source: `docs/numerics.md`, section 18.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.features import FeatureMap, FourierRows, KernelRows, PrincipalFourierRows
from bigkpca.numerics.kernels import Kernel, squared_norms

_LEAST_WEIGHT = 1e-6


@dataclass(frozen=True)
class Pulls:
    """At rows z: F (b,), the part of it <φ(z), φ^> (b,), and the gradient of F, image (b, d) - weight (b,) z.

    total (b,) is what weight would be if nothing cancelled: a weight far below it has no direction to trust.
    """

    value: Array
    inner: Array
    weight: Array
    total: Array
    image: Array


@dataclass(frozen=True)
class Objective:
    """F for gamma over landmarks or over random waves.

    at(Z (b, d), gamma (b, D)) -> Pulls, in float64; it owns its work space, and makes two matrix products.
    length is that of the kernel, in the units of z; own the pull of a row at itself (its average over landmarks).
    least is the share weight / total that is told from noise. reach · Σ|gamma| is the largest total there can be, 0
    where it has no bound.
    """

    at: Callable[[Array, Array], Pulls]
    length: float
    own: float
    reach: float
    least: float


def objective(features: FeatureMap, most_rows: int) -> Objective:
    """F for tiles of at most `most_rows` rows."""
    if isinstance(features, KernelRows):
        return _over_landmarks(features.kernel, features.landmarks.astype(np.float64), most_rows)
    assert isinstance(features, FourierRows | PrincipalFourierRows)  # `check` lets no other pass
    return _over_waves(features)


def _over_landmarks(kernel: Kernel, S: Array, most_rows: int) -> Objective:
    evaluate = kernel.pulling(S, most_rows)
    values, slopes = np.empty((2, most_rows, len(S)))

    def pulled(Z: Array, gamma: Array) -> tuple[Array, Array]:
        K, A = values[: len(Z)], slopes[: len(Z)]
        evaluate(Z, K, A)
        A *= gamma
        return np.einsum("ij,ij->i", gamma, K), A

    def of_difference(Z: Array, gamma: Array) -> Pulls:
        value, A = pulled(Z, gamma)
        image = A @ S
        return Pulls(value, value, A.sum(axis=1), np.abs(A, out=A).sum(axis=1), image)

    def of_product(Z: Array, gamma: Array) -> Pulls:
        value, A = pulled(Z, gamma)
        return Pulls(value - kernel.diagonal(Z) / 2, value, kernel.own_pull(Z), np.full(len(Z), own), A @ S)

    own, level = float(kernel.own_pull(S).mean()), float(kernel.diagonal(S).mean())
    length = float(np.sqrt(level / own))
    if kernel.towards == "difference":
        return Objective(of_difference, length, own, own, _LEAST_WEIGHT)
    return Objective(of_product, length, own, 0.0, _LEAST_WEIGHT)


def _over_waves(features: FourierRows | PrincipalFourierRows) -> Objective:
    kernel, frequencies = features.kernel, features.frequencies.astype(np.float64)
    zero = np.zeros((1, features.columns))
    own, level = float(kernel.own_pull(zero)[0]), float(kernel.diagonal(zero)[0])
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

    def at(Z: Array, gamma: Array) -> Pulls:
        value, gradient = waves(Z, gamma) if isinstance(features, FourierRows) else _on_axes(features, Z, gamma, waves)
        weight = own * value  # the step that is right for the kernel itself
        total = own * np.sqrt(level * squared_norms(gamma))
        return Pulls(value, value, weight, total, gradient + weight[:, None] * Z)

    # Of a row far from all data, value / (√k(0) |z^|) is the product of two unit vectors in R^D that have nothing in
    # common: about 1 / √D.
    return Objective(at, float(np.sqrt(level / own)), own, 0.0, 3 / float(np.sqrt(features.size)))


def _on_axes(
    features: PrincipalFourierRows, Z: Array, gamma: Array, waves: Callable[[Array, Array], tuple[Array, Array]]
) -> tuple[Array, Array]:
    """a(z) waves(p) of projections p, and its gradient; off the axes a(z) alone pulls, where it depends on z."""
    axes = features.axes.astype(np.float64)
    P = Z @ axes
    value, gradient = waves(P, gamma)
    if features.factor is not None:
        return features.factor * value, features.factor * (gradient @ axes.T)
    rest = Z - P @ axes.T
    a = np.exp(-features.kernel.gamma * squared_norms(rest))
    value *= a
    return value, (a[:, None] * gradient) @ axes.T - (2 * features.kernel.gamma * value)[:, None] * rest
