"""Automatic sizes: grown on the sample until the error that it foretells is below the tolerance. No pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic

from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.fitting.features import FeatureMapFactory
from bigkpca.fitting.sample import PreparedSample
from bigkpca.numerics import growth
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.numerics.growth import Estimate, Stratum, Trial
from bigkpca.numerics.landmarks import RPCholesky
from bigkpca.spec import FitSpec, ResolvedFit

_START = 100
PAIRED_ROWS = 1024  # of which all pairs are taken, for random features


@dataclass(frozen=True)
class SizeLimits:
    """How far a size may grow: to `most`, because of `bound` (None: more are never held); and as long as the pass,
    whose time the trial of a size foretells, ends before `deadline`, a time of the monotonic clock.

    `bias` is how many times an earlier round's certified error was the foretold one.
    """

    largest: int
    limited_by: str | None = None
    deadline: float | None = None
    bias: float = 1.0


@dataclass(frozen=True)
class GrownSize:
    """The size that was reached, its feature map, the error that it was foretold to have, and what stopped it above
    the tolerance (None: nothing did)."""

    size: int
    features: FeatureMap
    error: Estimate
    stopped: str | None = None


def grow_size(
    prepared: PreparedSample,
    make_features: FeatureMapFactory,
    fit: ResolvedFit,
    size_limits: SizeLimits,
    engine: Engine,
    progress: Progress,
) -> GrownSize:
    """The smallest size, to a tenth, whose error on sampled rows, two standard errors added, is at most `spec.tol`.

    The error is the relative trace error, for random features that of the kernel. Raises SpecError when no size that
    can be held reaches the tolerance.
    """
    spec = fit.spec
    assert spec.tol is not None
    judge, judged = _error_estimator(prepared, spec)
    step = 2 if spec.method_value.pairs else 1
    tried: list[Trial] = []
    best: GrownSize | None = None
    late = False
    while (size := growth.next_size(tried, spec.tol, start=_START, most=size_limits.largest, step=step)) is not None:
        features = make_features(_fit_at_size(fit, size))
        started = monotonic()
        found = judge(features)
        pass_seconds = (monotonic() - started) * prepared.rows.shape[0] / judged / engine.threads
        grown = GrownSize(size, features, replace(found, value=found.value * size_limits.bias))
        progress.note(f"size {size}: error {found.value:.3g} ± {found.standard_error:.1g}, from {judged} sampled rows")
        tried.append(Trial(size, grown.error.at_most))
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
    """The fit of that size; without passes over all rows, which the last choice makes up for."""
    sized = fit.at(size)
    if isinstance(fit.rule, RPCholesky) and fit.rule.over == "all":
        return sized.with_rule(replace(fit.rule, over="sample"))
    return sized


def _error_estimator(prepared: PreparedSample, spec: FitSpec) -> tuple[Callable[[FeatureMap], Estimate], int]:
    """The error of a feature map on sampled rows, and how many these are."""
    (n, _), sampled, columns = prepared.rows.shape, prepared.sampled, prepared.columns
    m = len(sampled.sample)
    if not spec.method_value.landmarks:
        few = sampled.few[:PAIRED_ROWS]
        return (lambda features: growth.kernel_error(features, few, spec.center)), len(few)
    # Rows that landmarks may have been made from have smaller errors than others: each kind has its share.
    seen = sampled.few[: max(1, growth.JUDGING_ROWS * m // n)]
    strata = [Stratum(columns.shifted(seen), m), Stratum(columns.shifted(sampled.held_out), n - m)]

    def judge(features: FeatureMap) -> Estimate:
        assert isinstance(features, KernelRows)
        return growth.trace_error(features, strata, spec.center)

    return judge, len(seen) + len(sampled.held_out)


def _tolerance_out_of_reach(best: GrownSize, tried: list[Trial], spec: FitSpec) -> SpecError:
    what = "landmarks" if spec.method_value.landmarks else "random features"
    return SpecError(
        f"tol={spec.tol} is out of reach: {best.size} {what}, the most that are grown to, leave an error of "
        f"{best.error.value:.2g}; about {growth.extrapolated(tried, spec.tol or 1.0):,} would do. Take a larger tol, a "
        "larger sigma, or eigenpairs without this error: method='exact', or refine=1"
    )
