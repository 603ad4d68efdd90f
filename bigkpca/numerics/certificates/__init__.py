"""The certificate of a fit: bounds on its eigenvalues and on what the landmarks miss, and trust in each component.

For a positive semidefinite kernel E = K - K^ is positive semidefinite, so

    Lam_j <= lambda_j <= min over i <= j of Lam_i + tr(E) / (j - i + 1),   tr(HK^H) <= T <= tr(HK^H) + tr(E),
    lambda_j <= Lam_j + the largest eigenvalue of E:

lambda_j <= Lam_i + eigenvalue j - i + 1 of HEH (Weyl), and p times the p-th eigenvalue of HEH is at most its trace.

Proven up to rounding, which is measured: the trace error, and bounds of eigenvalues for a positive semidefinite kernel.
With 95 % confidence: what the landmarks missed, from rows that were not used to make them. Estimated: the learning
curve, stability, the leave-one-out residual. Source: `docs/numerics.md`, section 14.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from bigkpca.errors import Array, RoundingError
from bigkpca.numerics.certificates.estimates import Refined, refined
from bigkpca.numerics.certificates.spectral import (
    CONFIDENCE,
    Halved,
    SampledError,
    SpectralError,
    agreement_of,
    gaps,
    learning_curve,
    residuals_of,
    stability_of_features,
    stability_of_landmarks,
)
from bigkpca.numerics.display import (
    ShowsSummary,
    Summary,
    at_least,
    at_most,
    counted,
    number,
    plus_minus,
    share_at_most,
)
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.numerics.linalg import ALGEBRA, Map, arrays_of, rounding_of_eigenvalues
from bigkpca.numerics.methods import Method, Nystroem
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.rounding import Rounding, Significant
from bigkpca.numerics.span import Span

# Least stability, and largest residual, of "solid" and "fair" components. With a least stability of 0.99, a close
# neighbour can still have a share that halving does not show, and intervals of an evaluation miss the eigenvalue.
SOLID, FAIR = 0.995, 0.95
SMALL, MODERATE = 0.01, 0.1
MISSED = 1 / 3  # of an eigenvalue: landmarks may have missed at most this share if its component is solid
_HALF = 1 / 2  # the same for fair, if the cosine with the exact component is not estimated; otherwise all of it
NEAR = 1 / 4  # of what may be missed, a bound mostly several times the true value: components closer than this may mix

_NEARLY_ALL, _MOST = 0.95, 0.5  # of what components hold: the solid and fair part of accurate ones, and of a part


# Shapes of fields that are arrays; letters stand for sizes.
_VECTOR, _CURVE, _SAMPLE = ({"shape": shape} for shape in (("r",), ("k", 2), ("q", "d")))
# Numbers that models store as null where they are unknown. Later ones are left out there, so that the digests of models
# that were stored before them stay.
_WRITTEN_AS_NULL = frozenset(
    {
        "trace_error",
        "relative_trace_error",
        "leave_one_out_residual",
        "kernel_error",
        "spectral_error_likely",
        "confidence",
    }
)


@dataclass(frozen=True, repr=False)
class Certificate(ShowsSummary):
    """Bounds and estimates of the error of a fit. E = K - K^; T is tr(Kc), or tr(K) when not centred; r components.

    The attributes down to `cluster` are known for landmarks of a positive semidefinite kernel. None means not known.
    Source: `docs/numerics.md`, section 14.

    Attributes
    ----------
    trace_error : float
        tr(E) >= 0, from the sums of the pass.
    relative_trace_error : float
        A proven bound of tr(HEH) / T: tr(E), widened by rounding, over the sum of itself and the explained variance.
    eigenvalue_lower, eigenvalue_upper : (r,) array
        Proven bounds of lambda_j(Kc).
    explained_variance_ratio_lower, explained_variance_ratio_upper : (r,) array
        Proven bounds of lambda_j / T.
    spectral_error_likely : float
        An upper bound of the largest eigenvalue of E, with the probability `confidence`.
    confidence : float
        The probability that all bounds called likely are correct.
    eigenvalue_likely_upper, explained_variance_ratio_likely_upper : (r,) array
        The resulting bounds of lambda_j and lambda_j / T, for all j at once.
    eigenvalue_estimate, eigenvalue_standard_error : (r,) array
        Estimates of lambda_j and their standard errors, from the error of sampled rows, and rounding. NaN where
        an eigenvalue may be that of a direction that the landmarks miss.
    explained_variance_ratio_estimate : (r,) array
        The same estimates over the total variance of the model.
    cluster : float
        About the eigenvalue of a component that is missing, since its rows are similar to each other but to no
        landmark; 0 if none was found.
    missed : (r,) array
        The largest eigenvalue that may be missing, as a share of eigenvalue j: spectral_error_likely, or an estimate of
        the norm of H E H for random features and indefinite kernels. For other methods with landmarks the residual
        |K^ u_j - lambda_j u_j| / lambda_j against Nyström's K^ is added, so that it bounds the residual of u_j.
    sample : (q, d) array
        Rows behind the estimate of `missed`, in the units of the data, kept for when rows are added.
    rounding : (r,) array
        The largest rounding error of each eigenvalue, as a share of it; if all rows are landmarks, of the scores.
    learning_curve : (k, 2) array
        Number of landmarks, and the relative trace error of that subset of them.
    stability : (r,) array
        Estimated cosine of each component with the exact one, from the error of sampled rows. Without it, the cosine
        with the nearest component in Nyström's model of half the landmarks; for random features, between models of both
        halves.
    gap : (r,) array
        Distance of each eigenvalue to the nearest other that is not within 2 % of it, as a share of it; eigenvalues
        after the last one are those of the same model or, without them, of half the landmarks or features.
    leave_one_out_residual : float
        Mean of k(s, s) - |z(s)|² of uniform landmarks, each left out in turn: an estimate for a new row.
    kernel_error : float
        |H(K - K^)H|_F / |Kc|_F of random features, from pairs of sampled rows.
    residuals : (r,) array
        |Kc u_j - lambda_j u_j| / lambda_j from products with the exact Gram matrix: an eigenvalue of Kc lies within
        this share of lambda_j, but need not be the j-th.
    """

    trace_error: float | None = None
    relative_trace_error: float | None = None
    eigenvalue_lower: Array | None = field(default=None, metadata=_VECTOR)
    eigenvalue_upper: Array | None = field(default=None, metadata=_VECTOR)
    explained_variance_ratio_lower: Array | None = field(default=None, metadata=_VECTOR)
    explained_variance_ratio_upper: Array | None = field(default=None, metadata=_VECTOR)
    learning_curve: Array | None = field(default=None, metadata=_CURVE)
    stability: Array | None = field(default=None, metadata=_VECTOR)
    gap: Array | None = field(default=None, metadata=_VECTOR)
    leave_one_out_residual: float | None = None
    kernel_error: float | None = None
    residuals: Array | None = field(default=None, metadata=_VECTOR)
    spectral_error_likely: float | None = None
    eigenvalue_likely_upper: Array | None = field(default=None, metadata=_VECTOR)
    explained_variance_ratio_likely_upper: Array | None = field(default=None, metadata=_VECTOR)
    confidence: float | None = None
    missed: Array | None = field(default=None, metadata=_VECTOR)
    rounding: Array | None = field(default=None, metadata=_VECTOR)
    eigenvalue_estimate: Array | None = field(default=None, metadata=_VECTOR)
    eigenvalue_standard_error: Array | None = field(default=None, metadata=_VECTOR)
    explained_variance_ratio_estimate: Array | None = field(default=None, metadata=_VECTOR)
    cluster: float | None = None
    sample: Array | None = field(default=None, metadata=_SAMPLE)

    @property
    def trust(self) -> tuple[str, ...] | None:
        """Trust in each component: "solid", "fair" or "doubtful"; None if nothing is known about any.

        "solid": the missed share is at most 1/3, and the residual <= 0.01 or the stability, which estimates the cosine
        with the exact component, >= 0.995. "fair": the missed share is at most 1, so that nothing larger than the
        component is missed, and the stability >= 0.95; or the residual <= 0.1.

        Where the stability is that between models, the missed share must be at most four times the gap for "solid",
        since it may mix components that are close to each other, and at most 1/2 for "fair". There, a missed share of
        at most 0.01 is enough for "solid", one of 0.1 for "fair". Rounding must be at most 0.01 for "solid", 0.1 for
        "fair". If the missed share is not known, a residual can make a component solid, but stability only fair.
        """
        between_models = self.eigenvalue_estimate is None
        if self.residuals is not None:
            solid, fair = self.residuals <= SMALL, self.residuals <= MODERATE
        elif self.stability is not None:
            solid = (self.stability >= SOLID) & (self.missed is not None)
            fair = self.stability >= FAIR
            if self.missed is not None:
                if between_models:
                    solid &= NEAR * self.missed <= (np.inf if self.gap is None else self.gap)
                fair &= self.missed <= (_HALF if between_models else 1)
        elif self.missed is not None:
            solid, fair = np.zeros((2, len(self.missed)), bool)
        else:
            return None
        if self.missed is not None:
            solid = (solid & (self.missed <= MISSED)) | (between_models & (self.missed <= SMALL))
            fair = fair | (between_models & (self.missed <= MODERATE))
        if self.rounding is not None:
            solid, fair = solid & (self.rounding <= SMALL), fair & (self.rounding <= MODERATE)
        return tuple(np.select([solid, fair], ["solid", "fair"], "doubtful").tolist())

    def summary(self) -> Summary:
        """The bounds and estimates of the whole model, and of each component."""
        facts, sure = {}, f"{self.confidence:.0%}" if self.confidence else ""
        if self.trust:
            facts["trust"] = counted(self.trust)
        if self.relative_trace_error is not None:
            facts["unexplained"] = f"{share_at_most(self.relative_trace_error)} of the variance at most (proven)"
        if self.spectral_error_likely is not None:
            facts["missed"] = (
                f"no component with an eigenvalue above {number(at_most(self.spectral_error_likely))} ({sure})"
            )
        if self.leave_one_out_residual is not None:
            facts["residual of a new row"] = f"{number(self.leave_one_out_residual)} (estimated)"
        if self.kernel_error is not None:
            facts["error of the kernel"] = f"{self.kernel_error:.2%} (estimated)"
        columns = {
            **self.bounds,
            "estimate": self.estimates,
            "missed": self.missed,
            "rounding": self.rounding,
            "stability": self.stability,
            "gap": self.gap,
            "residual": _each(at_most, self.residuals),
            "trust": self.trust,
        }
        known = any(values is not None for values in columns.values())
        return Summary("Certificate" if facts or known else "Certificate that says nothing", facts, columns)

    @property
    def bounds(self) -> dict[str, Array]:
        """Known bounds of eigenvalues, (r,) each, rounded to the safe side, by the titles of their columns."""
        bounds = {
            "proven at least": _each(at_least, self.eigenvalue_lower),
            "proven at most": _each(at_most, self.eigenvalue_upper),
            f"at most, {self.confidence or 0:.0%}": _each(at_most, self.eigenvalue_likely_upper),
        }
        return {title: values for title, values in bounds.items() if values is not None}

    @property
    def estimates(self) -> tuple[str, ...] | None:
        """Estimated eigenvalues with their standard errors, as text, (r,); None if not known."""
        if self.eigenvalue_estimate is None or self.eigenvalue_standard_error is None:
            return None
        return tuple(map(plus_minus, self.eigenvalue_estimate, self.eigenvalue_standard_error))

    @classmethod
    def shapes(cls) -> dict[str, tuple[str | int, ...]]:
        """The shapes of the array fields, by name."""
        return {part.name: part.metadata["shape"] for part in fields(cls) if part.metadata}

    arrays = arrays_of

    def numbers(self) -> dict[str, float | None]:
        """The number fields, by name."""
        numbers = {part.name: getattr(self, part.name) for part in fields(self) if not part.metadata}
        return {name: value for name, value in numbers.items() if value is not None or name in _WRITTEN_AS_NULL}


def _each(rounded: Callable[[float], float], bounds: Array | None) -> Array | None:
    """The bounds, each rounded towards the safe side."""
    return None if bounds is None else np.array([rounded(bound) for bound in bounds])


def trustworthy(trust: tuple[str, ...]) -> int:
    """Number of leading components before the first doubtful one."""
    return next((number for number, word in enumerate(trust) if word == "doubtful"), len(trust))


def accuracy(trust: tuple[str, ...], shares: Array) -> tuple[str, float]:
    """How accurate components with these shares (r,) of the variance are, in words, and the part of it that is solid or
    fair.

    Doubtful components count by their share, since small ones at the end of a spectrum matter little.
    """
    trusted, held = np.array([word != "doubtful" for word in trust]), float(shares.sum())
    part = float(shares[trusted].sum()) / held if held else 0.0
    return "inaccurate" if part < _MOST else "accurate in part" if part < _NEARLY_ALL else "accurate", part


@dataclass(frozen=True)
class Proven:
    """Proven bounds of the eigenvalues lambda_j of Kc, widened by rounding.

    trace: tr(E). coarse: its rounding. error: the sum of both. total: T, of which `explained` is proven. most (r,):
    Nyström eigenvalues plus their rounding. slack (r,): how far Lam_j may exceed lambda_j by rounding. low, high (r,):
    bounds of lambda_j. shares (r,): upper bounds of lambda_j / T.
    """

    trace: float
    coarse: float
    error: float
    total: float
    explained: float
    slack: Array
    most: Array
    low: Array
    high: Array
    shares: Array


def proven(span: Span, nystroem: Solution, r: int, rounding: Array, trace_rounding: float, *, checked: bool) -> Proven:
    """The bounds of r eigenvalues from Nyström's solution, its rounding and that of tr(E).

    Raises RoundingError if tr(E) is negative beyond rounding and is to be `checked`.
    """
    moments, left, total = span.moments, span.trace_error, nystroem.total_variance
    slack = np.full(
        len(nystroem.eigenvalues), ALGEBRA * (float(nystroem.eigenvalues[0]) + moments.trace / moments.count)
    )
    slack += rounding
    coarse = ALGEBRA * moments.trace + trace_rounding
    if checked and left < -coarse:
        raise RoundingError(
            f"the landmarks explain {1 - left / moments.trace:.9g} of Σ k(x, x), more than all of it: rounding, or a "
            "kernel that is not positive semidefinite. Fit with dtype float64, remove or standardise columns of very "
            "different size, or omit psd=True from a kernel function"
        )
    trace, error = max(left, 0.0), max(left, 0.0) + coarse
    # Other methods may report more components than Nyström has, whose lower bound is zero.
    missing = r - len(nystroem.eigenvalues)
    values, slack = np.pad(nystroem.eigenvalues, (0, missing)), np.pad(slack, (0, missing), mode="edge")
    # Sorted again: an eigenvalue with a large rounding error may have moved past others with small ones.
    most = np.sort(values + slack)[::-1]
    lower = np.maximum(values - slack, 0)
    low, high = np.sort(lower)[::-1], _upper(most, error)
    # After an eigenvalue that is mostly rounding, all others are one place too far back.
    slack = np.where(low < lower, values - low, slack)
    explained = max(total - error, float(low.sum()))
    shares = _upper_shares(most, error, explained)
    return Proven(trace, coarse, error, total, explained, slack, most, low, high, shares)


def _upper(nystroem: Array, error: float) -> Array:
    """Upper bounds of lambda_1, ..., lambda_r from the Nyström eigenvalues (r,) and tr(E) = `error`."""
    i, j = np.indices((len(nystroem), len(nystroem)))
    bounds = np.where(i <= j, nystroem[:, None] + error / np.maximum(j - i + 1, 1), np.inf)
    return np.asarray(bounds.min(axis=0))


def _upper_shares(nystroem: Array, error: float, explained: float) -> Array:
    """Upper bounds of lambda_j / T, where T = explained + h with h = tr(HEH) anywhere in [0, error]:

        min over i <= j of  max over h of  (Lam_i + h / (j - i + 1)) / (explained + h),

    each of which is monotone in h, so its maximum is at an end.
    """
    if not explained > 0:
        return np.ones(len(nystroem))
    i, j = np.indices((len(nystroem), len(nystroem)))
    values = np.broadcast_to(nystroem[:, None], i.shape)
    ends = np.maximum(values / explained, (values + error / np.maximum(j - i + 1, 1)) / (explained + error))
    return np.minimum(np.where(i <= j, ends, np.inf).min(axis=0), 1)


@dataclass(frozen=True)
class Evidence:
    """The data of a certificate in addition to the sums of the pass.

    rounding: errors of its arithmetic. kept: the directions of W that exceed rounding. error: that of the rows which
    the passes drew; spectral: what it proves. missed: an estimate where there is no bound; sample: its rows. uniform:
    whether landmarks are a uniform sample. before: rounding of tr(E) and of eigenvalues before rows were added, and the
    share of the added rows.
    """

    rounding: Rounding | None = None
    kept: Significant | None = None
    error: SampledError | None = None
    spectral: SpectralError | None = None
    missed: float | None = None
    sample: Array | None = None
    uniform: bool = False
    before: tuple[float, float, float] = (0.0, 0.0, 1.0)

    def trace_rounding(self) -> float:
        """The largest rounding error of tr(E)."""
        earlier, _, share = self.before
        now = self.kept.trace_rounding if self.kept else 0.0
        return max(now, earlier + share * now)

    def rounding_of(self, moments: Moments, solution: Solution, center: bool) -> Array:
        """The largest rounding errors of the eigenvalues, (r,)."""
        _, earlier, share = self.before
        now = self.rounding.of_eigenvalues(moments, solution, center) if self.rounding else np.zeros(1)
        return np.maximum(now, earlier + share * now)


def of_landmarks(
    method: Method,
    features: KernelRows,
    solution: Solution,
    nystroem: Solution,
    span: Span,
    evidence: Evidence,
    *,
    center: bool,
    tolerance: float,
    in_order: Map = map,
) -> Certificate:
    """The certificate of a method with landmarks, from moments, W and evidence; see `proven`.

    `nystroem` is Nyström's solution, with more components.
    """
    moments, values, r = span.moments, solution.eigenvalues, len(solution.eigenvalues)
    others = 0.0 if evidence.spectral is None else _others(evidence.spectral, nystroem, span, center)
    better, compared = _compared(method, solution, nystroem, span, evidence, others, center, tolerance, in_order)
    # Eigenvalues of other methods are not bounds.
    apart = np.zeros(r) if method == Nystroem() else residuals_of(span, solution, center)
    nystroem = nystroem.first(r)
    if not features.kernel.positive or span.basis.indefinite:
        if evidence.missed is not None:
            # No bound of K^ is known: small eigenvalues of W can make it arbitrarily large, even through one row that
            # no sample contains. But no eigenvalue of K exceeds |K|_F, of which the landmarks see l / n. So the excess
            # of Lam_1 over 2 |K|_F counts as missed.
            frobenius = np.sqrt(moments.weight / len(span.basis.W) * moments.squares)
            evidence = replace(evidence, missed=max(evidence.missed, float(nystroem.eigenvalues[0]) - 2 * frobenius))
        return _estimated(compared, solution, moments, evidence, center, apart)
    rounding, checked = evidence.rounding_of(moments, nystroem, center), evidence.rounding is not None
    bounds = proven(span, nystroem, r, rounding, evidence.trace_rounding(), checked=checked)
    dropped = evidence.kept.dropped if evidence.kept else np.empty(0)
    if len(dropped) and not span.basis.triangular:  # models of a part of the landmarks drop what the full model dropped
        L = 1 / np.einsum("ij,ij->j", span.basis.P, span.basis.P)
        tolerance = max(tolerance, float(L.min() / L.max()))
    curve = learning_curve(span, center, tolerance, bounds.trace / bounds.total)
    likely = nearer = None
    if evidence.spectral is not None:
        likely = min(evidence.spectral.bound, bounds.error)
        # lambda_j = Lam_j + e and T >= explained + e for some e of at most `likely`
        nearer = np.minimum((bounds.most + likely) / (bounds.explained + likely), bounds.shares)
    whole = bounds.explained + bounds.error
    return Certificate(
        trace_error=bounds.trace,
        relative_trace_error=bounds.error / whole if whole > 0 else None,
        eigenvalue_lower=bounds.low,
        eigenvalue_upper=bounds.high,
        explained_variance_ratio_lower=bounds.low / (bounds.total + bounds.coarse),
        explained_variance_ratio_upper=bounds.shares,
        learning_curve=curve,
        stability=None if compared is None else compared.cosines,
        gap=gaps(values, compared),
        # The residual of each landmark given all others is 1 / (W⁻¹)_ii (Schur complements).
        leave_one_out_residual=float(np.mean(1 / span.basis.inverse)) if evidence.uniform else None,
        spectral_error_likely=likely,
        eigenvalue_likely_upper=None if likely is None else np.minimum(bounds.most + likely, bounds.high),
        explained_variance_ratio_likely_upper=nearer,
        confidence=None if likely is None else CONFIDENCE,
        missed=(bounds.error if likely is None else likely) / values + apart,
        rounding=bounds.slack / values,
        cluster=None if evidence.spectral is None else evidence.spectral.cluster,
        **_estimates(better, evidence, bounds, values, others),
    )


def _compared(
    method: Method,
    solution: Solution,
    nystroem: Solution,
    span: Span,
    evidence: Evidence,
    others: float,
    center: bool,
    tolerance: float,
    in_order: Map,
) -> tuple[Refined | None, Halved | None]:
    """Estimates from drawn rows, if there are any; and the cosines of components with exact ones, or otherwise with
    those of half the landmarks. `others` is the largest eigenvalue outside of Nyström's components."""
    error, r = evidence.error, len(solution.eigenvalues)
    better = None
    if error is None or evidence.spectral is None:
        found = stability_of_landmarks(span, solution, center, tolerance, in_order)
    else:
        # Scores have the squared lengths of the eigenvalues.
        Q = error.scores(nystroem, in_order) / np.sqrt(nystroem.eigenvalues)
        centred = span.moments.weight if center else None
        better = refined(error, Q, np.diag(nystroem.eigenvalues), centred, in_order)
        cosines = better.cosines(others)[:r]
        found = Halved(np.pad(cosines, (0, r - len(cosines))), nystroem.eigenvalues[r:])
    if found is not None and method != Nystroem():
        # Their models of half the landmarks share their errors.
        agreement = agreement_of(span.moments, nystroem, solution, center)
        both = np.minimum if better is None else cosine_of_both
        found = found._replace(cosines=both(found.cosines, agreement))
    return better, found


def _others(spectral: SpectralError, nystroem: Solution, span: Span, center: bool) -> float:
    """About the largest eigenvalue of Kc in directions outside of these components: Lam_c + |E| at most (Weyl)."""
    every = len(nystroem.eigenvalues) >= len(span.basis.signs) - center
    return spectral.norm + (0.0 if every else float(nystroem.eigenvalues[-1]))


def cosine_of_both(a: Array, b: Array) -> Array:
    """The cosine of the sum of two angles with these cosines, not below 0."""
    return np.maximum(a * b - np.sqrt(np.maximum((1 - a**2) * (1 - b**2), 0)), 0)


def _estimates(
    better: Refined | None, evidence: Evidence, bounds: Proven, values: Array, others: float
) -> dict[str, Any]:
    """The fields of estimated eigenvalues; none of them without an estimate for each component. `others` is the largest
    eigenvalue outside of these components."""
    r, likely = len(values), evidence.spectral
    if better is None or likely is None or len(better.eigenvalues) < r:
        return {}
    estimate = np.clip(better.eigenvalues[:r], bounds.low, bounds.high)
    # Others may be those of directions outside.
    estimate[(estimate <= 2 * likely.norm) | (values < min(likely.bound, bounds.error))] = np.nan
    cut = better.added[:r] * others / np.maximum(estimate - others, likely.norm)  # beyond the second order
    return {
        "eigenvalue_estimate": estimate,
        "eigenvalue_standard_error": np.sqrt(better.standard_errors[:r] ** 2 + cut**2 + bounds.slack**2),
        "explained_variance_ratio_estimate": np.minimum(estimate / bounds.total, bounds.shares),
    }


def _estimated(
    halved: Halved | None,
    solution: Solution,
    moments: Moments,
    evidence: Evidence,
    center: bool,
    apart: Array | float = 0.0,
) -> Certificate:
    """The certificate if E has either sign: nothing is proven, and `missed` is an estimate."""
    missed, values = evidence.missed, solution.eigenvalues
    return Certificate(
        stability=None if halved is None else halved.cosines,
        gap=gaps(values, halved),
        missed=None if missed is None else missed / values + apart,
        sample=evidence.sample,
        rounding=evidence.rounding_of(moments, solution, center) / values if evidence.rounding else None,
    )


def of_products(
    solution: Solution, residuals: Array, start: Certificate, rounding: float, *, positive: bool
) -> Certificate:
    """The certificate of eigenpairs from products with Kc: lower bounds with known residuals.

    `rounding` is the norm of the error of K. What the products missed is bounded by what their `start` missed. Shares
    of the variance need a positive semidefinite kernel.
    """
    values, total = solution.eigenvalues, solution.total_variance
    low = np.maximum(values - rounding, 0)
    high, missed = start.eigenvalue_likely_upper, start.spectral_error_likely
    if high is not None:  # eigenvalues beyond those of the start are below its last one
        high = np.maximum(
            np.pad(high, (0, max(len(values) - len(high), 0)), mode="edge")[: len(values)], values + rounding
        )
    return Certificate(
        eigenvalue_lower=low,
        explained_variance_ratio_lower=low / (total + 2 * rounding) if positive else None,
        residuals=residuals + rounding / values,
        spectral_error_likely=missed,
        eigenvalue_likely_upper=high,
        confidence=start.confidence,
        missed=None if missed is None else missed / values,
        rounding=rounding / values,
    )


def of_gram(solution: Solution, largest: float, error: float, precision: float, *, positive: bool) -> Certificate:
    """The certificate of the whole Gram matrix (n, n): its only error is rounding.

    `largest` is its largest absolute entry, `error` the largest error of an entry; kernels of new rows have the
    relative `precision`. Shares of the variance need a positive semidefinite kernel.
    """
    values, n, total = solution.eigenvalues, solution.components.shape[0], solution.total_variance
    # Rounding is that of the eigenvalue of largest absolute value, which may be negative.
    slack = rounding_of_eigenvalues(n, error, largest, values[0] * max(1.0, -solution.negative))
    low, high = np.maximum(values - slack, 0), values + slack
    least = max(total - 2 * slack, float(low.sum()))
    return Certificate(
        trace_error=0.0,
        relative_trace_error=0.0,
        eigenvalue_lower=low,
        eigenvalue_upper=high,
        explained_variance_ratio_lower=low / (total + 2 * slack) if positive else None,
        explained_variance_ratio_upper=np.minimum(high / least, 1) if positive and least > 0 else None,
        stability=np.ones(len(values)),
        missed=slack / values,
        # Scores of kernels with independent errors: √n precision largest |a_j|, |a_j|² = 1 / lambda_j, over √lambda_j.
        rounding=(slack + np.sqrt(n) * precision * largest) / values,
    )


def of_random_features(
    method: Method,
    moments: Moments,
    features: FeatureMap,
    solution: Solution,
    evidence: Evidence,
    *,
    center: bool,
    tolerance: float,
) -> Certificate:
    """The certificate of random features: estimates of stability and of what is missed.

    Their error has either sign, so it is not a sum of squares over the rows, as a Chernoff bound would need. Z Z' is
    the mean of the same products for both halves of the features. So, to first order, each component lies halfway
    between those of the halves, at the same angle θ to both, and cos 2θ = 2 cos² θ - 1 is the cosine between two models
    that share no features.
    """
    halved = stability_of_features(method, moments, features, solution, center, tolerance)
    if halved is not None:
        halved = halved._replace(cosines=np.maximum(2 * halved.cosines**2 - 1, 0))
    return _estimated(halved, solution, moments, evidence, center)
