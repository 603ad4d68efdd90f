"""Estimates of a model's error on any rows, from exact kernels with m sampled rows; one pass.

The approximation K^ is known everywhere, so only E = K - K^ is sampled (a control variate): the errors of the estimates
are proportional to E, not to K. Rows are drawn in proportion to their expected share of the error. Source:
`docs/numerics.md`, section 15.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics.array_api import astype, empty, inner_products, moved, on_host
from bigkpca.numerics.display import ShowsSummary, Summary, number
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.linear_pca import Captured, Lost
from bigkpca.numerics.moments import added_pieces

_ROUNDING = 1e-9  # of an eigenvalue: the smallest standard error that is reported
_NORMAL = 1.96  # standard errors to either side of a normal estimate: a 95 % interval


@dataclass(frozen=True)
class Pool:
    """M uniformly drawn rows, from which the probes are chosen: own (M,) = |E(x, x)|, and scores Y (M, r)."""

    own: Array
    Y: Array


def pool(features: FeatureMap, solution: Solution, X_tiles: Iterable[Array], P: Array | None, most_rows: int) -> Pool:
    """The pool of rows in tiles X (b, d); P as in `probes`.

    Random features have errors of either sign between rows, and almost none at (x, x): own is 1 for all rows.
    """
    fill, values = features.filling(most_rows), np.empty((most_rows, features.size), features.dtype)
    own, scores = [], []
    for tile in X_tiles:
        X, V = features.shifted(tile), values[: len(tile)]
        fill(X, V)
        exact = features.kernel.diagonal(X).astype(np.float64)
        own.append(np.ones(len(X)) if P is None else np.abs(exact - np.sum((V.astype(np.float64) @ P) ** 2, axis=1)))
        scores.append(solution.projection()(V))
    return Pool(np.concatenate(own), np.concatenate(scores))


def sizes(given: Pool, *, center: bool) -> Array:
    """q (M,), the expected shares of the pool's rows in the error; Σ q = 1.

        q_i = (1/M + e_i / Σ e + mean over j of e_i u_ij² / Σ e u_j²) / 3,   e_i = |E(x_i, x_i)|,

    u_j the scores, less their mean when centred. The third part is for eigenvalues: e u_j² are the diagonal terms of
    u_j'E u_j, and most of it for narrow kernels. The second is for norm and trace: if E is positive semidefinite, Σ_k
    E(x_i, x_k)² <= e_i |E|. The first bounds every weight by three times that of a uniform sample.
    """
    U = given.Y - given.Y.mean(axis=0) if center else given.Y
    of_components = _shares(given.own[:, None] * U**2).mean(axis=1)
    return (1 / len(U) + _shares(given.own) + of_components) / 3


def _shares(values: Array) -> Array:
    """values / Σ values; equal shares if all are zero, and if kernels overflow, which the pass rejects."""
    total = values.sum(axis=0)
    usable = (total > 0) & np.isfinite(total)
    return np.divide(values, total, out=np.full(values.shape, 1 / len(values)), where=usable)


@dataclass(frozen=True)
class Sample:
    """m rows of n, drawn in two steps without replacement: M uniformly, then m of those with chances π (m,)."""

    chances: Array
    pool: int
    rows: int

    @property
    def _weights(self) -> Array:
        return 1 / (self.chances * self.pool)

    def mean(self, values: Array) -> Array:
        """The estimated mean over all n rows of values (m, ...): Σ x / (π M), unbiased (Horvitz and Thompson 1952)."""
        return np.tensordot(self._weights, values, axes=1)

    def standard_errors(self, values: Array) -> Array:
        """Standard errors of `mean`, so wide that 1.96 of them give 95 % intervals for heavy tails: (t_ν / 1.96) √Σ d,

            d = m/(m - 1) [(1 - π) (w x - B)² + (1/M - 1/n) w (x - x̄)²],   w = 1 / (π M),   x̄ = Σ w x,
            B = Σ (1 - π) w x / Σ (1 - π),   ν = (m - 1) / max((κ - 1) / 2, 1),   κ = m Σ d² / (Σ d)².

        The first part of d comes from the second step (Hájek 1964), the second part from the first. For uniform samples
        Σ d = (1 - m/n) s² / m and κ is the kurtosis: s² is as uncertain as with ν degrees of freedom,
        Var s² ≈ (κ - 1) σ⁴ / m.
        """
        m = len(values)
        column = (m,) + (1,) * (values.ndim - 1)
        weights, left = self._weights.reshape(column), (1 - self.chances).reshape(column)
        parts = weights * values
        middle = (left * parts).sum(axis=0) / max(left.sum(), np.finfo(float).tiny)
        outside = 1 / self.pool - 1 / self.rows
        squares = left * (parts - middle) ** 2 + outside * weights * (values - parts.sum(axis=0)) ** 2
        total = squares.sum(axis=0) * m / (m - 1)
        freedom = (m - 1) / np.maximum((m * np.sum(_shares(squares) ** 2, axis=0) - 1) / 2, 1)
        return scipy.special.stdtrit(freedom, 0.975) / _NORMAL * np.sqrt(total)


def draw(q: Array, count: int, rows: int, rng: np.random.Generator) -> tuple[Array, Sample]:
    """Choose `count` rows of a pool with sizes q (M,): their numbers, ascending, and the sample of all `rows` rows.

    Chances are π = min(1, c q), Σ π = count. Points a unit apart, the first at random, hit intervals of lengths π in
    random order (Hartley and Rao 1962).
    """
    descending = np.sort(q)[::-1]
    scales = (count - np.arange(count)) / np.cumsum(descending[::-1])[::-1][:count]  # c, if this many rows have π = 1
    certain = np.argmax(scales * descending[:count] <= 1)
    chances = np.minimum(scales[certain] * q, 1) if count < len(q) else np.ones(count)
    order = rng.permutation(len(q))
    ends = np.cumsum(chances[order])
    points = (np.arange(count) + rng.random()) * (ends[-1] / count)
    numbers = np.sort(order[np.searchsorted(ends[:-1], points, side="right")])
    return numbers, Sample(chances[numbers], len(q), rows)


@dataclass(frozen=True)
class Probes:
    """m sampled rows R: rows (m, d), shifted, scores Y (m, r), and C (m, D) with K^(R, x) = C v(x)."""

    rows: Array
    Y: Array
    C: Array
    sample: Sample


def probes(features: FeatureMap, solution: Solution, X: Array, P: Array | None, sample: Sample) -> Probes:
    """The probes of rows X (m, d); P (D, q) with K^ = (V P)(V P)', None if V is that factor itself."""
    ((V, _),) = features.tiles([X], len(X))
    V = V.astype(np.float64)
    C = V if P is None else (V @ P) @ P.T
    return Probes(features.shifted(X), solution.projection()(V), C, sample)


@dataclass(frozen=True)
class Sums:
    """Sums over n rows with features v_i and scores y_i, all float64; R are the m probes.

    KY (m, r) = Σ k(R, x_i) y_i', K1 (m,) = Σ k(R, x_i), VY (D, r) = Σ v_i y_i', V1 (D,) = Σ v_i,
    YY (r, r) = Σ y_i y_i', Y1 (r,) = Σ y_i, trace = Σ k(x_i, x_i), squares (m,) = Σ (k(R, x_i) - k^(R, x_i))².
    """

    count: int
    KY: Array
    K1: Array
    VY: Array
    V1: Array
    YY: Array
    Y1: Array
    trace: float
    squares: Array

    def __add__(self, other: Sums) -> Sums:
        """Sums of both sets of rows together."""
        return Sums(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))


def block_sums(
    X_tiles: Iterable[Array], features: FeatureMap, solution: Solution, given: Probes, most_rows: int
) -> Sums:
    """The sums of one block, one tile X (b, d) at a time."""
    dtype, like = features.dtype, features.offset
    evaluate, fill = features.kernel.against_anywhere(moved(given.rows, like), most_rows), features.filling(most_rows)
    K, values = empty((most_rows, len(given.rows)), like, dtype), empty((most_rows, features.size), like, dtype)
    project, C = solution.projection(dtype), moved(given.C.astype(dtype), like)
    total: Sums | None = None
    for tile in X_tiles:
        X, V_tile, K_tile = features.shifted(tile), values[: tile.shape[0], :], K[: tile.shape[0], :]
        fill(X, V_tile)
        evaluate(X, K_tile)
        diagonal = features.kernel.diagonal_anywhere(X)
        for own in added_pieces(V_tile):
            V, exact, ones = V_tile[own, :], K_tile[own, :], moved(np.ones(own.stop - own.start, dtype), like)
            Y = project(V)
            error = exact - V @ C.T
            sums = Sums(
                count=own.stop - own.start,
                KY=astype(exact.T @ Y, np.float64),
                K1=astype(ones @ exact, np.float64),
                VY=astype(V.T @ Y, np.float64),
                V1=astype(ones @ V, np.float64),
                YY=astype(Y.T @ Y, np.float64),
                Y1=astype(ones @ Y, np.float64),
                trace=float(diagonal[own].sum()),
                squares=inner_products(error, error, np.float64, axis=0),
            )
            total = sums if total is None else total + sums
    assert total is not None  # a block has rows
    found: dict[str, Any] = {part.name: getattr(total, part.name) for part in fields(total)}
    found |= {name: on_host(value) for name, value in found.items() if not isinstance(value, int | float)}
    return Sums(**found)


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error, from m sampled rows; value ± 1.96 standard_error is a 95 % interval."""

    value: float
    standard_error: float

    @property
    def at_most(self) -> float:
        """The estimate plus two standard errors, for comparison with a tolerance."""
        return self.value + 2.0 * self.standard_error


@dataclass(frozen=True, repr=False)
class Evaluation(ShowsSummary):
    """Estimated errors of a model on n rows, from m of them.

    Source: `docs/numerics.md`, section 15.

    Attributes
    ----------
    rows, sampled : int
        n and m.
    eigenvalues : (r,) array
        u_j'Kc u_j of the unit score vectors u_j, free of the model's bias.
    standard_errors : (r,) array
        Standard errors of the eigenvalues, from sampling rows.
    residuals : (r,) array
        |Kc u_j - eigenvalue_j u_j| / eigenvalue_j.
    intervals : (r, 2) array
        95 % intervals of u_j'Kc u_j: eigenvalue ± 1.96 standard errors. The upper end is raised by the eigenvalue times
        the squared residual, the most by which lambda_j(Kc) can be larger if no other eigenvalue is near. They are not
        intervals of lambda_j itself: score vectors do not show what landmarks missed, or neighbours that mix.
    frobenius : Estimate
        |K - K^|_F.
    total_variance : Estimate
        tr(Kc), or tr(K) when not centred.
    captured : Captured or None
        The share of the columns that the scores explain, beside linear PCA, from the rows that the sample was drawn
        from; None if these are too few, or for kernels that do not compare quantities.
    lost : Lost or None
        The error of pre-images of some of these rows, beside linear PCA; None also for models without pre-images.
    """

    rows: int
    sampled: int
    eigenvalues: Array
    standard_errors: Array
    residuals: Array
    intervals: Array
    frobenius: Estimate
    total_variance: Estimate
    captured: Captured | None = None
    lost: Lost | None = None

    def summary(self) -> Summary:
        """The estimates with their standard errors."""
        facts = {
            "|K - K^|": f"{number(self.frobenius.value)} ± {number(self.frobenius.standard_error)}",
            "total variance": f"{number(self.total_variance.value)} ± {number(self.total_variance.standard_error)}",
        }
        if self.captured is not None:
            facts["columns explained"] = "{:.1%}, by linear PCA {:.1%}".format(*self.captured.shares)
        columns = {
            "u'Kc u": self.eigenvalues,
            "standard error": self.standard_errors,
            "residual": self.residuals,
            "at least, 95%": self.intervals[:, 0],
            "at most, 95%": self.intervals[:, 1],
        }
        return Summary(f"Evaluation on {self.rows:,} rows, from {self.sampled:,} of them", facts, columns)


def evaluation(sums: Sums, given: Probes, P: Array | None, *, center: bool) -> Evaluation:
    """The estimates from the sums of all rows."""
    n, m, sample = sums.count, len(given.rows), given.sample
    mean = sums.Y1 / n if center else np.zeros(len(sums.Y1))
    norms = np.sqrt(np.diag(sums.YY) - n * mean**2)
    U = (given.Y - mean) / norms  # at the probes
    KU = (sums.KY - np.outer(sums.K1, mean)) / norms
    VU = (sums.VY - np.outer(sums.V1, mean)) / norms
    ZU, Z1 = (VU, sums.V1) if P is None else (P.T @ VU, P.T @ sums.V1)
    EU = KU - given.C @ VU
    terms = n * U * EU
    values = np.einsum("ij,ij->j", ZU, ZU) + sample.mean(terms)
    errors = np.maximum(sample.standard_errors(terms), _ROUNDING * values)
    away = KU - U * values
    if center:
        away -= sample.mean(away) / sample.mean(np.ones(m))
    residuals = np.sqrt(n * m / (m - 1) * sample.mean(away**2)) / values
    # |E|_F is the root of the mean of n Σ_i e(R, x_i)²; its standard error is to first order.
    frobenius = float(np.sqrt(sample.mean(n * sums.squares)))
    half_width = float(sample.standard_errors(n * sums.squares)) / (2 * frobenius) if frobenius else 0.0
    total, of_total = sums.trace, 0.0
    if center:  # tr(Kc) = tr(K) - 1'K1 / n with 1'K1 = 1'K^1 + Σ E, where the first term is exact, the second sampled
        row_sums = sums.K1 - given.C @ sums.V1  # Σ E(R, x_i)
        total = sums.trace - float(Z1 @ Z1) / sums.count - float(sample.mean(row_sums))
        of_total = float(sample.standard_errors(row_sums))
    return Evaluation(
        rows=n,
        sampled=m,
        eigenvalues=values,
        standard_errors=errors,
        residuals=residuals,
        intervals=np.column_stack([values - _NORMAL * errors, values * (1 + residuals**2) + _NORMAL * errors]),
        frobenius=Estimate(frobenius, half_width),
        total_variance=Estimate(total, of_total),
    )
