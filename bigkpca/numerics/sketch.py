"""Leading eigenpairs of an operator known by its action: randomized block Krylov, where D x D is too large to hold.

One action is one pass over the data: A Q = Σ (v_i - m)(v_i - m)'Q is a sum over rows, (D, b), for any block Q (D, b).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics.linalg import eigh_descending

OVERSAMPLING = 10
PASSES = 4
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Action:
    """Sums of a pass over n feature rows v_i with a block Q (D, b), about a fixed vector v0, all in float64:

    total = Σ (v_i - v0), products = Σ (v_i - v0)(v_i - v0)'Q, trace = Σ k(x_i, x_i), squares = Σ |v_i - v0|².
    """

    count: int
    total: Array  # (D,)
    products: Array  # (D, b)
    trace: float
    squares: float

    def __add__(self, other: Action) -> Action:
        """Sums of both sets of rows together."""
        return Action(
            self.count + other.count,
            self.total + other.total,
            self.products + other.products,
            self.trace + other.trace,
            self.squares + other.squares,
        )

    def mean(self, v0: Array) -> Array:
        """Mean of v, (D,)."""
        return v0 + self.total / self.count

    def applied(self, Q: Array, v0: Array, center: bool) -> Array:
        """Scatter about the mean (or about zero) times Q, (D, b)."""
        deviation = self.total / self.count
        image = self.products - np.outer(self.total, deviation @ Q)
        if not center:
            m = self.mean(v0)
            image += np.outer(self.count * m, m @ Q)
        return image

    def squares_about_zero(self, v0: Array) -> float:
        """Σ |v_i|²."""
        return self.squares + 2 * float(self.total @ v0) + self.count * float(v0 @ v0)


def block_action(tiles: Iterable[tuple[Array, Array]], shift: Array, Q: Array) -> Action:
    """The sums of one block, one tile (V (b, D), k(x_i, x_i) (b,)) at a time. Tiles are overwritten."""
    count, trace, squares = 0, 0.0, 0.0
    total, products = np.zeros(len(shift)), np.zeros(Q.shape)
    v0 = right = np.empty(0)
    for V, diagonal in tiles:
        if v0.dtype != V.dtype or not v0.size:
            v0, right = shift.astype(V.dtype), Q.astype(V.dtype)
        V -= v0
        products += V.T @ (V @ right)
        total += np.ones(len(V), V.dtype) @ V
        squares += float(np.einsum("ij,ij->i", V, V).sum(dtype=np.float64))
        count += len(V)
        trace += float(diagonal.sum())
    return Action(count, total, products, trace, squares)


@dataclass(frozen=True)
class Ritz:
    """Approximate leading eigenpairs of A.

    values (r,), descending; vectors (D, r), orthonormal; residuals (r,), |A u - value u| / value; products: their
    number; lowest: the lowest Ritz value so far, an upper bound of the lowest eigenvalue of A.
    """

    values: Array
    vectors: Array
    residuals: Array
    products: int
    lowest: float

    def worst(self, floor: float) -> float:
        """The largest residual of values above `floor` times the largest; infinity where no value is positive."""
        positive = self.values[0] > 0
        counted = self.values > floor * self.values[0]
        return float(self.residuals.max(initial=0.0, where=counted)) if positive else np.inf


def leading_eigenpairs(
    apply: Callable[[Array], Array],
    start: Array,
    count: int,
    *,
    most: int = PASSES,
    tol: float = 0.0,
    floor: float = 0.0,
    on_iteration: Callable[[Ritz], None] = lambda _: None,
) -> Ritz:
    """The `count` largest eigenpairs of a symmetric operator on R^D whose leading part is positive.

    Calls apply(Q (D, b)) -> A Q at most `most` times, until the residuals of all pairs are at most `tol`, except those
    of values below `floor` times the largest. Starts from the span of `start` (D, b), b >= count, with Rayleigh-Ritz in
    the span of all blocks so far (block Krylov, Musco and Musco 2015): values are lower bounds, and converge far faster
    than power iteration with as many products. After four blocks the b best vectors start anew. `on_iteration` gets
    the result of every step. Memory: about 12 D b float64.
    """
    basis = np.linalg.qr(start)[0]
    width, blocks = basis.shape[1], 1
    images = apply(basis)
    found = rayleigh_ritz(basis, images, count, 1)
    on_iteration(found)
    while found.products < most and found.worst(floor) > tol:
        Q = next_block(basis, images[:, -width:])
        if not Q.shape[1] or blocks * width >= len(start):  # no more blocks fit into R^D
            break
        if basis.shape[1] >= PASSES * width:
            S = _rotation(basis, images)[1][:, :width]
            basis, images, blocks = basis @ S, images @ S, 1
        basis, images, blocks = np.hstack([basis, Q]), np.hstack([images, apply(Q)]), blocks + 1
        lowest, found = found.lowest, rayleigh_ritz(basis, images, count, found.products + 1)
        found = replace(found, lowest=min(found.lowest, lowest))  # a restart drops the low end of the spectrum
        on_iteration(found)
    return found


def starting_block(D: int, width: int, rng: np.random.Generator) -> Array:
    """Orthonormal columns in uniformly random directions, (D, width)."""
    return np.linalg.qr(rng.standard_normal((D, width)))[0]


def next_block(basis: Array, image: Array) -> Array:
    """Orthonormal columns that span what the image adds to the basis; with the basis at most D columns."""
    floor = _ROUNDING * float(np.linalg.norm(image))
    for _ in range(2):  # a single orthogonalisation leaves rounding errors
        image = image - basis @ (basis.T @ image)
        image, R, _ = scipy.linalg.qr(image, mode="economic", pivoting=True, check_finite=False)
        image = image[:, np.abs(np.diag(R)) > floor]
        floor = _ROUNDING  # columns have unit length from here on
    return image[:, : max(0, len(basis) - basis.shape[1])]


def _rotation(basis: Array, images: Array) -> tuple[Array, Array]:
    """Ritz values (b,), descending, and the coefficients (b, b) of the Ritz vectors in the basis."""
    T = basis.T @ images
    return eigh_descending((T + T.T) / 2)


def rayleigh_ritz(basis: Array, images: Array, count: int, products: int = 0) -> Ritz:
    """The `count` leading Ritz pairs in the span of `basis`, whose images under the operator are given."""
    all_values, S = _rotation(basis, images)
    S = S[:, :count]
    vectors, moved = basis @ S, images @ S
    values = np.einsum("ij,ij->j", vectors, moved)
    for column, value, vector in zip(moved.T, values, vectors.T, strict=True):  # saves a third block of this size
        column -= value * vector
    norms = np.sqrt(np.einsum("ij,ij->j", moved, moved))
    residuals = np.divide(norms, values, out=np.full(len(values), np.inf), where=values > 0)
    return Ritz(values, vectors, residuals, products, float(all_values[-1]))
