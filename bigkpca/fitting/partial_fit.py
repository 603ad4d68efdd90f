"""Add rows to a fitted model (`partial_fit`)."""

from __future__ import annotations

import warnings

import numpy as np

from bigkpca.data.rows import Rows, anonymous
from bigkpca.errors import SpecError, UniformLandmarksWarning
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import moments_of, read_rows
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import check_columns
from bigkpca.fitting.choose_features import choices_info
from bigkpca.fitting.outcome import FitOutcome
from bigkpca.fitting.preimage import check_extensible, extend_decoder
from bigkpca.fitting.sample import unseen_row_numbers
from bigkpca.fitting.solve import Checks, solve
from bigkpca.fitting.warnings import warn_of
from bigkpca.numerics import eigenpairs, rounding
from bigkpca.numerics.certificates import spectral
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.spec import FitSpec, ResolvedFit, resolve
from bigkpca.spec.resolved import randomized

_MAY_CHANGE = ("components", "noise")  # fields that may change when rows are added
_NO_MOMENTS = (
    "a model of the exact method, of products with the Gram matrix, or of the randomized solver cannot take more rows: "
    "fit it again on all of them, or use nystroem"
)


def check_supports_partial_fit(spec: FitSpec) -> None:
    """Raise SpecError if no rows can be added to any model of this spec."""
    sketched = spec.solver == "randomized" or (isinstance(spec.size, int) and randomized(spec, spec.size))
    if spec.exact or spec.refine or sketched:
        raise SpecError(_NO_MOMENTS)
    check_extensible(spec)


def _check_same_problem(spec: FitSpec, before: FitSpec) -> None:
    """Raise SpecError, naming the field, if the spec changes a field that must stay the same when rows are added."""
    now, then = spec.to_dict(), before.to_dict()
    functions = isinstance(spec.kernel, Kernel) and not spec.kernel.savable  # to_dict does not tell functions apart
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
    """Add rows to a model: a bounded sample of the new rows, one pass over them, moments added, solved again.

    Kernel, landmarks, frequencies, offset and scale stay; the signs of components follow the old model. `components`
    and `noise` of `spec` may differ from those of the fit, and are recorded in the new model.

    Raises SpecError if other fields differ, for models without moments (exact ones and those of the randomized solver),
    and for pre-images that are trained; RoundingError if the sums are impossible for real rows. Warns
    IndefiniteKernelWarning, RoundingWarning and UnseenClusterWarning as a fit does, and UniformLandmarksWarning.
    """
    if model.moments is None:
        raise SpecError(_NO_MOMENTS)
    check_columns(rows, model)
    check_extensible(spec)
    _check_same_problem(spec, FitSpec.of(model))
    features = model.features
    more, content = moments_of(rows, features, model.moments.mean, model.block_rows, engine, progress)
    moments = model.moments + more
    fit = resolve(spec, rows)
    checks = _checks_of_new_rows(model, rows, fit, engine, progress)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        with engine.small_work() as in_order:
            found, certified, choices, _ = solve(moments, features, fit, checks, in_order)
        solution = eigenpairs.aligned(found, model.solution, features.gram())
    warn_of(FitOutcome(solution, certified, moments, content, choices), features)
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
    return extend_decoder(larger, model, spec)


def _checks_of_new_rows(model: Model, rows: Rows, fit: ResolvedFit, engine: Engine, progress: Progress) -> Checks:
    """Rows that measure the error of the extended model: of the new rows, with landmarks standing for the old ones."""
    features, moments = model.features, model.moments
    assert moments is not None
    unseen = unseen_row_numbers(fit)
    strata = model.certificate.strata
    if model.method.landmarks and strata is None:  # an older model, without strata: nothing is known
        unseen = unseen[:0]
    n = fit.n
    few = random_stream(fit.spec.seed, PROBES).choice(n, min(n, rounding.MEASURED_ROWS), replace=False)
    wanted = np.unique(np.concatenate([few, unseen]))
    found = read_rows(rows, wanted, engine, progress)
    some = found[np.searchsorted(wanted, few)]
    landmarks = features.landmarks_in_user_units()
    if landmarks is not None:
        some = np.concatenate([some.astype(np.float64), landmarks[: rounding.MEASURED_ROWS]])
    before = () if strata is None else spectral.from_array(strata)
    earlier_sample, sample = model.certificate.sample, None
    if earlier_sample is not None:  # old and new rows in proportion to their numbers
        kept = rounding.MEASURED_ROWS * moments.count // (moments.count + n)
        fresh = found[np.searchsorted(wanted, few[: rounding.MEASURED_ROWS - kept])]
        sample = np.concatenate([earlier_sample[:kept], fresh])
    unseen_rows = found[np.searchsorted(wanted, unseen)]
    return Checks(some, moments.mean, unseen_rows, n, sample, before, _rounding_of(model))


def _rounding_of(model: Model) -> tuple[float, float]:
    """Bounds on how far rounding may have moved tr(E) and an eigenvalue of a model."""
    certified, solution = model.certificate, model.solution
    share, trace_error, low = certified.relative_trace_error, certified.trace_error, certified.eigenvalue_lower
    of_trace = 0.0
    if share is not None and trace_error is not None and low is not None:
        # The share is relative to the larger of these two totals.
        of_trace = share * max(solution.total_variance, float(low.sum()) / max(1 - share, 1e-12)) - trace_error
    of_values = 0.0 if certified.rounding is None else float(np.max(certified.rounding * solution.eigenvalues))
    return max(of_trace, 0.0), of_values
