"""From rows to a model: chosen on a sample, fitted in a pass, refined by products where asked for."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows, anonymous
from bigkpca.errors import (
    Array,
    IndefiniteKernelWarning,
    MemoryLimitError,
    NarrowKernelWarning,
    RoundingError,
    RoundingWarning,
    SpecError,
    ToleranceWarning,
    UniformLandmarksWarning,
    UnseenClusterWarning,
)
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import largest_size_that_fits, plan_fit, smallest
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import check_columns
from bigkpca.execution.reductions import action_of, moments_of, read_rows
from bigkpca.fitting import refine
from bigkpca.fitting.choices import Choice, Chosen, choices_info, choose
from bigkpca.fitting.preimage import check_extensible, extended, with_decoder
from bigkpca.fitting.sample import unseen_numbers
from bigkpca.fitting.size_search import Room
from bigkpca.fitting.solve import Checks, solve
from bigkpca.numerics import eigenpairs, rounding, spectral
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, KernelRows, PrincipalFourierRows
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.random_streams import PROBES, SKETCH, random_stream
from bigkpca.numerics.sketch import OVERSAMPLING, Action, leading_eigenpairs, starting_block
from bigkpca.spec import FitSpec

_NOTICEABLY_NEGATIVE = -1e-8  # rounding alone leaves eigenvalues of about -1e-15 of the largest
_MOSTLY_UNEXPLAINED = 0.5
_MAY_CHANGE = ("components", "noise")  # when rows are added
_NO_MOMENTS = (
    "a model of the exact method, of products with the Gram matrix, or of the randomized solver cannot take more rows: "
    "fit it again on all of them, or use nystroem"
)
_COARSE, _TOO_COARSE = 0.01, 0.05  # shares that rounding may move: beyond, float64; beyond, a warning


def fit_within(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    limit: int | None,
    progress: Progress,
    identity: dict[str, Any] | None = None,
    deadline: float | None = None,
) -> Model:
    """`fit_rows`, unless its plan needs more than `limit` bytes in a process, or than workers may use; with a tolerance
    the size grows only as far as that allows.

    Raises MemoryLimitError before anything is read.
    """
    if spec.tol is not None:
        room = replace(_room(rows, spec, engine, limit), deadline=deadline)
        return fit_rows(rows, spec, engine, progress, identity, room)
    check_fits(rows, spec, engine, limit)
    return fit_rows(rows, spec, engine, progress, identity)


def check_fits(rows: Rows, spec: FitSpec, engine: Engine, limit: int | None) -> None:
    """Raise MemoryLimitError where a fit needs more than `limit` bytes in a process, or than workers may use.

    With a tolerance the size grows as far as memory allows: a size of 10 is what must fit.
    """
    if spec.tol is not None:
        _room(rows, spec, engine, limit)
        return
    plan = plan_fit(rows, spec, engine.threads)
    if spec.precomputed:
        plan.check(limit, "store the matrix in smaller chunks, ask for fewer components, or allow more")
    elif limit is not None and plan.peak_bytes > limit:
        plan.check(limit, _smaller(rows, spec, engine.threads, limit))
    engine.check_memory(lambda threads: plan_fit(rows, spec, threads).peak_bytes)


def _smaller(rows: Rows, spec: FitSpec, threads: int, limit: int) -> str:
    """What to do where a fit needs more than `limit` bytes: the size that would fit, else how much the least needs."""
    if spec.own_landmarks is not None:
        return f"give fewer than {spec.own_landmarks} landmarks, or allow more"
    size = largest_size_that_fits(rows, spec, threads, limit)
    if size is None:
        return f"{smallest(rows, spec, threads)}: allow more"
    return f"{'nystroem' if spec.exact else spec.method_value.name} with a size of {size} would fit"


def _room(rows: Rows, spec: FitSpec, engine: Engine, limit: int | None) -> Room:
    """How far memory lets the size grow: this process's limit, and those of workers."""
    room = Room(spec.feature_count(*rows.shape))
    limits = [] if limit is None else [(f"the memory limit of {limit / 1e6:.0f} MB", engine.threads, limit)]
    limits += [
        (f"the memory of worker {address}", threads, bytes_) for address, threads, bytes_ in engine.worker_limits()
    ]
    for name, threads, allowed in limits:
        if plan_fit(rows, spec.model_copy(update={"size": room.most}), threads).peak_bytes > allowed:
            size = largest_size_that_fits(rows, spec, threads, allowed)
            if size is None:
                raise MemoryLimitError(f"{smallest(rows, spec, threads)}, above {name}: allow more")
            room = Room(size - size % 2, name)
    return room


def fit_rows(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    progress: Progress,
    identity: dict[str, Any] | None = None,
    room: Room | None = None,
) -> Model:
    """Fit rows wherever they are: one bounded sample, one pass, one small eigenproblem; and the way back.

    `standardize`, rff-pca and ways back that are learned make one pass more each, the randomized solver as many as
    `sketch.PASSES` in all, and RPCholesky over all rows those that it tells of. `identity` is the fingerprint of the
    rows, where a model on disk must know them again; `room` says how far a size may grow to a tolerance, with one pass
    more where the certificate does not bear out what the sample foretold. Raises DataError for NaN, infinity (row and
    column named) and constant data, SpecError for a tolerance that is out of reach. Warns IndefiniteKernelWarning when
    the kernel has negative eigenvalues, which are dropped, NarrowKernelWarning when the Gram matrix is close to the
    identity, ToleranceWarning when memory or time ended the growth.
    """
    model, sample = _without_decoder(rows, spec, engine, progress, identity, room)
    return with_decoder(model, rows, sample, spec, engine, progress)


def _without_decoder(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    progress: Progress,
    identity: dict[str, Any] | None,
    room: Room | None,
) -> tuple[Model, Array | None]:
    """The model, and sampled rows where its way back needs them."""
    if spec.precomputed:
        _note_lowered(spec, rows, progress)
        model = refine.of_similarities(rows, spec, engine, progress)
        _warn_if_indefinite(model.solution)
        return replace(model, provenance={**_origin(rows, spec, identity), **model.provenance}), None
    if spec.matrix_free(rows.shape[0]):
        start, _ = _without_decoder(rows, spec.start(rows.shape[0]), engine, progress, identity, room)
        return refine.by_products(rows, start, spec, engine, progress), None
    _note_lowered(spec, rows, progress)
    room = room or Room(spec.feature_count(*rows.shape))
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # the pass names rows that overflow
        chosen = choose(rows, spec, room, engine, progress)
        single = spec.dtype is None and chosen.features.dtype != np.float64
        try:
            found = _solved(rows, chosen, spec, engine, progress)
        except RoundingError:
            if not single:
                raise
            return _in_double_precision(rows, spec, engine, progress, identity, room)
    if single and _coarse(found, _COARSE):
        return _in_double_precision(rows, spec, engine, progress, identity, room)
    grown, reached = chosen.grown, found.certificate.relative_trace_error
    if grown and not grown.stopped and reached is not None and reached > (spec.tol or 1):
        progress.note(f"size {grown.size} leaves {reached:.4g}, above tol={spec.tol}: growing on")
        more = replace(room, bias=room.bias * reached / grown.error.value)
        return _without_decoder(rows, spec, engine, progress, identity, more)
    _warn_if_narrow(chosen.features.kernel, chosen.unexplained, found.solution.unexplained)
    _warn(found, chosen.features)
    if grown and grown.stopped:
        _warn_above_tolerance(grown.size, reached or grown.error.value, grown.stopped, spec)
    choices = (*chosen.choices, *found.choices)
    provenance = _origin(rows, spec, identity) | {"content": found.digest, "choices": choices_info(choices)}
    model = Model(chosen.features, found.solution, found.moments, found.certificate, provenance)
    return model, chosen.sample


def _in_double_precision(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    progress: Progress,
    identity: dict[str, Any] | None,
    room: Room | None,
) -> tuple[Model, Array | None]:
    """`_without_decoder` with block work in float64, and a choice that says why."""
    progress.note("rounding in float32 would count here: fitting again in float64")
    double = spec.model_copy(update={"dtype": "float64"})
    model, sample = _without_decoder(rows, double, engine, progress, identity, room)
    reason = f"rounding in float32 may move the bounds or leading eigenvalues by more than {_COARSE}"
    choices = [*model.provenance["choices"], *choices_info((Choice("dtype", "float64", reason),))]
    return replace(model, provenance={**model.provenance, "spec": spec.to_dict(), "choices": choices}), sample


def _origin(rows: Rows, spec: FitSpec, identity: dict[str, Any] | None) -> dict[str, Any]:
    names = {} if rows.names is None else {"column_names": list(rows.names)}
    return {"spec": spec.to_dict(), "identity": identity or anonymous(rows), **names}


@dataclass(frozen=True)
class _Solved:
    """What the passes of a fit and its eigenproblem leave."""

    solution: Solution
    certificate: Certificate
    moments: Moments | None
    digest: str  # of the rows
    choices: tuple[Choice, ...]


def _solved(rows: Rows, chosen: Chosen, spec: FitSpec, engine: Engine, progress: Progress) -> _Solved:
    features, moments = chosen.features, None
    choices: tuple[Choice, ...] = ()
    if not spec.exact and spec.randomized(features.size):
        solution, digest = _solve_by_sketch(rows, features, chosen.near_mean, spec, engine, progress)
        certified = Certificate()
    else:
        if spec.exact:
            assert isinstance(features, KernelRows)
            digest = hashlib.sha256(features.landmarks.tobytes()).hexdigest()  # they are the rows
        else:
            moments, digest = moments_of(rows, features, chosen.near_mean, spec.block_rows, engine, progress)
        checks = Checks(chosen.few, chosen.near_mean, chosen.unseen, rows.shape[0], chosen.few)
        with engine.small_work() as in_order:
            solution, certified, choices = solve(moments, features, spec, checks, in_order)
    if chosen.kernel_error:
        certified = replace(certified, kernel_error=chosen.kernel_error.value)
    return _Solved(solution, certified, moments, digest, choices)


def _solve_by_sketch(
    rows: Rows, features: FeatureMap, near_mean: Array, spec: FitSpec, engine: Engine, progress: Progress
) -> tuple[Solution, str]:
    """Leading eigenpairs of the features' scatter from `sketch.PASSES` passes, never holding D x D."""
    assert isinstance(spec.components, int)  # the spec checks
    actions: list[tuple[Action, str]] = []

    def apply(Q: Array) -> Array:
        actions[:] = [action_of(rows, features, near_mean, Q, spec.block_rows, engine, progress)]
        return actions[0][0].applied(Q, near_mean, spec.center)

    D, count = features.size, min(spec.components, features.size)
    start = starting_block(D, min(D, count + OVERSAMPLING), random_stream(spec.seed, SKETCH))
    found = leading_eigenpairs(apply, start, count)
    ((action, digest),) = actions
    unexplained = 0.0
    if isinstance(features, PrincipalFourierRows):
        unexplained = features.unexplained(action.squares_about_zero(near_mean), action.count)
    mean = action.mean(near_mean) if spec.center else np.zeros(features.size)
    tolerance = rank_tolerance(features.dtype)
    solution = eigenpairs.spectrum(
        found.values, found.vectors, mean, action.count, action.trace, spec.components, unexplained, tolerance
    )
    return solution, digest


def check_takes_more_rows(spec: FitSpec) -> None:
    """Raise SpecError where no rows can be added to any model of this spec."""
    sketched = spec.solver == "randomized" or (isinstance(spec.size, int) and spec.randomized(spec.size))
    if spec.exact or spec.refine or sketched:
        raise SpecError(_NO_MOMENTS)
    check_extensible(spec)


def _check_same_problem(spec: FitSpec, before: FitSpec) -> None:
    """Raise SpecError naming a field that more rows cannot change."""
    now, then = spec.to_dict(), before.to_dict()
    functions = isinstance(spec.kernel, Kernel) and not spec.kernel.savable  # of which no dictionary tells
    changed = [key for key in now if now[key] != then[key] and key not in _MAY_CHANGE]
    if functions and spec.kernel != before.kernel:
        changed = ["kernel", *changed]
    if changed:
        key = changed[0]
        name = "seed (random_state)" if key == "seed" else key
        raise SpecError(
            f"{name}={getattr(spec, key)!r}, but the model was fitted with {getattr(before, key)!r}, which adding rows "
            "cannot change: set it back, or fit again on all rows"
        )


def extend(model: Model, rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> Model:
    """The model of the rows it was fitted on and these: a bounded sample of these and one pass, moments added, solved
    again.

    Kernel, landmarks, frequencies, offset and scale stay; signs follow the old model's. Of `spec`, components and noise
    may be others than those of the fit, and the larger model records them. Raises SpecError for other fields that
    differ, for models without moments, exact ones and those of the randomized solver, and for ways back that were
    learned; RoundingError where the sums of the rows are no sums that rows can have. Warns IndefiniteKernelWarning,
    RoundingWarning, UnseenClusterWarning as a fit does, and UniformLandmarksWarning.
    """
    if model.moments is None:
        raise SpecError(_NO_MOMENTS)
    check_columns(rows, model)
    check_extensible(spec)
    _check_same_problem(spec, FitSpec.of(model))
    features = model.features
    more, content = moments_of(rows, features, model.moments.mean, model.block_rows, engine, progress)
    moments = model.moments + more
    checks = _checks_of_more(model, rows, spec, engine, progress)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        W = features.gram() if isinstance(features, KernelRows) else None
        with engine.small_work() as in_order:
            found, certified, choices = solve(moments, features, spec, checks, in_order)
        solution = eigenpairs.aligned(found, model.solution, W)
    _warn(_Solved(solution, certified, moments, content, choices), features)
    if spec.method_value.uniform:
        warnings.warn(
            f"{spec.method_value} takes the landmarks to be drawn uniformly from all rows, which they are not after "
            "partial_fit: its eigenvalues may be far off; use method='nystroem', or fit again on all rows",
            UniformLandmarksWarning,
            stacklevel=3,
        )
    added = [*model.provenance.get("added", []), anonymous(rows) | {"sha256": content}]
    kept = [choice for choice in model.provenance["choices"] if choice["option"] not in ("components", "directions")]
    recorded = model.provenance["spec"] | {key: getattr(spec, key) for key in _MAY_CHANGE}
    changed = {"spec": recorded, "added": added, "choices": kept + choices_info(choices)}
    larger = Model(features, solution, moments, certified, {**model.provenance, **changed})
    return extended(larger, model, spec)


def _checks_of_more(model: Model, rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> Checks:
    """Checks of the rows that are added; of those fitted before, landmarks take part in measuring the rounding."""
    features, moments = model.features, model.moments
    assert moments is not None
    unseen = unseen_numbers(rows, spec)
    strata = model.certificate.strata
    if isinstance(features, KernelRows) and strata is None:  # a model of before there were strata: nothing is known
        unseen = unseen[:0]
    n = rows.shape[0]
    few = random_stream(spec.seed, PROBES).choice(n, min(n, rounding.MEASURED_ROWS), replace=False)
    wanted = np.unique(np.concatenate([few, unseen]))
    found = read_rows(rows, wanted, engine, progress)
    some = found[np.searchsorted(wanted, few)]
    if isinstance(features, KernelRows):
        landmarks = features.landmarks_in_user_units()[: rounding.MEASURED_ROWS].astype(np.float64)
        some = np.concatenate([some.astype(np.float64), landmarks])
    before = () if strata is None else spectral.from_array(strata)
    had, sample = model.certificate.sample, None
    if had is not None:  # each kind of rows with its share
        kept = rounding.MEASURED_ROWS * moments.count // (moments.count + n)
        fresh = found[np.searchsorted(wanted, few[: rounding.MEASURED_ROWS - kept])]
        sample = np.concatenate([had[:kept], fresh])
    unseen_rows = found[np.searchsorted(wanted, unseen)]
    return Checks(some, moments.mean, unseen_rows, n, sample, before, _rounding_of(model))


def _rounding_of(model: Model) -> tuple[float, float]:
    """How far rounding may have moved tr(E), and an eigenvalue, of a model."""
    certified, solution = model.certificate, model.solution
    share, trace_error, low = certified.relative_trace_error, certified.trace_error, certified.eigenvalue_lower
    of_trace = 0.0
    if share is not None and trace_error is not None and low is not None:
        # The share is of the larger of these two totals.
        of_trace = share * max(solution.total_variance, float(low.sum()) / max(1 - share, 1e-12)) - trace_error
    of_values = 0.0 if certified.rounding is None else float(np.max(certified.rounding * solution.eigenvalues))
    return max(of_trace, 0.0), of_values


def _note_lowered(spec: FitSpec, rows: Rows, progress: Progress) -> None:
    size = spec.feature_count(*rows.shape)
    if not spec.exact and spec.size != "auto" and size < spec.size:
        progress.note(f"size lowered from {spec.size} to {size}: there are no more rows")
    if isinstance(spec.components, int) and spec.components > size:
        what = "landmarks" if spec.method_value.landmarks else "features"
        progress.note(f"components lowered from {spec.components} to at most {size}: there are no more {what}")


def _warn(found: _Solved, features: FeatureMap) -> None:
    _warn_if_indefinite(found.solution)
    _warn_if_rounded(found, features)
    _warn_of_cluster(found, features.kernel)


def _warn_if_indefinite(solution: Solution) -> None:
    if solution.negative < _NOTICEABLY_NEGATIVE:
        warnings.warn(
            f"the kernel is indefinite on these rows: its most negative eigenvalue is {solution.negative:.2g} "
            "of the largest; the negative part was dropped",
            IndefiniteKernelWarning,
            stacklevel=4,
        )


def _coarse(found: _Solved, share: float) -> bool:
    """Whether rounding may move the trace error by more than `share` of the variance, or a component by more than
    that of its eigenvalue, of those that together hold 99.9 % of what all components do."""
    certified, values = found.certificate, found.solution.eigenvalues
    proven, trace = certified.relative_trace_error, certified.trace_error
    if proven is not None and trace is not None and proven - trace / found.solution.total_variance > share:
        return True
    if certified.rounding is None:
        return False
    leading = int(np.searchsorted(np.cumsum(values), 0.999 * values.sum())) + 1
    return bool((certified.rounding[:leading] > share).any())


def _warn_if_rounded(found: _Solved, features: FeatureMap) -> None:
    if _coarse(found, _TOO_COARSE):
        worst = found.certificate.rounding
        eigenvalues = (
            "" if worst is None else f", of the first {min(5, len(worst))} eigenvalues at most {worst[:5].max():.2g}"
        )
        double = "" if features.dtype == np.float64 else "leave dtype out or take float64, or "
        warnings.warn(
            f"rounding in {features.dtype} may move the bounds by more than {_TOO_COARSE} of the variance{eigenvalues}"
            f": {double}subtract what is common to all rows, or scale columns to alike size",
            RoundingWarning,
            stacklevel=4,
        )


def _warn_of_cluster(found: _Solved, kernel: Kernel) -> None:
    strata = found.certificate.strata
    if strata is None or not kernel.stationary:  # of others no value says that rows are far
        return
    *_, last = spectral.from_array(strata)
    if last.cluster > found.solution.eigenvalues[-1]:
        warnings.warn(
            "rows that are similar to each other and to no landmark would make a component with an eigenvalue of about "
            f"{last.cluster:.3g}, which is missing: take a larger size, or landmarks='rpcholesky'",
            UnseenClusterWarning,
            stacklevel=4,
        )


def _warn_above_tolerance(size: int, error: float, stopped: str, spec: FitSpec) -> None:
    warnings.warn(
        f"tol={spec.tol} was not met: {stopped} ended the growth at size {size}, which leaves an error of {error:.3g}",
        ToleranceWarning,
        stacklevel=3,
    )


def _warn_if_narrow(kernel: Kernel, by_sample: float | None, by_landmarks: float | None) -> None:
    """Warn where K is close to the identity: neither 512 sampled landmarks nor those of the fit explain half of it."""
    shares = [share for share in (by_sample, by_landmarks) if share is not None]
    if kernel.stationary and min(shares) > _MOSTLY_UNEXPLAINED:
        warnings.warn(
            f"{kernel} is narrow for these rows: landmarks leave {min(shares):.0%} of Σ k(x, x) unexplained, and above "
            "50 % the Gram matrix is close to the identity, which nothing can compress; `bigkpca sigma` prints "
            "lengths that suit the data",
            NarrowKernelWarning,
            stacklevel=3,
        )
