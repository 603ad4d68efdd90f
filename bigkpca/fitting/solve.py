"""The pass of a fit, its small eigenproblem, and the certificate of the solution."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, check_overflow
from bigkpca.execution import trim
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import action_of, computed_in_single, sums_of
from bigkpca.fitting.certify import of_gram, of_landmarks, of_random_features, wider
from bigkpca.fitting.features import Choice, ChosenFeatures, choice
from bigkpca.fitting.memory_limits import check_fits
from bigkpca.numerics import eigenpairs, precision
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.drawing import Draw, DrawnRows, Measure, least_threshold
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows, has_landmarks
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import Exact, Method, Nystroem
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.moments import Moments, Rounding, ShiftedSums, represented
from bigkpca.numerics.precision import Measured, Slack
from bigkpca.numerics.random_streams import SKETCH, random_stream
from bigkpca.numerics.solvers import OVERSAMPLING, Action, leading_eigenpairs, starting_block
from bigkpca.numerics.span import Basis, Span, basis_of
from bigkpca.spec import FitSpec, ResolvedFit

_NEGATIVE = -1e-6  # of the largest eigenvalue: functions of users may compute in float32


@dataclass(frozen=True)
class Solved:
    """A solution and its certificate, with their sources: the sums of a pass, the rows that it drew, and a digest of
    its rows."""

    solution: Solution
    certificate: Certificate
    choices: tuple[Choice, ...]
    span: Span | None = None  # of the landmarks
    drawn: DrawnRows | None = None
    sums: ShiftedSums | None = None
    digest: str = ""

    def model(self, features: FeatureMap, provenance: Provenance) -> Model:
        """The model, without decoder and calibration."""
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
    basis: Basis | None  # none without landmarks, and if kernels overflow
    rounding: Rounding


def ready(chosen: ChosenFeatures, fit: ResolvedFit, engine: Engine) -> Ready:
    """The features of a pass, in float32 if rounding is small enough there for the components that are wanted, or if
    the user wants that dtype."""
    features, shift = chosen.features, chosen.shift
    basis, found = span_basis(features), _measured(features, chosen.few, shift, engine)
    wanted = fit.spec.n_components if isinstance(fit.spec.n_components, int) else features.size
    given = fit.spec.dtype is not None or features.dtype == np.float64
    if given or precision.single_is_enough(found, features, basis, len(chosen.few), chosen.weight, wanted):
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
        solution, digest = _by_sketch(rows, chosen.features, chosen.shift, fit.spec, engine)
        return chosen.features, Solved(solution, Certificate.of(len(solution.eigenvalues)), (), digest=digest)
    given, more_precise = ready(chosen, fit, engine), list[Choice]()
    if given.features.dtype != chosen.features.dtype:
        engine.progress.note("rounding in float32 would be too large here: the pass is in float64")
        check_fits(rows, fit.changed(dtype="float64"), engine, limit)
        reason = "rounding in float32 could move an eigenvalue, or what landmarks miss, by more than 1 %"
        more_precise.append(choice("dtype", "float64", reason))
    measure = measure_of(given.features, given.basis)
    draw = draw_of(given.features, measure, chosen.few, chosen.few_weights, chosen.weight, fit)
    found = sums_of(rows, given.features, chosen.shift, given.rounding, fit.spec.block_rows, engine, draw)
    assert found.drawn is not None
    solved = solve(found.sums, given.features, fit.spec, found.drawn, given.basis, chosen.few)
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
        certificate = of_landmarks(features, solution, wide, span, kept, slack, drawn, spec)
    else:
        certificate = of_random_features(features, moments, solution, wide, slack, drawn, spec)
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
        wide = judged_by.solve(moments, features, wider(asked), center, tolerance, span)
        return wide.first(asked), wide
    solution = method.solve(moments, features, asked, center, tolerance, span)
    r = len(solution.eigenvalues)
    return solution, judged_by.solve(moments, features, wider(r), center, tolerance, span)


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


def _exactly(features: KernelRows, few: Array, spec: FitSpec) -> tuple[Solution, Certificate]:
    """Solution and certificate of the exact method, whose landmarks are all rows."""
    kernel = features.kernel
    exact = features.in_precision(np.dtype(np.float64))
    stored, given = features.shifted(few).astype(np.float64), exact.shifted(few)  # rounded, and as they are
    # For a positive semidefinite kernel no entry exceeds the largest on the diagonal.
    entries = kernel.diagonal(features.landmarks) if kernel.positive else features.gram()
    largest = float(np.abs(entries).max())
    value = precision.error_of_gram(features) * largest + float(np.abs(kernel.gram(stored) - kernel.gram(given)).max())
    value += precision.moved_by_rounding(features)
    solution = Exact().solve(None, features, spec.n_components, spec.center, rank_tolerance(features.dtype))
    _check_representable(features, solution, few)
    return solution, of_gram(solution, largest, value, float(np.finfo(features.dtype).eps))


def chosen_components(spec: FitSpec, solution: Solution, certificate: Certificate) -> Solved:
    """A solution with its certificate and, for a share of the variance, the number of components that reach it."""
    if not isinstance(spec.n_components, float):
        return Solved(solution, certificate, ())
    r, share = len(solution.eigenvalues), float(solution.explained_variance_ratio.sum())
    enough = "all there are"
    if share >= spec.n_components:
        enough = f"the fewest with {spec.n_components:.4g} of the variance"
    return Solved(solution, certificate, (choice("n_components", r, f"{enough}: at least {share:.4g} of it"),))


def _by_sketch(rows: Rows, features: FeatureMap, shift: Array, spec: FitSpec, engine: Engine) -> tuple[Solution, str]:
    """Leading eigenpairs of the scatter of the features from `solvers.PASSES` passes, without the D × D matrix."""
    assert isinstance(spec.n_components, int)  # the spec checks
    actions: list[tuple[Action, str]] = []

    def apply(Q: Array) -> Array:
        actions[:] = [action_of(rows, features, shift, Q, spec.block_rows, engine)]
        return actions[0][0].applied(Q, shift, spec.center)

    D, count = features.size, min(spec.n_components, features.size)
    start = starting_block(D, min(D, count + OVERSAMPLING), random_stream(spec.random_state, SKETCH))
    found = leading_eigenpairs(apply, start, count)
    ((action, digest),) = actions
    unexplained = features.unexplained(action.squares_about_zero(shift), action.weight)
    mean = action.mean(shift) if spec.center else np.zeros(features.size)
    tolerance = rank_tolerance(features.dtype)
    solution = eigenpairs.spectrum(found.values, found.vectors, mean, action, spec.n_components, unexplained, tolerance)
    return solution, digest
