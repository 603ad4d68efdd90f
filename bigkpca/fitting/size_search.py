"""Automatic sizes: grow the size until the error estimated on sampled rows is below the tolerance. No pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from bigkpca.errors import SpecError, check_overflow
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.fitting.features import FeatureMapFactory
from bigkpca.fitting.sample import PreparedSample
from bigkpca.numerics import growth
from bigkpca.numerics.features import FeatureMap, has_landmarks
from bigkpca.numerics.growth import EstimatedError, SampleStratum, SizeTrial
from bigkpca.numerics.landmarks import RPCholesky
from bigkpca.spec import FitSpec, ResolvedFit

_START = 100


@dataclass(frozen=True)
class SizeLimits:
    """Limits on the growth of a size, and bytes that a process may use (None: no limit).

    `largest` is the largest size allowed, because of `limited_by` (None: no more are ever held). The pass, whose time
    is estimated from the trial of a size, must end before `deadline`, a time of the monotonic clock. `bias` is the
    ratio of certified to estimated error in an earlier round.
    """

    largest: int
    limited_by: str | None = None
    deadline: float | None = None
    bias: float = 1.0
    memory: int | None = None


@dataclass(frozen=True)
class GrownSize:
    """A size reached by growth, its feature map and estimated error, and what stopped it above the tolerance."""

    size: int
    features: FeatureMap
    error: EstimatedError
    stopped: str | None = None


def grow_size(
    prepared: PreparedSample,
    make_features: FeatureMapFactory,
    fit: ResolvedFit,
    size_limits: SizeLimits,
    engine: Engine,
    progress: Progress,
) -> GrownSize:
    """The smallest size, within a tenth, whose error on sampled rows plus two standard errors is at most `spec.tol`.

    The error is the relative trace error, or that of the kernel for random features. Raises SpecError if no size within
    the limits reaches the tolerance.
    """
    spec = fit.spec
    assert spec.tol is not None
    judge, judged = _error_estimator(prepared, spec)
    step = 2 if spec.method_value.pairs else 1
    tried: list[SizeTrial] = []
    best: GrownSize | None = None
    late = False
    while (size := growth.next_size(tried, spec.tol, start=_START, most=size_limits.largest, step=step)) is not None:
        features = make_features(_fit_at_size(fit, size))
        started = monotonic()
        found = judge(features)
        check_overflow(np.array(found.value), prepared.rows.where)
        pass_seconds = (monotonic() - started) * prepared.rows.shape[0] / judged / engine.threads
        grown = GrownSize(size, features, replace(found, value=found.value * size_limits.bias))
        progress.note(f"size {size}: error {found.value:.3g} ± {found.standard_error:.1g}, from {judged} sampled rows")
        tried.append(SizeTrial(size, grown.error.at_most))
        late = size_limits.deadline is not None and monotonic() + pass_seconds > size_limits.deadline
        if best is None or not (late or best.error.at_most <= spec.tol) or grown.error.at_most <= spec.tol:
            best = grown
        if late:
            break
    assert best is not None  # at least one size is tried
    if best.error.at_most > spec.tol:
        bound = "the time budget" if late else size_limits.limited_by
        if bound is None:
            raise _tolerance_out_of_reach(best, tried, spec)
        best = replace(best, stopped=bound)
    if _fit_at_size(fit, best.size) != fit.at(best.size):
        best = replace(best, features=make_features(fit.at(best.size)))
    return best


def _fit_at_size(fit: ResolvedFit, size: int) -> ResolvedFit:
    """The fit of that size, with RPCholesky on the sample alone; the final choice of landmarks makes the passes."""
    sized = fit.at(size)
    if isinstance(fit.rule, RPCholesky) and fit.rule.over == "all":
        return sized.with_rule(replace(fit.rule, over="sample"))
    return sized


def _error_estimator(prepared: PreparedSample, spec: FitSpec) -> tuple[Callable[[FeatureMap], EstimatedError], int]:
    """A function that estimates the error of a feature map on sampled rows, and the number of these rows."""
    (n, _), sampled, columns = prepared.rows.shape, prepared.sampled, prepared.columns
    m = len(sampled.sample)
    if not spec.method_value.landmarks:
        few = sampled.few[: growth.PAIRED_ROWS]
        return (lambda features: growth.kernel_error(features, few, spec.center)), len(few)
    # Rows that landmarks may be made from have smaller errors than others: two strata, weighted by size.
    seen = sampled.few[: max(1, growth.JUDGING_ROWS * m // n)]
    strata = [SampleStratum(columns.shifted(seen), m), SampleStratum(columns.shifted(sampled.held_out), n - m)]

    def judge(features: FeatureMap) -> EstimatedError:
        assert has_landmarks(features)
        return growth.trace_error(features, strata, spec.center)

    return judge, len(seen) + len(sampled.held_out)


def _tolerance_out_of_reach(best: GrownSize, tried: list[SizeTrial], spec: FitSpec) -> SpecError:
    """The error for a tolerance that no size within the limits reaches."""
    what = "landmarks" if spec.method_value.landmarks else "random features"
    return SpecError(
        f"tol={spec.tol} is out of reach: {best.size} {what}, the most that are grown to, leave an error of "
        f"{best.error.value:.2g}; about {growth.extrapolated(tried, spec.tol or 1.0):,} would do. Take a larger tol, a "
        "larger sigma, or eigenpairs without this error: method='exact', or refine=1"
    )
