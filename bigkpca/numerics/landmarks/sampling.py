"""Landmarks drawn at random: uniformly, or by randomly pivoted Cholesky.

In randomly pivoted Cholesky, row s is drawn with probability d(s) / Σ d, where d(s) = k(s, s) - k_S(s)'W⁻¹k_S(s) is its
residual (Chen, Epperly, Tropp and Webber 2025). Blocks of proposals, drawn from an upper bound of d and thinned by
rejection, follow the same law with matrix products instead of single columns (Epperly, Tropp and Webber 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError, check_overflow
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import in_parts, rank_tolerance


@dataclass(frozen=True)
class Uniform:
    """Rows of the sample, drawn uniformly without replacement. Makes no pass over the data.

    Column sampling and the thesis's form of Nyström are valid only for these landmarks.
    """

    name: ClassVar[str] = "uniform"

    def most_rows(self, size: int) -> int:
        return size

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        return size * columns * itemsize + 8 * rows

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator) -> Array:
        return sample[np.sort(rng.choice(len(sample), size, replace=False))]


_TILE_ROWS = 1024
_ROUNDING = 10  # times the rank tolerance of k(x, x): a smaller residual is rounding


def thinned(residual: Array, bound: Array, least: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Positions of the proposals to keep, ascending, and the Cholesky factor of their residual Gram matrix.

    residual (b, b) is the Gram matrix of the proposals less the part that the landmarks explain; it is overwritten.
    bound (b,) are the weights with which the proposals were drawn, at least its diagonal. Proposal j is kept with
    probability d_j / bound_j, where d_j is its residual given the proposals kept before, and never if d_j is below
    least_j.
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


def rpcholesky_rows(X: Array, kernel: Kernel, size: int, tolerance: float, rng: np.random.Generator) -> Array:
    """Numbers of at most `size` rows of X (m, d) by accelerated RPCholesky, in the order of choice.

    Stops early when the residual trace is at most `tolerance` times the trace, or only rounding remains. m · size
    kernel evaluations; the factor F (size, m) is held in float64. Raises SpecError if k(x, x) < 0.
    """
    rounding = _ROUNDING * rank_tolerance(X.dtype)
    diagonal = kernel.diagonal(X)
    if diagonal.min() < 0:
        raise SpecError(
            f"rpcholesky needs a positive semidefinite kernel, but k(x, x) = {diagonal.min():.3g} for a sampled "
            "row: use landmarks='uniform'"
        )
    left, total = diagonal.copy(), float(diagonal.sum())
    F, chosen = np.empty((size, len(X))), np.empty(0, np.intp)
    while len(chosen) < size and left.sum() > max(tolerance, rounding) * total:
        count = len(chosen)
        proposals = rng.choice(len(X), min(max(10, -(-size // 10)), size - count), p=left / left.sum())
        residual = kernel.gram(X[proposals]) - F[:count, proposals].T @ F[:count, proposals]
        bound = left[proposals]
        left[proposals] = np.maximum(np.diag(residual), 0)  # otherwise rounding would be drawn forever
        kept, L = thinned(residual, bound, rounding * diagonal[proposals], rng)
        if not len(kept):
            continue
        new = proposals[kept]
        chosen = np.concatenate([chosen, new])
        _fill(F[:count], F[count : len(chosen)], X, kernel, new, L)
        left -= np.einsum("ij,ij->j", F[count : len(chosen)], F[count : len(chosen)])
        np.maximum(left, 0, out=left)
        left[new] = 0  # rounding must not let a row be drawn again
    return chosen


def _fill(before: Array, rows: Array, X: Array, kernel: Kernel, new: Array, L: Array) -> None:
    """rows = L⁻¹ (k(new, X) - before[:, new]'before): the next rows of the factor F."""
    anchors, known = X[new], before[:, new]

    def of_tile(start: int) -> Array:
        tile = slice(start, start + _TILE_ROWS)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = kernel(X[tile], anchors).astype(np.float64).T - known.T @ before[:, tile]
        check_overflow(columns, "the sampled rows")
        return scipy.linalg.solve_triangular(L, columns, lower=True, overwrite_b=True, check_finite=False)

    starts = range(0, len(X), _TILE_ROWS)
    for start, values in zip(starts, in_parts(of_tile, starts), strict=True):
        rows[:, start : start + values.shape[1]] = values


@dataclass(frozen=True)
class RPCholesky:
    """Randomly pivoted Cholesky: rows drawn in proportion to what earlier landmarks leave unexplained.

    Recommended for small clusters, fast-decaying spectra and data that are not vectors.

    Makes no pass over the data. Raises SpecError if the tolerance is out of range; from `choose`, if k(x, x) < 0.
    Source: Chen, Epperly, Tropp and Webber (2025), *Comm. Pure Appl. Math.*; Epperly, Tropp and Webber (2024), arXiv;
    `docs/numerics.md`, section 4.

    Parameters
    ----------
    tol : float
        Relative residual trace eta at which to stop with fewer landmarks than requested, in [0, 1).
    """

    name: ClassVar[str] = "rpcholesky"
    tol: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.tol < 1:
            raise SpecError(f"{self}: tol must be in [0, 1)")

    def most_rows(self, size: int) -> int:
        return max(20 * size, 20_000)

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        return 8 * size * (rows + 3 * _TILE_ROWS) + size * columns * itemsize  # the factor is held in float64

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator) -> Array:
        return sample[rpcholesky_rows(sample, kernel, size, self.tol, rng)]
