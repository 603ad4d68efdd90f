"""Automatic sizes: errors of a model predicted from sampled rows before any pass, and the search for a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log

import numpy as np
import scipy

from bigkpca.errors import Array
from bigkpca.numerics.evaluation import Estimate
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.solvers import nystroem_map

JUDGING_ROWS = 2048  # the largest number of rows for an estimate: they determine the error to about 1 % of itself
PAIRED_ROWS = 1024  # rows whose pairs estimate the kernel error of random features
_NEAR = 1.1  # the search ends where the smallest size that meets the tolerance is known to this factor
_LEAST_STEP, _LARGEST_STEP = 1.25, 4.0  # factors by which a size that fails grows
_STEEP, _FLAT = -4.0, -0.1  # bounds of the slope d log(error) / d log(size)


@dataclass(frozen=True)
class SizeTrial:
    """A size that was tried, with its relative error."""

    size: int
    error: float


@dataclass(frozen=True)
class SampleStratum:
    """Rows X (e, d), shifted and scaled, drawn from `count` rows without replacement; `shares` (e,) is the weight of
    those that each stands for, or their number."""

    X: Array
    count: int
    shares: Array


def trace_error(features: KernelRows, strata: Sequence[SampleStratum], center: bool) -> Estimate:
    """tr(E) / T of Nyström over the rows from which the strata are samples; E = K - K^, T an upper bound of tr(Kc):

        residual_i = k(x_i, x_i) - |z_i|²,   total_i = residual_i + |z_i - mean z|²,   ratio of their weighted sums,

    z = L⁻¹ k_S(x), W = L L'. The standard error is that of a ratio (linearised), 0 if the strata contain all rows.
    """
    S, kernel = features.landmarks.astype(np.float64), features.kernel
    parts = [stratum for stratum in strata if len(stratum.X)]
    rows = np.concatenate([part.X for part in parts]).astype(np.float64)
    weights = np.concatenate([part.shares for part in parts])
    missed = np.concatenate([np.full(len(part.X), 1 - len(part.X) / part.count) for part in parts])
    W, K, tolerance = features.gram(), kernel(S, rows), rank_tolerance(features.dtype)
    # A ridge at the rank tolerance: residuals are slightly too large if the rank rule would drop directions.
    ridge = W + np.diag(np.full(len(W), tolerance * np.trace(W)))
    try:  # Cholesky is much faster than the eigenvectors that an indefinite W needs
        L = scipy.linalg.cholesky(ridge, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        Z = nystroem_map(W, tolerance, positive=kernel.positive).T @ K
    else:
        Z = scipy.linalg.solve_triangular(L, K, lower=True, overwrite_b=True, check_finite=False)
    residuals = np.maximum(kernel.diagonal(rows) - np.einsum("ij,ij->j", Z, Z), 0)
    if center:
        Z -= (Z @ (weights / weights.sum()))[:, None]
    totals = residuals + np.einsum("ij,ij->j", Z, Z)
    return _ratio(residuals, totals, weights, missed)


def _ratio(numerators: Array, denominators: Array, weights: Array, missed: Array) -> Estimate:
    """Σ w a / Σ w b over sampled rows with its standard error; `missed` are the unsampled shares of their strata."""
    total = float(weights @ denominators)
    if not total > 0:  # the kernel is so narrow that no variance remains: the error is everything, or zero
        return Estimate(float((numerators > 0).any()), 0.0)
    value = float(weights @ numerators) / total
    spread = weights * (numerators - value * denominators)
    return Estimate(value, float(np.sqrt(np.sum(missed * spread**2))) / total)


def kernel_error(features: FeatureMap, X: Array, center: bool) -> Estimate:
    """|H(K - K^)H|_F / |Kc|_F of features whose error has either sign, over pairs of rows X (e, d) in user units.

    The diagonal is omitted, since it is a small part of all n² entries. The standard error is that of the jackknife
    over rows.
    """
    shifted = features.shifted(X)
    K = features.kernel(shifted, shifted).astype(np.float64)
    (V, _) = next(features.tiles([X], len(X)))
    E = K - V.astype(np.float64) @ V.T.astype(np.float64)
    unit = np.ldexp(1.0, -int(np.frexp(np.abs(K).max(initial=0.0))[1]))  # a power of 2, with which squares fit float64
    for A in (K, E):
        A *= unit
        if center:
            A -= A.mean(axis=0)
            A -= A.mean(axis=1)[:, None]
        np.fill_diagonal(A, 0)
    squares, wrong = (np.einsum("ij,ij->i", A, A) for A in (K, E))
    ratio = _ratio(wrong, squares, np.ones(len(X)), np.full(len(X), 4.0))  # 4 = 2², since each pair belongs to two rows
    value = float(np.sqrt(ratio.value))
    return Estimate(value, ratio.standard_error / (2 * value) if value else 0.0)


def next_size(tried: Sequence[SizeTrial], tol: float, *, start: int, most: int, step: int) -> int | None:
    """The next size to try, a multiple of `step` and at most `most`; None when the search is over.

    It is over when a size meets `tol` and a size smaller by a tenth, or by `step`, does not; or when `most` does not.
    Sizes follow secant steps: log(error) is assumed linear in log(size), within the bounds known so far.
    """
    if not tried:
        return min(start, most)
    met = min((trial.size for trial in tried if trial.error <= tol), default=None)
    failed = sorted((t for t in tried if t.error > tol and (met is None or t.size < met)), key=lambda t: t.size)
    if met is None:
        if failed[-1].size >= most:
            return None
        low = failed[-1].size
        guess = _crossing(failed[-2:], tol) * 1.02
        return min(_multiple(min(max(guess, _LEAST_STEP * low), _LARGEST_STEP * low), step), most)
    best = next(trial for trial in tried if trial.size == met)
    if not failed:
        return None if met <= step else max(_multiple(met / _LARGEST_STEP, step), step)
    low = failed[-1].size
    if met <= _NEAR * low or met - low <= step:
        return None
    guess = _crossing([failed[-1], best], tol)
    inside = min(max(guess, low * _NEAR**0.5), met / _NEAR**0.5)
    return min(max(_multiple(inside, step), low + step), met - step)


def extrapolated(tried: Sequence[SizeTrial], tol: float) -> int:
    """The size at which the trend of the last trials meets `tol`, to two digits."""
    size = _crossing(sorted(tried, key=lambda trial: trial.size)[-2:], tol)
    digits = 10 ** max(int(np.log10(size)) - 1, 0)
    return ceil(size / digits) * digits


def _crossing(trials: Sequence[SizeTrial], tol: float) -> float:
    """The size at which a power law through two trials, or through one with slope -1/2, meets `tol`."""
    last = trials[-1]
    slope = -0.5
    if len(trials) == 2 and trials[0].error > 0 and last.error > 0:
        slope = log(last.error / trials[0].error) / log(last.size / trials[0].size)
        slope = min(max(slope, _STEEP), _FLAT)
    return float(last.size * (tol / max(last.error, 1e-300)) ** (1 / slope))


def _multiple(size: float, step: int) -> int:
    """The smallest multiple of `step` that is not below the size."""
    return ceil(size / step) * step
