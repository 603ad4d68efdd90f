"""Estimates of a model's error on any rows, from exact kernels with m of them: one pass.

The approximation K^ is known everywhere, so that only E = K - K^ is sampled (a control variate): the error of an
estimate is in proportion to that of the model, not to K. Source: `docs/numerics.md`, section 15.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import stdtrit

from bigkpca.errors import Array
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.solvers import Solution

_ROUNDING = 1e-9  # of an eigenvalue, below which no standard error is meant
_NORMAL = 1.96  # standard errors on either side of a normal estimate hold the truth in 95 %


@dataclass(frozen=True)
class Probes:
    """m sampled rows R, by features: rows (m, d) shifted, scores Y (m, r), and C (m, D) with K^(R, x) = C v(x)."""

    rows: Array
    Y: Array
    C: Array


def probes(features: FeatureMap, solution: Solution, X: Array, P: Array | None) -> Probes:
    """Probes of rows X (m, d); P (D, q) with K^ = (V P)(V P)', None where V is that factor itself."""
    ((V, _),) = features.tiles([X], len(X))
    V = V.astype(np.float64)
    return Probes(features.shifted(X), (V - solution.mean) @ solution.components, V if P is None else (V @ P) @ P.T)


@dataclass(frozen=True)
class Sums:
    """What a pass leaves of n rows with features v_i and scores y_i, all float64; R are the m probes.

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
        """Of both sets of rows together."""
        return Sums(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))


def block_sums(
    X_tiles: Iterable[Array], features: FeatureMap, solution: Solution, given: Probes, most_rows: int
) -> Sums:
    """The sums of one block, one tile X (b, d) at a time."""
    m, dtype = len(given.rows), features.dtype
    evaluate, fill = features.kernel.against(given.rows, most_rows), features.filling(most_rows)
    K, values = np.empty((most_rows, m), dtype), np.empty((most_rows, features.size), dtype)
    mean, A, C = solution.mean.astype(dtype), solution.components.astype(dtype), given.C.astype(dtype)
    total: Sums | None = None
    for tile in X_tiles:
        X, V, exact, ones = features.shifted(tile), values[: len(tile)], K[: len(tile)], np.ones(len(tile), dtype)
        fill(X, V)
        evaluate(X, exact)
        Y = (V - mean) @ A
        error = exact - V @ C.T
        squares = np.einsum("ij,ij->j", error, error, dtype=np.float64)
        sums = Sums(
            count=len(tile),
            KY=(exact.T @ Y).astype(np.float64),
            K1=(ones @ exact).astype(np.float64),
            VY=(V.T @ Y).astype(np.float64),
            V1=(ones @ V).astype(np.float64),
            YY=(Y.T @ Y).astype(np.float64),
            Y1=(ones @ Y).astype(np.float64),
            trace=float(features.kernel.diagonal(X).sum()),
            squares=squares,
        )
        total = sums if total is None else total + sums
    assert total is not None  # a block has rows
    return total


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error, from m sampled rows: value ± 1.96 standard_error is a 95 % interval.

    It holds where the sample shows the tail. Where a few rows carry most of the error, as rows far from all others do
    of |K - K^|_F with k-means landmarks, samples without them promise too much.
    """

    value: float
    standard_error: float


@dataclass(frozen=True)
class Evaluation:
    """How wrong a model is on the rows it was evaluated on: estimates from m of n rows.

    eigenvalues (r,): u_j'Kc u_j of the unit score vectors u_j, free of the model's own bias; standard_errors (r,).
    residuals (r,): |Kc u_j - eigenvalue_j u_j| / eigenvalue_j.
    intervals (r, 2): of 95 %, for u_j'Kc u_j, and for lambda_j(Kc) where trust in the component is "solid":
        eigenvalue ± 1.96 standard errors, the upper end raised by the eigenvalue times the squared residual.
    frobenius: |K - K^|_F. total_variance: tr(Kc), or tr(K) when not centred.
    """

    rows: int
    sampled: int
    eigenvalues: Array
    standard_errors: Array
    residuals: Array
    intervals: Array
    frobenius: Estimate
    total_variance: Estimate


def evaluation(sums: Sums, given: Probes, P: Array | None, *, center: bool) -> Evaluation:
    """The estimates that the sums of all rows allow."""
    n, m = sums.count, len(given.rows)
    rest = max(1 - m / n, 0.0)  # sampled without replacement
    mean = sums.Y1 / n if center else np.zeros(len(sums.Y1))
    norms = np.sqrt(np.diag(sums.YY) - n * mean**2)
    U = (given.Y - mean) / norms  # at the probes
    KU = (sums.KY - np.outer(sums.K1, mean)) / norms
    VU = (sums.VY - np.outer(sums.V1, mean)) / norms
    ZU, Z1 = (VU, sums.V1) if P is None else (P.T @ VU, P.T @ sums.V1)
    EU = KU - given.C @ VU
    terms = n * U * EU
    values = np.einsum("ij,ij->j", ZU, ZU) + terms.mean(axis=0)
    errors = np.maximum(_standard_errors(terms, rest), _ROUNDING * values)
    away = KU - U * values
    if center:
        away -= away.mean(axis=0)
    residuals = np.sqrt(n / max(m - 1, 1) * np.sum(away**2, axis=0)) / values
    row_sums = sums.K1 - given.C @ sums.V1  # Σ E(R, x_i)
    return Evaluation(
        rows=n,
        sampled=m,
        eigenvalues=values,
        standard_errors=errors,
        residuals=residuals,
        intervals=np.column_stack([values - _NORMAL * errors, values * (1 + residuals**2) + _NORMAL * errors]),
        frobenius=_norm(n * sums.squares, rest),
        total_variance=_total(sums, float(Z1 @ Z1), row_sums, rest, center),
    )


def _standard_errors(samples: Array, rest: float) -> Array:
    """Of the means of samples (m, ...), so wide that 1.96 of them make 95 % intervals for heavy tails too.

        (t_ν / 1.96) s √(rest / m),   ν = (m - 1) / max((κ - 1) / 2, 1),

    κ the kurtosis of the samples: s² is as uncertain as with ν degrees of freedom, Var s² ≈ (κ - 1) σ⁴ / m.
    """
    m = len(samples)
    squares = (samples - samples.mean(axis=0)) ** 2
    variance = squares.mean(axis=0)
    shares = np.divide(squares, variance, out=np.zeros_like(squares), where=variance > 0)
    freedom = (m - 1) / np.maximum(((shares**2).mean(axis=0) - 1) / 2, 1)
    widened: Array = stdtrit(freedom, 0.975) / _NORMAL * np.sqrt(variance * rest / (m - 1))
    return widened


def _norm(squares: Array, rest: float) -> Estimate:
    """|E|_F, the root of the mean of n Σ_i e(R, x_i)², and its standard error to first order."""
    value = float(np.sqrt(squares.mean()))
    return Estimate(value, float(_standard_errors(squares, rest)) / (2 * value) if value else 0.0)


def _total(sums: Sums, explained: float, row_sums: Array, rest: float, center: bool) -> Estimate:
    """tr(Kc) = tr(K) - 1'K1 / n, with 1'K1 = 1'K^1 + Σ E: the first is exact, the second sampled."""
    if not center:
        return Estimate(sums.trace, 0.0)
    value = sums.trace - explained / sums.count - float(row_sums.mean())
    return Estimate(value, float(_standard_errors(row_sums, rest)))
