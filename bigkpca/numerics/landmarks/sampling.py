"""Landmarks drawn at random: uniformly, by ridge leverage scores, or by randomly pivoted Cholesky.

In randomly pivoted Cholesky, row s is drawn with probability d(s) / Σ d, where d(s) = k(s, s) - k_S(s)'W⁻¹k_S(s) is its
residual (Chen, Epperly, Tropp and Webber 2025). Blocks of proposals, drawn from an upper bound of d and thinned by
rejection, follow the same law with matrix products instead of single columns (Epperly, Tropp and Webber 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError, check_overflow
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map, rank_tolerance


@dataclass(frozen=True)
class Uniform:
    """Rows of the sample, drawn uniformly without replacement.

    Makes no pass over the data. Column sampling and the thesis's form of Nyström are valid only for these landmarks.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> X = np.arange(5.0)[:, None]
    >>> Uniform().choose(X, kernels.Gaussian(1.0), 5, np.random.default_rng(0)).ravel()
    array([0., 1., 2., 3., 4.])
    """

    name: ClassVar[str] = "uniform"

    def most_rows(self, size: int) -> int:
        return size

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        return size * columns * itemsize + 8 * rows

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[np.sort(rng.choice(len(sample), size, replace=False))]


_LEVERAGE_TILE_ROWS = 1024


def leverage_rows(X: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
    """Numbers of `size` distinct rows of X (m, d), drawn without replacement in proportion to their leverage scores.

    Scores of nested random halves of the rows, from the smallest up, come from a weighted sample S of the previous
    half:

        score_i = min(1, log(size) / lam · (k_ii - k_iS (W + lam diag(w)^-2)^-1 k_Si)).

    About 2 m size kernel evaluations.
    """
    order = rng.permutation(len(X))
    levels = [len(X)]
    while levels[-1] > 2 * size:
        levels.append(levels[-1] // 2)
    chosen = order[: min(levels[-1], size)]
    weights = np.ones(len(chosen))
    scores = np.ones(len(X))
    for count in reversed(levels):
        scores = leverage_scores(X[order[:count]], X[chosen], weights, kernel, size, in_order)
        kept = np.flatnonzero(rng.random(count) < scores)
        if count < len(X) and len(kept):
            chosen, weights = order[kept], 1 / np.sqrt(scores[kept])
    return order[rng.choice(len(X), size, replace=False, p=scores / scores.sum())]


def leverage_scores(X: Array, S: Array, weights: Array, kernel: Kernel, size: int, in_order: Map) -> Array:
    """Approximate ridge leverage scores of rows X (m, d) from weighted rows S, in (0, 1]."""
    with np.errstate(over="ignore", invalid="ignore"):
        W = kernel.gram(S)
    check_overflow(W, "the sampled rows")
    # lam: the sum of the eigenvalues of the weighted Gram matrix beyond the k largest, over k
    k = max(1, int(size / (4 * np.log(max(size, 3)))))
    values = scipy.linalg.eigvalsh(weights[:, None] * W * weights)
    lam = float(max(values[:-k].sum() / k, 1e-12 * values[-1])) or 1.0  # any value will do if all kernels are zero
    try:
        factor = scipy.linalg.cho_factor(W + np.diag(lam / weights**2), lower=True)
    except np.linalg.LinAlgError:
        raise SpecError(
            "leverage scores need a positive semidefinite kernel, but this one is indefinite on the sampled rows: use "
            "landmarks='uniform'"
        ) from None

    def of_tile(start: int) -> Array:
        rows = X[start : start + _LEVERAGE_TILE_ROWS]
        with np.errstate(over="ignore", invalid="ignore"):
            values = kernel(S, rows).astype(np.float64)
        check_overflow(values, "the sampled rows")
        return kernel.diagonal(rows) - np.einsum("ij,ij->j", values, scipy.linalg.cho_solve(factor, values))

    residual = np.concatenate(list(in_order(of_tile, range(0, len(X), _LEVERAGE_TILE_ROWS))))
    # The floor gives enough rows a positive chance if the kernel has far fewer directions than landmarks.
    return np.clip(np.log(max(size, 3)) / lam * residual, 1e-9, 1)


@dataclass(frozen=True)
class Leverage:
    """Rows drawn by recursive ridge leverage scores, which bound the error in the spectral norm.

    Makes no pass over the data: 20 l rows of the sample, at least 20,000, and about 2 m l kernel evaluations. The
    kernel must be positive semidefinite; `choose` raises SpecError if it is not. Source: Musco and Musco (2017),
    *NIPS*; `docs/numerics.md`, section 4.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> Leverage().choose(X, kernels.Gaussian(0.1), 3, np.random.default_rng(0)).shape
    (3, 1)
    """

    name: ClassVar[str] = "leverage"

    def most_rows(self, size: int) -> int:
        return max(20 * size, 20_000)

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        return rows * columns * itemsize + 8 * size * (4 * size + 4 * _LEVERAGE_TILE_ROWS)

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[leverage_rows(sample, kernel, size, rng, in_order)]


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


def check_diagonal(diagonal: Array) -> None:
    """Raise SpecError if k(x, x) < 0."""
    if diagonal.min() < 0:
        raise SpecError(
            f"rpcholesky needs a positive semidefinite kernel, but k(x, x) = {diagonal.min():.3g} for a sampled "
            "row: use landmarks='uniform'"
        )


def rpcholesky_rows(
    X: Array, kernel: Kernel, size: int, tolerance: float, rng: np.random.Generator, in_order: Map = map
) -> Array:
    """Numbers of at most `size` rows of X (m, d) by accelerated RPCholesky, in the order of choice.

    Stops early when the residual trace is at most `tolerance` times the trace, or only rounding remains. m · size
    kernel evaluations; the factor F (size, m) is held in float64. Raises SpecError if k(x, x) < 0.
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
        left[proposals] = np.maximum(np.diag(residual), 0)  # otherwise rounding would be drawn forever
        kept, L = thinned(residual, bound, rounding * diagonal[proposals], rng)
        if not len(kept):
            continue
        new = proposals[kept]
        chosen = np.concatenate([chosen, new])
        _fill(F[:count], F[count : len(chosen)], X, kernel, new, L, in_order)
        left -= np.einsum("ij,ij->j", F[count : len(chosen)], F[count : len(chosen)])
        np.maximum(left, 0, out=left)
        left[new] = 0  # rounding must not let a row be drawn again
    return chosen


def _fill(before: Array, rows: Array, X: Array, kernel: Kernel, new: Array, L: Array, in_order: Map) -> None:
    """rows = L⁻¹ (k(new, X) - before[:, new]'before): the next rows of the factor F."""
    anchors, known = X[new], before[:, new]

    def of_tile(start: int) -> Array:
        tile = slice(start, start + _TILE_ROWS)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = kernel(X[tile], anchors).astype(np.float64).T - known.T @ before[:, tile]
        check_overflow(columns, "the sampled rows")
        return scipy.linalg.solve_triangular(L, columns, lower=True, overwrite_b=True, check_finite=False)

    starts = range(0, len(X), _TILE_ROWS)
    for start, values in zip(starts, in_order(of_tile, starts), strict=True):
        rows[:, start : start + values.shape[1]] = values


@dataclass(frozen=True)
class Factor:
    """Landmarks S (l, d) and the Cholesky factor L (l, l) of k(S, S), which grow by blocks."""

    kernel: Kernel
    landmarks: Array
    L: Array

    @classmethod
    def empty(cls, kernel: Kernel, like: Array) -> Factor:
        """A factor without landmarks; `like` (b, d) sets width and dtype."""
        return cls(kernel, like[:0], np.empty((0, 0)))

    def coordinates(self, X: Array) -> Array:
        """L⁻¹ k_S(x), (l, b): coordinates of rows X (b, d) in the span of the landmarks."""
        if not len(self.landmarks):
            return np.empty((0, len(X)))
        values = self.kernel(self.landmarks, X).astype(np.float64)
        return scipy.linalg.solve_triangular(self.L, values, lower=True, overwrite_b=True, check_finite=False)

    def residual_diagonal(self, X: Array) -> Array:
        """k(x, x) - |L⁻¹ k_S(x)|² of rows X (b, d), (b,), not below zero."""
        Z = self.coordinates(X)
        return np.maximum(self.kernel.diagonal(X) - np.einsum("ij,ij->j", Z, Z), 0)

    def residual(self, X: Array) -> Array:
        """k(X, X) less the part that the landmarks explain, (b, b)."""
        Z = self.coordinates(X)
        return self.kernel.gram(X) - Z.T @ Z

    def extended(self, X: Array, corner: Array) -> Factor:
        """The factor with further landmarks X (b, d); corner (b, b) is the Cholesky factor of their residual."""
        L = np.block([[self.L, np.zeros((len(self.L), len(X)))], [self.coordinates(X).T, corner]])
        return Factor(self.kernel, np.concatenate([self.landmarks, X]), L)


@dataclass(frozen=True)
class Proposals:
    """Rows (m, d) drawn in proportion to weights.

    bound (m,): the weights, upper bounds of the residuals. total: their sum over all rows of the data.
    """

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
    """Extend a factor by rejection from proposals, up to `size` landmarks.

    Stops earlier if proposals run out, if less than the share `least_accepted` of a block was accepted, or if the
    residual trace is estimated to be below `least_trace`. Proposals stay valid as landmarks are added, since residuals
    never grow.
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
    """Randomly pivoted Cholesky: rows drawn in proportion to what earlier landmarks leave unexplained.

    Recommended for small clusters, fast-decaying spectra and data that are not vectors.

    Makes no pass with over="sample". With over="all", about ln(1/eta) / ln(1/least_accepted) passes, often none, and
    one more to verify `tol`. In both cases the law is exactly that of RPCholesky. Raises SpecError if an option is out
    of range; from `choose`, if k(x, x) < 0. Source: Chen, Epperly, Tropp and Webber (2025), *Comm. Pure Appl. Math.*;
    Epperly, Tropp and Webber (2024), arXiv; `docs/numerics.md`, section 4.

    Parameters
    ----------
    tol : float
        Relative residual trace eta at which to stop with fewer landmarks than requested, in [0, 1).
    over : {"sample", "all"}
        Rows to draw from: the bounded sample, or all rows.
    least_accepted : float
        With over="all": a pass renews the bounds if a smaller share of proposals is accepted; in (0, 1).

    Examples
    --------
    >>> from bigkpca import kernels
    >>> X = np.array([[0.0], [0.0], [9.0]])
    >>> np.sort(RPCholesky().choose(X, kernels.Gaussian(1.0), 3, np.random.default_rng(0)).ravel())
    array([0., 9.])
    """

    name: ClassVar[str] = "rpcholesky"
    tol: float = 0.0
    over: Literal["sample", "all"] = "sample"
    least_accepted: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.tol < 1 or not 0 < self.least_accepted < 1 or self.over not in ("sample", "all"):
            raise SpecError(f"{self}: tol must be in [0, 1), least_accepted in (0, 1), and over 'sample' or 'all'")

    def most_rows(self, size: int) -> int:
        return max(20 * size, 20_000)

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        if self.over == "all":
            return 3 * rows * columns * itemsize + 24 * size * size
        return 8 * size * (rows + 3 * _TILE_ROWS) + size * columns * itemsize  # the factor is held in float64

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator, in_order: Map = map) -> Array:
        return sample[rpcholesky_rows(sample, kernel, size, self.tol, rng, in_order)]
