"""Randomly pivoted Cholesky: landmarks drawn in proportion to what the ones before leave unexplained.

Row s is drawn with probability d(s) / Σ d, d(s) = k(s, s) - k_S(s)' W⁻¹ k_S(s) being its residual (Chen, Epperly,
Tropp and Webber 2025). Blocks of draws from an upper bound of d, thinned by rejection, follow the same law with
matrix products in place of single columns (Epperly, Tropp and Webber 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.linalg import solve_triangular

from bigkpca.errors import Array, SpecError, check_overflow
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map, rank_tolerance

_TILE_ROWS = 1024
_ROUNDING = 10  # rank tolerances of k(x, x) below which a residual is rounding


def thinned(residual: Array, bound: Array, least: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Which of b proposals to keep (positions, ascending), and the Cholesky factor of their residual Gram matrix.

    residual (b, b) is what the landmarks so far leave of the proposals' Gram matrix, bound (b,) the weights
    they were drawn by, at least its diagonal. Proposal j is kept with probability d_j / bound_j, d_j being what
    the kept ones before it leave, and never if that is below least_j. The residual is overwritten.
    """
    kept: list[int] = []
    columns = np.zeros_like(residual)
    for j, chance in enumerate(rng.random(len(bound))):
        left = residual[j, j]
        if left > max(least[j], chance * bound[j]):
            columns[j:, len(kept)] = residual[j:, j] / np.sqrt(left)
            residual[j:, j:] -= np.outer(columns[j:, len(kept)], columns[j:, len(kept)])
            kept.append(j)
    return np.array(kept, np.intp), columns[kept, : len(kept)]


def check_diagonal(diagonal: Array) -> None:
    """Raise SpecError where k(x, x) < 0."""
    if diagonal.min() < 0:
        raise SpecError(
            f"rpcholesky needs a positive semidefinite kernel, but k(x, x) = {diagonal.min():.3g} for a sampled "
            "row: use landmarks='uniform'"
        )


def choose_rows(
    X: Array, kernel: Kernel, size: int, tolerance: float, rng: np.random.Generator, in_order: Map = map
) -> Array:
    """Numbers of at most `size` rows of X (m, d) by accelerated RPCholesky, in the order of choice.

    Stops early when the residual trace is at most `tolerance` times the trace, or nothing but rounding is left.
    m · size kernel evaluations; the factor F (size, m) is held in float64. Raises SpecError where k(x, x) < 0.
    """
    rounding = _ROUNDING * rank_tolerance(X.dtype)
    diagonal = kernel.diagonal(X)
    check_diagonal(diagonal)
    left, total = diagonal.copy(), float(diagonal.sum())
    F, chosen = np.empty((size, len(X))), np.empty(0, np.intp)
    while len(chosen) < size and left.sum() > max(tolerance, rounding) * total:
        count = len(chosen)
        proposals = rng.choice(len(X), min(max(10, -(-size // 10)), size - count), p=left / left.sum())
        residual = kernel.gram(X[proposals]) - F[:count, proposals].T @ F[:count, proposals]
        bound = left[proposals]
        left[proposals] = np.maximum(np.diag(residual), 0)  # so that what is rounding alone is not drawn for ever
        kept, L = thinned(residual, bound, rounding * diagonal[proposals], rng)
        if not len(kept):
            continue
        new = proposals[kept]
        chosen = np.concatenate([chosen, new])
        _fill(F[:count], F[count : len(chosen)], X, kernel, new, L, in_order)
        left -= np.einsum("ij,ij->j", F[count : len(chosen)], F[count : len(chosen)])
        np.maximum(left, 0, out=left)
        left[new] = 0  # rounding must not bring a row back
    return chosen


def _fill(before: Array, rows: Array, X: Array, kernel: Kernel, new: Array, L: Array, in_order: Map) -> None:
    """rows = L⁻¹ (k(new, X) - before[:, new]' before): the next rows of the factor F."""
    anchors, known = X[new], before[:, new]

    def of_tile(start: int) -> Array:
        tile = slice(start, start + _TILE_ROWS)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = kernel(X[tile], anchors).astype(np.float64).T - known.T @ before[:, tile]
        check_overflow(columns, "the sampled rows")
        return solve_triangular(L, columns, lower=True, overwrite_b=True, check_finite=False)

    starts = range(0, len(X), _TILE_ROWS)
    for start, values in zip(starts, in_order(of_tile, starts), strict=True):
        rows[:, start : start + values.shape[1]] = values


@dataclass(frozen=True)
class Factor:
    """Landmarks S (l, d) and the Cholesky factor L (l, l) of k(S, S), grown a block at a time."""

    kernel: Kernel
    landmarks: Array
    L: Array

    @classmethod
    def empty(cls, kernel: Kernel, like: Array) -> Factor:
        """No landmarks yet; `like` (b, d) gives width and dtype."""
        return cls(kernel, like[:0], np.empty((0, 0)))

    def coordinates(self, X: Array) -> Array:
        """L⁻¹ k_S(x), (l, b): the feature vectors of rows X (b, d) that the landmarks span."""
        if not len(self.landmarks):
            return np.empty((0, len(X)))
        values = self.kernel(self.landmarks, X).astype(np.float64)
        return solve_triangular(self.L, values, lower=True, overwrite_b=True, check_finite=False)

    def residual_diagonal(self, X: Array) -> Array:
        """k(x, x) - |L⁻¹ k_S(x)|² of each row, (b,), not below zero."""
        Z = self.coordinates(X)
        return np.maximum(self.kernel.diagonal(X) - np.einsum("ij,ij->j", Z, Z), 0)

    def residual(self, X: Array) -> Array:
        """k(X, X) minus what the landmarks explain of it, (b, b)."""
        Z = self.coordinates(X)
        return self.kernel.gram(X) - Z.T @ Z

    def extended(self, X: Array, corner: Array) -> Factor:
        """With rows X (b, d) as further ones; corner (b, b) is the Cholesky factor of their residual."""
        L = np.block([[self.L, np.zeros((len(self.L), len(X)))], [self.coordinates(X).T, corner]])
        return Factor(self.kernel, np.concatenate([self.landmarks, X]), L)


@dataclass(frozen=True)
class Proposals:
    """Rows (m, d) drawn in proportion to weights `bound` (m,), upper bounds of their residuals, whose sum over all rows
    of the data is `total`."""

    rows: Array
    bound: Array
    total: float

    def blocks(self, size: int) -> Iterator[tuple[Array, Array]]:
        """(rows, bound) in blocks of at most `size`."""
        for start in range(0, len(self.rows), size):
            yield self.rows[start : start + size], self.bound[start : start + size]


def grown(
    factor: Factor, proposals: Proposals, size: int, least_accepted: float, least_trace: float, rng: np.random.Generator
) -> Factor:
    """The factor with proposals accepted by rejection until there are `size` landmarks, or proposals run out, or
    fewer than `least_accepted` of a block were accepted, or the residual trace is estimated below `least_trace`.

    A proposal stays valid however often landmarks are added, because residuals never grow.
    """
    for rows, bound in proposals.blocks(max(10, size // 10)):
        residual = factor.residual(rows)
        explained = float(np.mean(np.diag(residual) / bound))  # before this block: unbiased for trace / total
        if explained * proposals.total < least_trace:
            break
        least = _ROUNDING * rank_tolerance(rows.dtype) * factor.kernel.diagonal(rows)
        kept, L = thinned(residual, bound, least, rng)
        missing = size - len(factor.landmarks)
        if len(kept):
            factor = factor.extended(rows[kept[:missing]], L[:missing, :missing])
        if len(kept) >= missing or len(kept) < least_accepted * len(rows):
            break
    return factor


@dataclass(frozen=True)
class RPCholesky:
    """Rows drawn in proportion to what the landmarks before leave unexplained (the head of this file).

    The choice for small clusters, fast spectra and data that are not vectors. `over="sample"` draws from the bounded
    sample; `over="all"` from all rows, with the exact law: residual bounds are refreshed by a further pass over the
    data whenever less than `least_accepted` of the proposals are accepted, about ln(1/eta) / ln(1/least_accepted)
    passes for a relative residual trace eta, often none. `tol` stops when that eta is reached, with fewer landmarks
    than asked for; over all rows it costs one pass more, which makes sure.
    """

    name: ClassVar[str] = "rpcholesky"
    tol: float = 0.0
    over: Literal["sample", "all"] = "sample"
    least_accepted: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.tol < 1 or not 0 < self.least_accepted < 1 or self.over not in ("sample", "all"):
            raise SpecError(f"{self}: tol lies in [0, 1), least_accepted in (0, 1), over is 'sample' or 'all'")

    def most_rows(self, size: int) -> int:
        return max(20 * size, 20_000)

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        if self.over == "all":
            return 3 * rows * columns * itemsize + 24 * size * size
        return rows * columns * itemsize + 8 * size * rows  # the factor is held in float64

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[choose_rows(sample, kernel, size, self.tol, rng, in_order)]
