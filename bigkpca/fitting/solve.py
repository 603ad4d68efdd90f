"""The passes of a fit, and its small eigenproblem: solution, certificate, and an automatic number of components."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, check_overflow
from bigkpca.execution import trim
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import action_of, compute_of, sums_of
from bigkpca.fitting.features import Choice, ChosenFeatures, choice
from bigkpca.numerics import certificates, eigenpairs, rounding, solvers
from bigkpca.numerics.certificates import Certificate, Evidence, spectral
from bigkpca.numerics.certificates.sampling import Draw, DrawnRows, Residuals, ResidualSample, least_threshold
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows, has_landmarks
from bigkpca.numerics.landmarks import Uniform
from bigkpca.numerics.linalg import Map, at_once, rank_tolerance
from bigkpca.numerics.methods import Exact, Method, Nystroem
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.moments import Moments, ShiftedSums, represented
from bigkpca.numerics.random_streams import JOINED, KRYLOV, PROBES, SKETCH, random_stream
from bigkpca.numerics.rounding import ON_PROCESSOR, Compute, FarRows, Rounding, Significant
from bigkpca.numerics.solvers import OVERSAMPLING, Action, leading_eigenpairs, starting_block
from bigkpca.numerics.span import SMALLEST, Basis, Span, basis_of, eigenvector_basis, of_basis
from bigkpca.spec import FitSpec, ResolvedFit

_FAR_ROWS = 64  # farthest rows, on which the rounding of an exact fit is measured
_LOST = 1 / 3  # of the bound of tr(E): if Cholesky's directions lose more to rounding, eigenvectors lose less
_NEGATIVE = -1e-6  # share: below the error of kernel functions in float32


@dataclass(frozen=True)
class Solved:
    """A solution and its certificate, with their sources: the sums of a pass, and the SHA-256 of its rows."""

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
class Checks:
    """Rows that measure the error of a fit.

    `few` (q, d) of the sample, with their weights (q,), and the `far` rows of the pass measure the rounding, with
    `shift` (D,), the fixed vector subtracted in the pass. `drawn` are rows of all passes, by `residuals`, in the first
    directions of `basis`; None if they prove nothing. `like` are those that a model keeps of rows fitted earlier, which
    requires the same basis: of Cholesky's factor, eigenvectors or both. `rounded` is how far rounding moved the tr(E)
    and an eigenvalue of those rows; `weight` is that of the others, their number without weights. If there is no bound,
    `sample` (q, d) of all rows gives an estimate; None if earlier rows are not known. `compute` is how the pass
    computed.
    """

    few: Array
    shift: Array
    weight: float
    sample: Array | None
    basis: Basis | None
    residuals: Residuals | None = None
    drawn: ResidualSample | None = None
    like: DrawnRows | None = None
    rounded: tuple[float, float] = (0.0, 0.0)
    far: FarRows | None = None
    few_weights: Array | None = None
    compute: Compute = ON_PROCESSOR

    def drawn_rows(self, span: Span | None) -> DrawnRows | None:
        """What a model with this span keeps of the rows that were drawn."""
        if self.drawn is None or self.residuals is None or span is None:
            return None
        return DrawnRows.of(self.drawn, self.residuals, span)


def rounding_of(model: Model) -> tuple[float, float]:
    """Bounds on how far rounding may have moved tr(E) and an eigenvalue of a model."""
    certified, solution = model.certificate, model.solution
    share, trace_error, low = certified.relative_trace_error, certified.trace_error, certified.eigenvalue_lower
    of_trace = 0.0
    if share is not None and trace_error is not None and low is not None:
        # The share is relative to the larger of these two totals.
        of_trace = share * max(solution.total_variance, float(low.sum()) / max(1 - share, 1e-12)) - trace_error
    of_values = 0.0 if certified.rounding is None else float(np.max(certified.rounding * solution.eigenvalues))
    return max(of_trace, 0.0), of_values


def some_of(sample: Array, count: int, seed: int) -> Array:
    """At most `count` rows of a sample, drawn at random, since a sample may consist of several joined one after the
    other."""
    numbers = random_stream(seed, JOINED).choice(len(sample), min(count, len(sample)), replace=False)
    return sample[np.sort(numbers)]


def solve(
    moments: Moments | None, features: FeatureMap, fit: ResolvedFit, checks: Checks, in_order: Map = map
) -> Solved:
    """Solve with the method of the spec: solution, certificate, and the choice of components if that was open;
    `moments` is None only for the exact method."""
    tolerance, spec = rank_tolerance(features.dtype), fit.spec
    if spec.exact:
        assert has_landmarks(features)
        found = _solve_exactly(features, spec, checks, tolerance, in_order)
    else:
        assert moments is not None
        found = _solve_from_sums(moments, features, fit, checks, tolerance, in_order)
    with np.errstate(over="ignore"):
        projection = found.solution.projection(features.dtype)
    check_overflow(projection.mean, f"the mean of the features in {features.dtype}")
    check_overflow(projection.components, f"the components in {features.dtype}")
    if has_landmarks(features):
        largest = np.abs(features.kernel.diagonal(features.shifted(checks.few).astype(np.float64))).max()
        if 0 < largest < np.finfo(features.dtype).tiny:  # scores would be zero
            raise DataError(
                f"kernel values are at most {largest:.1g}, too small for {features.dtype}: scale the columns, or fit "
                "with dtype float64"
            )
    return found


def _solve_from_sums(
    moments: Moments, features: FeatureMap, fit: ResolvedFit, checks: Checks, tolerance: float, in_order: Map
) -> Solved:
    """Solution and certificate of all methods except the exact one."""
    spec = fit.spec
    method = spec.method_value
    measured, span = at_once(
        in_order,
        lambda: rounding.measured(
            features, moments, checks.shift, checks.few, checks.far, in_order, checks.few_weights, checks.compute
        ),
        lambda: None if checks.basis is None else of_basis(checks.basis, moments, in_order),
    )
    kept = None if span is None else _significant_directions(span, measured, checks, tolerance, in_order)
    span = None if kept is None else kept.span
    trim(features.size)

    evidence, (solution, wide) = at_once(
        in_order,
        lambda: _evidence(moments, features, span, measured, fit, checks, in_order),
        lambda: _solutions(method, moments, features, spec.n_components, spec.center, tolerance, span, in_order),
    )
    evidence = replace(evidence, kept=kept)
    if has_landmarks(features) and span is not None:
        certified = certificates.of_landmarks(
            method, features, solution, wide, span, evidence, center=spec.center, tolerance=tolerance, in_order=in_order
        )
    else:
        certified = certificates.of_random_features(
            method, moments, features, solution, evidence, center=spec.center, tolerance=tolerance
        )
    chosen = chosen_components(spec, solution, certified)
    choices = chosen.choices
    if kept is not None and len(kept.dropped):
        few = len(kept.span.basis.signs)
        reason = f"of {few + len(kept.dropped)} that the landmarks span; the rest may be mostly rounding"
        choices = (*choices, choice("directions", few, reason))
    negative = min(chosen.solution.negative, _negative_on_few(features, checks.few, spec.center))
    solution = replace(chosen.solution, negative=negative)
    drawn = None if evidence.error is None else checks.drawn_rows(span)
    return replace(chosen, solution=solution, choices=choices, span=span, drawn=drawn)


def _solutions(
    method: Method,
    moments: Moments,
    features: FeatureMap,
    components: Any,
    center: bool,
    tolerance: float,
    span: Span | None,
    in_order: Map,
) -> tuple[Solution, Solution]:
    """The solution of a method and, where there are landmarks, Nyström's with more components; else the same again."""
    if span is not None and method == Nystroem() and isinstance(components, int):
        wide = _nystroem(span, components, center, tolerance, in_order)
        return wide.first(components), wide
    solution = method.solve(moments, features, components, center, tolerance, span, in_order)
    if span is None:
        return solution, solution
    return solution, _nystroem(span, solution.components.shape[1], center, tolerance, in_order)


def _nystroem(span: Span, components: int, center: bool, tolerance: float, in_order: Map) -> Solution:
    """Nyström's solution, with as many components more, at least ten, which may mix with those that are wanted."""
    return solvers.nystroem(
        span, components + max(components, spectral.SPARE), center=center, tolerance=tolerance, in_order=in_order
    )


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


def first_basis(features: FeatureMap, like: DrawnRows | None, in_order: Map) -> Basis | None:
    """The basis of the span of the landmarks: that of Cholesky's factor, otherwise of the eigenvectors of W; which of
    them, `like` may require. None without landmarks, and if kernels overflow."""
    W, tolerance = features.gram(in_order), rank_tolerance(features.dtype)
    if W is None or not np.isfinite(W).all():
        return None
    if like is not None and not like.cholesky:
        return eigenvector_basis(W, tolerance)
    # Rounding is measured in each direction, so some may lie below the rank tolerance. A model that began with
    # Cholesky's factor gets it on every machine, since rounding moves eigenvalues by far less than half of this.
    return basis_of(W, tolerance, in_order, least=SMALLEST if like is None else SMALLEST / 2)


def draw_of(
    features: FeatureMap, fit: ResolvedFit, checks: Checks, like: DrawnRows | None, before: int = 0
) -> Draw | None:
    """How the pass of a fit draws rows, `before` which others were passed. None where they would prove nothing."""
    basis, few, weights = checks.basis, checks.few[: rounding.MEASURED_ROWS], checks.few_weights
    if basis is None or basis.indefinite or not fit.drawn:
        return None
    residuals = Residuals.of(basis, features.dtype, None if like is None else like.directions)
    most, least = fit.most_drawn if like is None else like.most, 0.0
    if before + fit.n > most:
        w = np.ones(len(few)) if weights is None else weights[: len(few)]
        ((V, diagonal),) = features.tiles([few], len(few))
        least = least_threshold(w * residuals(V, diagonal), represented(w, checks.weight) / w, most)
    return Draw(residuals, most, least, fit.spec.random_state, before)


def _significant_directions(
    span: Span, measured: Rounding, checks: Checks, tolerance: float, in_order: Map
) -> Significant:
    """The directions of the span of the landmarks that are more than rounding. Behind those by which rows
    were drawn, eigenvectors take the place of Cholesky's directions if rounding would leave out more than a third of
    tr(E) of these, or if rows fitted before require it."""
    basis, like = span.basis, checks.like
    least = 0 if checks.residuals is None else checks.residuals.P.shape[1]
    most = None if like is None else like.kept
    if like is None or not like.eigenvectors or not basis.triangular:
        found = measured.significant(span, most, in_order, least)
        bound = max(found.span.trace_error, 0.0) + found.trace_rounding
        if like is not None or not basis.triangular or found.dropped.sum() <= _LOST * bound:
            return found
        del found  # some matrices of the size of W
    mixed = eigenvector_basis(basis.W, tolerance, basis.P[:, :least])
    return measured.significant(of_basis(mixed, span.moments, in_order), most, in_order, least)


def _evidence(
    moments: Moments,
    features: FeatureMap,
    span: Span | None,
    measured: Rounding,
    fit: ResolvedFit,
    checks: Checks,
    in_order: Map,
) -> Evidence:
    """The measurements from which the bounds of a certificate are computed."""
    uniform = isinstance(fit.rule, Uniform) and checks.weight == moments.weight == moments.count  # of all rows
    found = Evidence(measured, uniform=uniform, before=(*checks.rounded, checks.weight / moments.weight))
    if has_landmarks(features) and span is not None and features.kernel.positive:
        if checks.drawn is None:
            return found
        rng = random_stream(fit.spec.random_state, KRYLOV)
        some = checks.drawn.X[spectral.first_and_farthest(features, checks.drawn.X)]
        rows = np.concatenate([checks.few, some, *([] if checks.far is None else [checks.far.X])])
        if checks.residuals is None or not checks.residuals.hold(features, rows):
            return found
        error = spectral.error_of(features, span, checks.drawn, checks.few, measured.value, in_order)
        bound = spectral.spectral_error(error, checks.drawn, rng, in_order)
        return replace(found, error=error, spectral=bound)
    if checks.sample is None:
        return found
    # The weights of rows of earlier fits are not known.
    weights = checks.few_weights if checks.sample is checks.few else None
    missed = spectral.estimate(features, span, checks.sample, moments, fit.spec.center, weights)
    return replace(found, missed=missed, sample=checks.sample)


def _solve_exactly(features: KernelRows, spec: FitSpec, checks: Checks, tolerance: float, in_order: Map) -> Solved:
    """Solution and certificate of the exact method, whose landmarks are all rows."""
    few, kernel = checks.few, features.kernel
    exact = features.in_precision(np.dtype(np.float64))
    # Two rounding errors: that of shifting rows, and that of computing kernel values.
    stored, given = features.shifted(few).astype(np.float64), exact.shifted(few)
    value = rounding.error_of_values(features, few)
    value += float(np.abs(kernel.gram(stored) - kernel.gram(given)).max())
    # On the farthest rows, which a small sample may not contain: as stored, and each moved by one rounding error.
    Z = features.landmarks[rounding.farthest(features.landmarks, _FAR_ROWS)].astype(np.float64)
    signs = random_stream(0, PROBES).choice([-1.0, 1.0], Z.shape)
    precision = float(np.finfo(features.dtype).eps)
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(kernel.gram(Z) - kernel.gram(Z * (1 + precision * signs)))
    value += float(np.max(off, initial=0.0, where=np.isfinite(off)))
    # For a positive semidefinite kernel no entry exceeds the largest on the diagonal.
    entries = kernel.diagonal(features.landmarks) if kernel.positive else features.gram()
    largest = float(max(entries.max(), -entries.min()))
    del entries
    solution = Exact().solve(None, features, spec.n_components, spec.center, tolerance, in_order=in_order)
    certified = certificates.of_gram(solution, largest, value, precision, positive=kernel.positive)
    return chosen_components(spec, solution, certified)


def chosen_components(spec: FitSpec, solution: Solution, certificate: Certificate) -> Solved:
    """A solution with its certificate and, for a share of the variance, the number of components that reach it."""
    if not isinstance(spec.n_components, float):
        return Solved(solution, certificate, ())
    r, share = len(solution.eigenvalues), float(solution.explained_variance_ratio.sum())
    enough = "all there are"
    if share >= spec.n_components:
        enough = f"the fewest with {spec.n_components:.4g} of the variance"
    return Solved(solution, certificate, (choice("n_components", r, f"{enough}: at least {share:.4g} of it"),))


def solve_rows(rows: Rows, chosen: ChosenFeatures, fit: ResolvedFit, engine: Engine) -> Solved:
    """Run the passes of a fit and solve its eigenproblem."""
    features, spec = chosen.features, fit.spec
    if not spec.exact and fit.randomized(features.size):
        solution, digest = _solve_by_sketch(rows, features, chosen.near_mean, spec, engine)
        solved, sums = Solved(solution, Certificate(), ()), None
    elif spec.exact:
        assert has_landmarks(features)
        few = chosen.few[: rounding.MEASURED_ROWS]
        checks = Checks(few, chosen.near_mean, rows.shape[0], few, None)
        with engine.small_work() as in_order:
            solved = solve(None, features, fit, checks, in_order)
        digest = hashlib.sha256(features.landmarks.tobytes()).hexdigest()  # the landmarks are the rows
        return replace(solved, digest=digest)
    else:
        solved, sums, digest = _solve_by_pass(rows, chosen, fit, engine)
    certified = solved.certificate
    if chosen.kernel_error:
        certified = replace(certified, kernel_error=chosen.kernel_error.value)
    return replace(solved, certificate=certified, sums=sums, digest=digest)


def _solve_by_pass(
    rows: Rows, chosen: ChosenFeatures, fit: ResolvedFit, engine: Engine
) -> tuple[Solved, ShiftedSums, str]:
    """Solution, sums and digest of one pass."""
    features, like, few = chosen.features, chosen.like, chosen.few[: rounding.MEASURED_ROWS]
    with engine.small_work() as in_order:
        basis = first_basis(features, like, in_order)
        weights = None if chosen.few_weights is None else chosen.few_weights[: len(few)]
        compute = compute_of(features, engine)
        checks = Checks(few, chosen.near_mean, chosen.weight, few, basis, few_weights=weights, compute=compute)
        draw = draw_of(features, fit, checks, like)
    found = sums_of(rows, features, chosen.near_mean, fit.spec.block_rows, engine, kept=engine.kept, draw=draw)
    residuals = None if draw is None else draw.residuals
    checks = replace(checks, weight=found.sums.weight, residuals=residuals, drawn=found.drawn, like=like, far=found.far)
    with engine.small_work() as in_order:
        solved = solve(found.sums.moments, features, fit, checks, in_order)
    return solved, found.sums, found.content


def _solve_by_sketch(
    rows: Rows, features: FeatureMap, near_mean: Array, spec: FitSpec, engine: Engine
) -> tuple[Solution, str]:
    """Leading eigenpairs of the scatter of the features from `sketch.PASSES` passes, without the D × D matrix."""
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
