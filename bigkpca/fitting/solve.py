"""The pass of a fit, its small eigenproblem, and the certificate of the solution."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, RoundingError, check_overflow
from bigkpca.execution import trim
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import action_of, computed_in_single, sums_of
from bigkpca.fitting.features import Choice, ChosenFeatures, choice
from bigkpca.fitting.memory_limits import check_fits
from bigkpca.numerics import eigenpairs, precision
from bigkpca.numerics.certificate import CONFIDENCE, Certificate
from bigkpca.numerics.drawing import Draw, DrawnRows, Measure, least_threshold
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows, has_landmarks
from bigkpca.numerics.judge import (
    DrawnError,
    Estimates,
    Missed,
    agreement_of,
    cosine_of_both,
    error_of,
    estimates,
    missed_of_any,
    missed_of_positive,
)
from bigkpca.numerics.linalg import ALGEBRA, rank_tolerance, rounding_of_eigenvalues
from bigkpca.numerics.methods import Exact, Method, Nystroem
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.moments import Moments, Rounding, ShiftedSums, represented
from bigkpca.numerics.precision import Kept, Measured, Slack
from bigkpca.numerics.random_streams import KRYLOV, SKETCH, random_stream
from bigkpca.numerics.solvers import OVERSAMPLING, Action, leading_eigenpairs, starting_block
from bigkpca.numerics.span import Basis, Span, basis_of
from bigkpca.spec import FitSpec, ResolvedFit

_NEGATIVE = -1e-6  # share: below the error of kernel functions in float32
_SPARE = 10  # components beyond those that are wanted, with which the last of these may mix


@dataclass(frozen=True)
class Solved:
    """A solution and its certificate, with their sources: the sums of a pass, the rows that it drew, and the SHA-256 of
    its rows."""

    solution: Solution
    certificate: Certificate
    choices: tuple[Choice, ...]
    span: Span | None = None  # of the landmarks
    drawn: DrawnRows | None = None
    sums: ShiftedSums | None = None
    digest: str = ""

    def model(self, features: FeatureMap, provenance: Provenance) -> Model:
        """The model, without its reference and decoder."""
        return Model(
            features,
            self.solution,
            sums=self.sums,
            certificate=self.certificate,
            provenance=provenance,
            drawn=self.drawn,
        )


@dataclass(frozen=True)
class Ready:
    """Features ready for a pass: the basis of the span of their landmarks, and their rounding."""

    features: FeatureMap
    basis: Basis | None  # without landmarks, or if kernels overflow
    rounding: Rounding


def ready(chosen: ChosenFeatures, fit: ResolvedFit, engine: Engine) -> Ready:
    """The features of a pass, in float32 if rounding is small enough there for the components that are wanted, or if
    the user wants that dtype."""
    features, shift = chosen.features, chosen.near_mean
    basis, found = span_basis(features), _measured(features, chosen.few, shift, engine)
    wanted = fit.spec.n_components if isinstance(fit.spec.n_components, int) else features.size
    given = fit.spec.dtype is not None or features.dtype == np.float64
    if given or precision.single_is_enough(found, features, basis, chosen.weight, wanted):
        return Ready(features, basis, found.of(features.dtype))
    return Ready(features.in_precision(np.dtype(np.float64)), basis, found.double)


def _measured(features: FeatureMap, few: Array, shift: Array, engine: Engine) -> Measured:
    X = precision.measured_rows(features, few)
    return precision.measured(features, X, shift, computed_in_single(features, X, shift, engine))


def rounding_of(features: FeatureMap, few: Array, shift: Array, engine: Engine) -> Rounding:
    """The rounding of a pass over rows of which `few` (q, d) are some."""
    return _measured(features, few, shift, engine).of(features.dtype)


def span_basis(features: FeatureMap) -> Basis | None:
    """The basis of the span of the landmarks; None without landmarks, and if kernels overflow."""
    W = features.gram()
    if W is None or not np.isfinite(W).all():
        return None
    return basis_of(W, rank_tolerance(features.dtype), positive=features.kernel.positive)


def measure_of(features: FeatureMap, basis: Basis | None) -> Measure:
    """How much a row counts in the draw."""
    if basis is None or not basis.triangular:
        return Measure.of_rows()
    return Measure.of_span(basis.W, basis.order, features.dtype)


def measure_like(features: FeatureMap, drawn: DrawnRows) -> Measure:
    """How much a row counts in a draw that is to be joined with another one."""
    if not len(drawn.landmarks):
        return Measure.of_rows()
    assert has_landmarks(features)
    return Measure.of_landmarks(features.gram(), drawn.landmarks, features.dtype)


def draw_of(
    features: FeatureMap, measure: Measure, few: Array, weights: Array | None, weight: float, fit: ResolvedFit
) -> Draw:
    """How the pass of a fit draws rows, from `few` (q, d) with their weights (q,), of all rows with this weight."""
    least = 0.0
    if fit.n > fit.most_drawn:
        w = np.ones(len(few)) if weights is None else weights
        ((V, diagonal),) = features.tiles([few], len(few))
        least = least_threshold(w * measure(V, diagonal), represented(w, weight) / w, fit.most_drawn)
    return Draw(measure, fit.most_drawn, least, fit.spec.random_state)


def solve_rows(
    rows: Rows, chosen: ChosenFeatures, fit: ResolvedFit, engine: Engine, limit: int | None = None
) -> tuple[FeatureMap, Solved]:
    """Run the passes of a fit and solve its eigenproblem; also the features, in the dtype of the passes. Raises
    MemoryLimitError if that is float64, which the plan did not assume, and needs more than `limit`."""
    if fit.spec.exact:
        assert has_landmarks(chosen.features)
        solution, certificate = _exactly(chosen.features, chosen.few, fit.spec)
        digest = hashlib.sha256(chosen.features.landmarks.tobytes()).hexdigest()  # the landmarks are the rows
        return chosen.features, replace(chosen_components(fit.spec, solution, certificate), digest=digest)
    if fit.randomized(chosen.features.size):
        solution, digest = _by_sketch(rows, chosen.features, chosen.near_mean, fit.spec, engine)
        return chosen.features, Solved(solution, Certificate.of(len(solution.eigenvalues)), (), digest=digest)
    given, more_precise = ready(chosen, fit, engine), list[Choice]()
    if given.features.dtype != chosen.features.dtype:
        engine.progress.note("rounding in float32 would be too large here: the pass is in float64")
        check_fits(rows, fit.changed(dtype="float64"), engine, limit)
        reason = "rounding in float32 could move a wanted eigenvalue, or what landmarks miss, by more than 1 %"
        more_precise.append(choice("dtype", "float64", reason))
    few = chosen.few[: precision.MEASURED_ROWS]
    weights = None if chosen.few_weights is None else chosen.few_weights[: len(few)]
    measure = measure_of(given.features, given.basis)
    draw = draw_of(given.features, measure, few, weights, chosen.weight, fit)
    found = sums_of(
        rows,
        given.features,
        chosen.near_mean,
        given.rounding,
        fit.spec.block_rows,
        engine,
        kept=engine.kept,
        draw=draw,
    )
    assert found.drawn is not None
    solved = solve(found.sums, given.features, fit.spec, found.drawn, given.basis, few)
    return given.features, replace(solved, digest=found.content, choices=(*solved.choices, *more_precise))


def solve(
    sums: ShiftedSums, features: FeatureMap, spec: FitSpec, drawn: DrawnRows, basis: Basis | None, few: Array
) -> Solved:
    """Solve with the method of the spec: the solution, and its certificate from the rows that were drawn. `few` rows
    (q, d) show negative eigenvalues that landmarks may not span, and kernels that are too small."""
    moments, slack, tolerance = sums.moments, Slack.of(features, sums), rank_tolerance(features.dtype)
    span, kept = None if basis is None else Span.of(basis, moments), None
    if span is not None and span.basis.triangular:
        kept = precision.kept_directions(slack, span)
        span = span.keep(kept.directions)
    trim(features.size)
    solution, wide = _solutions(spec, moments, features, span, tolerance)
    if has_landmarks(features):
        assert span is not None
        certificate = _of_landmarks(features, solution, wide, span, kept, slack, drawn, spec)
    else:
        certificate = _of_random_features(features, moments, solution, wide, slack, drawn, spec)
    found = chosen_components(spec, solution, certificate)
    choices = found.choices
    if span is not None and basis is not None and span.basis.P.shape[1] < basis.P.shape[1]:
        reason = f"of {basis.P.shape[1]} that the landmarks span; the rest may be mostly rounding"
        choices = (*choices, choice("directions", span.basis.P.shape[1], reason))
    negative = min(solution.negative, _negative_on_few(features, few, spec.center))
    _check_representable(features, solution, few)
    return replace(
        found, solution=replace(solution, negative=negative), choices=choices, span=span, drawn=drawn, sums=sums
    )


def _check_representable(features: FeatureMap, solution: Solution, few: Array) -> None:
    """Raise DataError for a projection that overflows in the dtype of block work, and for kernels that vanish there."""
    with np.errstate(over="ignore"):
        projection = solution.projection(features.dtype)
    check_overflow(projection.mean, f"the mean of the features in {features.dtype}")
    check_overflow(projection.components, f"the components in {features.dtype}")
    if has_landmarks(features):
        largest = np.abs(features.kernel.diagonal(features.shifted(few).astype(np.float64))).max()
        if 0 < largest < np.finfo(features.dtype).tiny:  # scores would be zero
            raise DataError(
                f"kernel values are at most {largest:.1g}, too small for {features.dtype}: scale the columns, or fit "
                "with dtype float64"
            )


def _solutions(
    spec: FitSpec, moments: Moments, features: FeatureMap, span: Span | None, tolerance: float
) -> tuple[Solution, Solution]:
    """The solution of the spec, and one with as many components more, at least ten, which may mix with those that are
    wanted: of Nyström where there are landmarks, otherwise of the same method."""
    method, asked, center = spec.method_value, spec.n_components, spec.center
    judged_by: Method = method if span is None else Nystroem()
    if method == judged_by and isinstance(asked, int):
        wide = judged_by.solve(moments, features, _wider(asked), center, tolerance, span)
        return wide.first(asked), wide
    solution = method.solve(moments, features, asked, center, tolerance, span)
    r = len(solution.eigenvalues)
    return solution, judged_by.solve(moments, features, _wider(r), center, tolerance, span)


def _negative_on_few(features: FeatureMap, few: Array, center: bool) -> float:
    """The most negative eigenvalue of the Gram matrix of a few rows, relative to its largest; 0 for kernels without
    negative eigenvalues. Landmarks may not span the negative directions of the rows."""
    if features.kernel.positive:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        K = features.kernel.gram(features.shifted(few).astype(np.float64))
    if not np.isfinite(K).all():
        return 0.0
    least, largest = eigenpairs.least_and_largest(K, center)
    return least / largest if least < _NEGATIVE * largest and largest > 0 else 0.0


def _of_landmarks(
    features: KernelRows,
    solution: Solution,
    wide: Solution,
    span: Span,
    kept: Kept | None,
    slack: Slack,
    drawn: DrawnRows,
    spec: FitSpec,
) -> Certificate:
    """The certificate of a method with landmarks, from Nyström's solution with more components."""
    P, signs = span.basis.P.astype(features.dtype), span.basis.signs
    error = error_of(features, lambda V: V @ P, signs.astype(features.dtype), drawn)
    values, r = solution.eigenvalues, len(solution.eigenvalues)
    bounds = precision.bounds(slack, wide.eigenvalues, wide.components)
    rounding = _padded(1 - np.divide(bounds.lower, wide.eigenvalues), r, 1.0)
    proven = span.basis.triangular and kept is not None
    trace_error = 0.0
    if proven:
        assert kept is not None
        coarse = ALGEBRA * span.moments.trace + kept.trace
        _check_trace(span, coarse)
        trace_error = min(max(span.trace_error, 0.0) + coarse, span.moments.trace)
        missed = missed_of_positive(error, drawn, random_stream(spec.random_state, KRYLOV))
        missed = replace(missed, bound=min(missed.bound, trace_error))
    else:
        missed = missed_of_any(error, span.trace_error)
    judged = _judged(error, wide, missed, span.moments.weight if spec.center else np.inf)
    others = missed.norm + _below(wide, r, features)
    cosine = _padded(judged.cosines(others), r, 0.0)
    if spec.method_value != Nystroem():
        cosine = cosine_of_both(cosine, agreement_of(span.moments, wide, solution, spec.center))
    if not proven:
        apart = np.abs(values - _padded(wide.eigenvalues, r, 0.0))  # 0 for Nyström, whose eigenvalues these are
        return Certificate.of(r, cosine=cosine, missed=(missed.bound + apart) / values, rounding=rounding)
    lower = _padded(np.sort(bounds.lower)[::-1], r, 0.0)
    upper = _padded(np.sort(bounds.upper)[::-1], r, float(bounds.upper[-1])) + missed.bound
    explained = max(span.variance(spec.center) - trace_error, float(lower.sum()))
    # Of other methods, the sum of the eigenvalues may exceed what the landmarks explain.
    whole = max(explained + trace_error, solution.total_variance)
    return Certificate.of(
        r,
        lower=lower,
        upper=upper,
        cosine=cosine,
        missed=missed.bound / values,
        rounding=rounding,
        unexplained=1 - explained / whole if whole > 0 else 1.0,
        confidence=CONFIDENCE if np.isfinite(missed.bound) else 0.0,
        **_estimated(judged, values, lower, upper, rounding, missed, others),
    )


def _check_trace(span: Span, coarse: float) -> None:
    """Raise RoundingError if landmarks explain more than there is, beyond rounding."""
    if span.trace_error < -coarse:
        raise RoundingError(
            f"the landmarks explain {1 - span.trace_error / span.moments.trace:.9g} of Σ k(x, x), more than all of it: "
            "rounding, or a kernel that is not positive semidefinite. Fit with dtype float64, remove or standardise "
            "columns of very different size, or omit psd=True from a kernel function"
        )


def _of_random_features(
    features: FeatureMap,
    moments: Moments,
    solution: Solution,
    wide: Solution,
    slack: Slack,
    drawn: DrawnRows,
    spec: FitSpec,
) -> Certificate:
    """The certificate of random features, whose error has either sign."""
    added = features.unexplained(moments.squares, moments.weight)
    ones = np.ones(features.size, features.dtype)
    error = error_of(features, lambda V: V, ones, drawn, added)
    r = len(solution.eigenvalues)
    missed = missed_of_any(error, moments.trace - moments.squares - added * moments.weight)
    judged = _judged(error, wide, missed, moments.weight if spec.center else np.inf, added)
    others = missed.norm + _below(wide, r, features)
    bounds = precision.bounds(slack, wide.eigenvalues, wide.components)
    rounding = (1 - bounds.lower / wide.eigenvalues)[:r]
    nothing, all_of_it = np.zeros(r), np.full(r, np.inf)
    return Certificate.of(
        r,
        cosine=judged.cosines(others)[:r],
        missed=missed.bound / solution.eigenvalues,
        rounding=rounding,
        **_estimated(judged, solution.eigenvalues, nothing, all_of_it, rounding, missed, others),
    )


def _below(wide: Solution, r: int, features: FeatureMap) -> float:
    """The largest eigenvalue of the directions beyond those of a solution that is wider than one of r components."""
    rank_ended_it = len(wide.eigenvalues) < _wider(r)
    return float(rank_tolerance(features.dtype) * wide.eigenvalues[0] if rank_ended_it else wide.eigenvalues[-1])


def _wider(count: int) -> int:
    return count + max(count, _SPARE)


def _judged(error: DrawnError, wide: Solution, missed: Missed, centred: float, added: float = 0.0) -> Estimates:
    """The estimates from the components of a solution with more of them than are wanted. `added` is what their
    eigenvalues have beyond the squared lengths of their scores."""
    lengths = np.sqrt(np.maximum(wide.eigenvalues - added, np.finfo(float).tiny))
    Q = error.scores(wide.mean, wide.components) / lengths
    return estimates(error, Q, wide.eigenvalues, centred)


def _estimated(
    judged: Estimates, values: Array, lower: Array, upper: Array, rounding: Array, missed: Missed, others: float
) -> dict[str, Array]:
    """The estimated eigenvalues and their standard errors; NaN where they may be those of missed directions."""
    r = len(values)
    if len(judged.eigenvalues) < r or not np.isfinite(missed.norm):
        return {}
    estimate = np.clip(judged.eigenvalues[:r], lower, upper)
    estimate[(estimate <= 2 * missed.norm) | (values < missed.bound)] = np.nan
    cut = judged.added[:r] * others / np.maximum(estimate - others, missed.norm)  # beyond the second order
    errors = np.sqrt(judged.standard_errors[:r] ** 2 + cut**2 + (rounding * values) ** 2)
    return {"estimate": estimate, "standard_error": np.where(np.isnan(estimate), np.nan, errors)}


def _padded(values: Array, r: int, rest: float) -> Array:
    """The first r values; other methods may have more components than Nyström's."""
    return np.pad(values[:r], (0, max(r - len(values), 0)), constant_values=rest)


def _exactly(features: KernelRows, few: Array, spec: FitSpec) -> tuple[Solution, Certificate]:
    """Solution and certificate of the exact method, whose landmarks are all rows."""
    kernel = features.kernel
    exact = features.in_precision(np.dtype(np.float64))
    some = few[: precision.MEASURED_ROWS]
    stored, given = features.shifted(some).astype(np.float64), exact.shifted(some)  # rounded, and as they are
    # For a positive semidefinite kernel no entry exceeds the largest on the diagonal.
    entries = kernel.diagonal(features.landmarks) if kernel.positive else features.gram()
    largest = float(np.abs(entries).max())
    value = precision.error_of_gram(features) * largest + float(np.abs(kernel.gram(stored) - kernel.gram(given)).max())
    value += precision.moved_by_rounding(features)
    solution = Exact().solve(None, features, spec.n_components, spec.center, rank_tolerance(features.dtype))
    _check_representable(features, solution, few)
    return solution, of_gram(solution, largest, value, float(np.finfo(features.dtype).eps))


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


def chosen_components(spec: FitSpec, solution: Solution, certificate: Certificate) -> Solved:
    """A solution with its certificate and, for a share of the variance, the number of components that reach it."""
    if not isinstance(spec.n_components, float):
        return Solved(solution, certificate, ())
    r, share = len(solution.eigenvalues), float(solution.explained_variance_ratio.sum())
    enough = "all there are"
    if share >= spec.n_components:
        enough = f"the fewest with {spec.n_components:.4g} of the variance"
    return Solved(solution, certificate, (choice("n_components", r, f"{enough}: at least {share:.4g} of it"),))


def _by_sketch(
    rows: Rows, features: FeatureMap, near_mean: Array, spec: FitSpec, engine: Engine
) -> tuple[Solution, str]:
    """Leading eigenpairs of the scatter of the features from `solvers.PASSES` passes, without the D × D matrix."""
    assert isinstance(spec.n_components, int)  # the spec checks
    actions: list[tuple[Action, str]] = []

    def apply(Q: Array) -> Array:
        actions[:] = [action_of(rows, features, near_mean, Q, spec.block_rows, engine)]
        return actions[0][0].applied(Q, near_mean, spec.center)

    D, count = features.size, min(spec.n_components, features.size)
    start = starting_block(D, min(D, count + OVERSAMPLING), random_stream(spec.random_state, SKETCH))
    found = leading_eigenpairs(apply, start, count)
    ((action, digest),) = actions
    unexplained = features.unexplained(action.squares_about_zero(near_mean), action.weight)
    mean = action.mean(near_mean) if spec.center else np.zeros(features.size)
    tolerance = rank_tolerance(features.dtype)
    solution = eigenpairs.spectrum(found.values, found.vectors, mean, action, spec.n_components, unexplained, tolerance)
    return solution, digest
