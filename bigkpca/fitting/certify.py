"""The certificate of a solution: from the sums of a pass and the rows that it drew, or from products with K."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics import judge, precision
from bigkpca.numerics.certificate import CONFIDENCE, Certificate
from bigkpca.numerics.drawn_rows import DrawnRows
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.linalg import ALGEBRA, rank_tolerance, rounding_of_eigenvalues
from bigkpca.numerics.methods import Nystroem
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.random_streams import KRYLOV, random_stream
from bigkpca.numerics.span import Span
from bigkpca.spec import FitSpec

_SPARE = 10  # components


def wider(count: int) -> int:
    """The number of components by which `count` of them are judged: the last of these may mix with others."""
    return count + max(count, _SPARE)


class Solutions(NamedTuple):
    """The solution that a model keeps, a `wide` one by which it is judged, and the moments that both come from."""

    kept: Solution
    wide: Solution
    moments: Moments


def of_sums(
    features: FeatureMap,
    solutions: Solutions,
    span: Span | None,
    kept: precision.Kept | None,
    slack: precision.Slack,
    drawn: DrawnRows,
    spec: FitSpec,
) -> Certificate:
    """The certificate from the sums of a pass and the rows that it drew.

    With landmarks, Nyström's solution judges those of all methods, and bounds are proven if the kernel is positive
    semidefinite: then the span has `kept` some of its directions. Without a span, features are random.
    """
    solution, wide, moments = solutions
    values, r = solution.eigenvalues, len(solution.eigenvalues)
    if span is None:
        added = features.unexplained(moments.squares, moments.weight)
        error = judge.error_of(features, lambda _: lambda V: V, np.ones(features.size), drawn, added)
        trace_error = moments.trace - moments.squares - added * moments.weight
    else:
        added = 0.0
        error = judge.error_of(features, span.basis.coordinates, span.basis.signs, drawn)
        trace_error = span.trace_error
    if kept is None:
        missed = judge.missed_of_any(error, trace_error)
    else:
        coarse = ALGEBRA * moments.trace + kept.trace
        if trace_error < -coarse:
            raise DataError(
                f"the landmarks explain {1 - trace_error / moments.trace:.9g} of Σ k(x, x), more than all of it: "
                "rounding, or a kernel that is not positive semidefinite. Fit with dtype float64, remove or "
                "standardise columns of very different size, or omit psd=True from a kernel function"
            )
        trace_error = min(max(trace_error, 0.0) + coarse, moments.trace)
        missed = judge.missed_of_positive(error, drawn, random_stream(spec.random_state, KRYLOV))
        missed = replace(missed, most=min(missed.most + kept.dropped, trace_error))
    bounds = precision.bounds(slack, wide.eigenvalues, wide.components)
    rounding = _padded(1 - np.divide(bounds.lower, wide.eigenvalues), r, 1.0)
    lengths = np.sqrt(np.maximum(wide.eigenvalues - added, np.finfo(float).tiny))
    Q = error.scores(wide.mean, wide.components) / lengths
    judged = judge.estimates(error, Q, wide.eigenvalues, moments.weight if spec.center else np.inf)
    rank_ended_it = len(wide.eigenvalues) < wider(r)
    beyond = rank_tolerance(features.dtype) * wide.eigenvalues[0] if rank_ended_it else wide.eigenvalues[-1]
    others = missed.norm + float(beyond)  # the largest eigenvalue of the directions beyond those of the wide solution
    cosine = _padded(judged.cosines(others), r, 0.0)
    if span is not None and spec.method_value != Nystroem():
        cosine = judge.cosine_of_both(cosine, judge.agreement_of(moments, wide, solution, spec.center))
    if span is None:
        known = _estimated(judged, values, 0.0, np.inf, rounding, missed, others)
        return Certificate.of(r, cosine=cosine, missed=missed.most / values, rounding=rounding, **known)
    if kept is None:
        off = np.abs(values - _padded(wide.eigenvalues, r, 0.0))  # 0 for Nyström, whose eigenvalues these are
        return Certificate.of(r, cosine=cosine, missed=(missed.most + off) / values, rounding=rounding)
    lower = _padded(np.sort(bounds.lower)[::-1], r, 0.0)
    upper = _padded(np.sort(bounds.upper)[::-1], r, float(bounds.upper[-1])) + missed.most
    explained = max(span.variance(spec.center) - trace_error, float(lower.sum()))
    # Of other methods, the sum of the eigenvalues may exceed what the landmarks explain.
    whole = max(explained + trace_error, solution.total_variance)
    return Certificate.of(
        r,
        lower=lower,
        upper=upper,
        cosine=cosine,
        missed=missed.most / values,
        rounding=rounding,
        unexplained=1 - explained / whole if whole > 0 else 1.0,
        confidence=CONFIDENCE if np.isfinite(missed.most) else 0.0,
        **_estimated(judged, values, lower, upper, rounding, missed, others),
    )


def _estimated(
    judged: judge.Estimates,
    values: Array,
    lower: Array | float,
    upper: Array | float,
    rounding: Array,
    missed: judge.Missed,
    others: float,
) -> dict[str, Array]:
    """The estimated eigenvalues and their standard errors; NaN where they may be those of missed directions."""
    r = len(values)
    if len(judged.eigenvalues) < r or not np.isfinite(missed.norm):
        return {}
    estimate = np.clip(judged.eigenvalues[:r], lower, upper)
    estimate[(estimate <= 2 * missed.norm) | (values < missed.most)] = np.nan
    cut = judged.added[:r] * others / np.maximum(estimate - others, missed.norm)  # beyond the second order
    errors = np.sqrt(judged.standard_errors[:r] ** 2 + cut**2 + (rounding * values) ** 2)
    return {"estimate": estimate, "standard_error": np.where(np.isnan(estimate), np.nan, errors)}


def _padded(values: Array, r: int, rest: float) -> Array:
    """The first r values; other methods may have more components than Nyström's."""
    return np.pad(values[:r], (0, max(r - len(values), 0)), constant_values=rest)


def of_gram(solution: Solution, largest: float, error: float, unit: float) -> Certificate:
    """The certificate of the whole Gram matrix (n, n): its only error is rounding.

    `largest` is its largest absolute entry, `error` the largest error of an entry; kernels of new rows have the
    relative precision `unit`.
    """
    values, n = solution.eigenvalues, solution.components.shape[0]
    # Rounding is that of the eigenvalue of largest absolute value, which may be negative.
    slack = rounding_of_eigenvalues(n, error, largest, values[0] * max(1.0, -solution.negative))
    return Certificate.of(
        len(values),
        lower=np.maximum(values - slack, 0),
        upper=values + slack,
        estimate=values.copy(),
        standard_error=np.full(len(values), slack),
        cosine=np.ones(len(values)),
        missed=slack / values,
        # Scores of kernels with independent errors: √n unit largest |a_j|, |a_j|² = 1 / lambda_j, over √lambda_j.
        rounding=(slack + np.sqrt(n) * unit * largest) / values,
        unexplained=0.0,
        confidence=CONFIDENCE,
    )


def of_products(
    solution: Solution, residuals: Array, start: Certificate, started: Array, rounding: float
) -> Certificate:
    """The certificate of eigenpairs from products with Kc: lower bounds with known residuals.

    `rounding` is the norm of the error of K. What the products missed is bounded by what their start missed, whose
    eigenvalues were `started`.
    """
    values, r = solution.eigenvalues, len(solution.eigenvalues)
    missed, upper = np.inf, np.full(r, np.inf)
    if start.confidence:  # eigenvalues beyond those of the start are below its last one
        missed = float(start.missed[0] * started[0])
        upper = np.maximum(_padded(start.upper, r, float(start.upper[-1])), values + rounding)
    return Certificate.of(
        r,
        lower=np.maximum(values - rounding, 0),
        upper=upper,
        estimate=values.copy(),
        standard_error=residuals * values,
        residuals=residuals + rounding / values,
        missed=missed / values,
        rounding=rounding / values,
        confidence=start.confidence,
    )
