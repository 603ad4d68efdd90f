"""The pass of a fit, its small eigenproblem, and the certificate of the solution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, check_overflow
from bigkpca.execution import release_freed_memory
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import BlockSums, action_of, computed_in_single, mean_features, sums_of
from bigkpca.fitting import certify
from bigkpca.fitting.features import choice, leading_by_passes
from bigkpca.fitting.memory_limits import check_fits
from bigkpca.fitting.sample import Probes
from bigkpca.numerics import eigenpairs, precision
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.drawn_rows import Draw, Measure, least_threshold, quarter
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows, has_landmarks
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import Exact, Nystroem
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.moments import Moments, represented
from bigkpca.numerics.precision import RoundingOfRows, Slack
from bigkpca.numerics.span import Basis, Span, basis_of
from bigkpca.spec import FitSpec, ResolvedFit

_NEGATIVE = -1e-6  # of the largest eigenvalue: functions of users may compute in float32


def solve_rows(
    probes: Probes, features: FeatureMap, fit: ResolvedFit, engine: Engine, limit: int | None = None
) -> tuple[Model, Span | None]:
    """The model of the rows of which `probes` are some, with these features, from the passes of a fit, and the span of
    its landmarks.

    Features are in the dtype of the passes. Raises MemoryLimitError if that is float64, which the plan did not assume,
    and needs more than `limit`.
    """
    rows, X, spec = probes.rows, probes.X, fit.spec
    if spec.exact:
        assert has_landmarks(features)
        return _exactly(features, X, spec), None
    shift = mean_features(features, X)
    shift = shift.astype(features.dtype).astype(np.float64)  # rounded as when it is subtracted from tiles
    if fit.randomized(features.size):
        return _by_sketch(rows, features, shift, spec, engine), None
    basis, rounding, choices = span_basis(features), rounding_of(features, X, shift, engine), []
    if _float64_is_needed(probes, features, basis, rounding, spec):
        engine.progress.note("rounding in float32 would be too large here: the pass is in float64")
        check_fits(rows, fit.changed(dtype="float64"), engine, limit)
        reason = "rounding in float32 could move an eigenvalue, or what landmarks miss, by more than 1 %"
        choices.append(choice("dtype", "float64", reason))
        features = features.in_precision(np.dtype(np.float64))
    measure = Measure.of_rows()
    if basis is not None and basis.triangular:
        measure = Measure.of_landmarks(basis.W, basis.order[: quarter(len(basis.order))], features.dtype)
    draw = draw_of(features, measure, X, probes.weights, probes.weight, fit)
    found = sums_of(rows, features, shift, rounding.of(features.dtype), spec.block_rows, engine, draw)
    return solve(found, features, spec, basis, X, choices)


def _float64_is_needed(
    probes: Probes, features: FeatureMap, basis: Basis | None, rounding: RoundingOfRows, spec: FitSpec
) -> bool:
    """Whether the pass must be in float64, although no dtype was asked for and features are in float32."""
    if spec.dtype is not None or features.dtype == np.float64:
        return False
    wanted = spec.n_components if isinstance(spec.n_components, int) else features.size
    return not precision.single_is_enough(rounding, features, basis, len(probes.X), probes.weight, wanted)


def rounding_of(features: FeatureMap, probes: Array, shift: Array, engine: Engine) -> RoundingOfRows:
    """The rounding of a pass over rows of which `probes` (q, d) are some."""
    X = precision.measured_rows(features, probes)
    return precision.rounding_of_rows(features, X, shift, computed_in_single(features, X, shift, engine))


def span_basis(features: FeatureMap) -> Basis | None:
    """The basis of the span of the landmarks; None without landmarks, and if kernels overflow."""
    W = features.gram()
    if W is None or not np.isfinite(W).all():
        return None
    return basis_of(W, rank_tolerance(features.dtype), positive=features.kernel.positive)


def draw_of(
    features: FeatureMap, measure: Measure, probes: Array, weights: Array | None, weight: float, fit: ResolvedFit
) -> Draw:
    """How the pass of a fit draws rows by this measure, from `probes` (q, d) with their weights (q,), of all rows with
    this weight."""
    least = 0.0
    if fit.n > fit.most_drawn:
        w = np.ones(len(probes)) if weights is None else weights
        ((V, diagonal),) = features.tiles([probes], len(probes))
        least = least_threshold(w * measure(V, diagonal), represented(w, weight) / w, fit.most_drawn)
    return Draw(measure, fit.most_drawn, least, fit.spec.random_state)


def solve(
    found: BlockSums,
    features: FeatureMap,
    spec: FitSpec,
    basis: Basis | None,
    probes: Array,
    choices: list[dict[str, Any]],
) -> tuple[Model, Span | None]:
    """Solve with the method of the spec: the model, with a certificate from the rows that were drawn, and the span of
    its landmarks. Rows `probes` (q, d) show negative eigenvalues that landmarks may not span, and kernels that are too
    small."""
    sums, drawn = found.sums, found.drawn
    assert drawn is not None
    moments, slack = sums.moments, Slack.of(features, sums.errors, sums.coarse)
    span, kept = None if basis is None else Span.of(basis, moments), None
    if span is not None and span.basis.triangular:
        kept = precision.kept_directions(slack, span)
        span = span.keep(kept.directions)
    release_freed_memory(features.size)
    solutions = _solutions(spec, moments, features, span)
    certificate = certify.of_sums(features, solutions, span, kept, slack, drawn, spec)
    solution = solutions.kept
    _check_representable(features, solution, probes)
    if span is not None and basis is not None and span.basis.P.shape[1] < basis.P.shape[1]:
        reason = f"of {basis.P.shape[1]} that the landmarks span; the rest may be mostly rounding"
        choices = [choice("directions", span.basis.P.shape[1], reason), *choices]
    provenance: Provenance = {"content": sums.digest, "choices": [*components_choice(spec, solution), *choices]}
    negative = min(solution.negative, _negative_on_few(features, probes, spec.center))
    solution = replace(solution, negative=negative)
    model = Model(features, solution, sums=sums, certificate=certificate, provenance=provenance, drawn=drawn)
    return model, span


def components_choice(spec: FitSpec, solution: Solution) -> list[dict[str, Any]]:
    """For a share of the variance, the number of components that reach it."""
    if not isinstance(spec.n_components, float):
        return []
    r, share = len(solution.eigenvalues), float(solution.explained_variance_ratio.sum())
    enough = "all there are"
    if share >= spec.n_components:
        enough = f"the fewest with {spec.n_components:.4g} of the variance"
    return [choice("n_components", r, f"{enough}: at least {share:.4g} of it")]


def _check_representable(features: FeatureMap, solution: Solution, probes: Array) -> None:
    """Raise DataError for a projection that overflows in the dtype of block work, and for kernels that vanish there."""
    with np.errstate(over="ignore"):
        projection = solution.projection(features.dtype)
    check_overflow(projection.mean, f"the mean of the features in {features.dtype}")
    check_overflow(projection.components, f"the components in {features.dtype}")
    if has_landmarks(features):
        largest = np.abs(features.kernel.diagonal(features.shifted(probes).astype(np.float64))).max()
        if 0 < largest < np.finfo(features.dtype).tiny:  # scores would be zero
            raise DataError(
                f"kernel values are at most {largest:.1g}, too small for {features.dtype}: scale the columns, or fit "
                "with dtype float64"
            )


def _solutions(spec: FitSpec, moments: Moments, features: FeatureMap, span: Span | None) -> certify.Solutions:
    """The solution of the spec, and a wider one: of Nyström where there are landmarks, otherwise of the same method."""
    method, asked, tolerance = spec.method_value, spec.n_components, rank_tolerance(features.dtype)
    judged_by = method if span is None else Nystroem()
    if method == judged_by and isinstance(asked, int):
        wide = method.solve(moments, features, certify.wider(asked), spec.center, tolerance, span)
        return certify.Solutions(wide.first(asked), wide, moments)
    solution = method.solve(moments, features, asked, spec.center, tolerance, span)
    count = certify.wider(len(solution.eigenvalues))
    wide = judged_by.solve(moments, features, count, spec.center, tolerance, span)
    return certify.Solutions(solution, wide, moments)


def _negative_on_few(features: FeatureMap, probes: Array, center: bool) -> float:
    """The most negative eigenvalue of the Gram matrix of a few rows, relative to its largest; 0 for kernels without
    negative eigenvalues. Landmarks may not span the negative directions of the rows."""
    if features.kernel.positive:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        K = features.kernel.gram(features.shifted(probes).astype(np.float64))
    if not np.isfinite(K).all():
        return 0.0
    if center:
        K = K - K.mean(axis=0)
        K -= K.mean(axis=1)[:, None]
    values = np.linalg.eigvalsh(K)
    least, largest = float(values[0]), float(values[-1])
    return least / largest if least < _NEGATIVE * largest and largest > 0 else 0.0


def _exactly(features: KernelRows, probes: Array, spec: FitSpec) -> Model:
    """The model of the exact method, whose landmarks are all rows."""
    kernel = features.kernel
    exact = features.in_precision(np.dtype(np.float64))
    stored, given = features.shifted(probes).astype(np.float64), exact.shifted(probes)  # rounded, and as they are
    # For a positive semidefinite kernel no entry exceeds the largest on the diagonal.
    entries = kernel.diagonal(features.landmarks) if kernel.positive else features.gram()
    largest = float(np.abs(entries).max())
    value = precision.error_of_gram(features) * largest + float(np.abs(kernel.gram(stored) - kernel.gram(given)).max())
    value += precision.moved_by_rounding(features)
    solution = Exact().solve(None, features, spec.n_components, spec.center, rank_tolerance(features.dtype))
    _check_representable(features, solution, probes)
    certificate = certify.of_gram(solution, largest, value, float(np.finfo(features.dtype).eps))
    provenance: Provenance = {"choices": components_choice(spec, solution)}
    return Model(features, solution, certificate=certificate, provenance=provenance)


def _by_sketch(rows: Rows, features: FeatureMap, shift: Array, spec: FitSpec, engine: Engine) -> Model:
    """The model of leading eigenpairs from `solvers.PASSES` passes, without the D × D matrix of the features."""
    assert isinstance(spec.n_components, int)  # the spec checks
    count, tolerance = min(spec.n_components, features.size), rank_tolerance(features.dtype)
    found, action = leading_by_passes(
        lambda Q: action_of(rows, features, shift, Q, spec.block_rows, engine), shift, count, spec, center=spec.center
    )
    added = features.unexplained(action.squares_about_zero(shift), action.weight)
    mean = action.mean(shift) if spec.center else np.zeros(features.size)
    solution = eigenpairs.spectrum(found.values, found.vectors, mean, action, spec.n_components, added, tolerance)
    certificate = Certificate.of(len(solution.eigenvalues))
    return Model(features, solution, certificate=certificate, provenance={"choices": []})
