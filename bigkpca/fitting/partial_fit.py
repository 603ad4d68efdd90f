"""Add rows to a fitted model (`partial_fit`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bigkpca.data.rows import Rows, anonymous
from bigkpca.errors import SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import read_rows, sums_of
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import check_columns
from bigkpca.fitting.choose_features import choices_info, kept_choices
from bigkpca.fitting.like import NO_SUMS, check_same_problem
from bigkpca.fitting.outcome import FitOutcome
from bigkpca.fitting.preimage import check_extensible, extend_decoder
from bigkpca.fitting.sample import unseen_row_numbers
from bigkpca.fitting.solve import Checks, rounding_of, solve, some_of
from bigkpca.fitting.warnings import warn_if_beyond_tolerance, warn_if_not_uniform, warn_of
from bigkpca.numerics import eigenpairs, rounding
from bigkpca.numerics.certificates import spectral
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.spec import FitSpec, ResolvedFit, resolve
from bigkpca.spec.resolved import randomized

_MAY_CHANGE = ("components", "noise")


def check_supports_partial_fit(spec: FitSpec) -> None:
    """Raise SpecError if no rows can be added to any model of this spec."""
    sketched = spec.solver == "randomized" or (isinstance(spec.size, int) and randomized(spec, spec.size))
    if spec.exact or spec.refine or sketched:
        raise SpecError(NO_SUMS)
    check_extensible(spec)


def extend(model: Model, rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> Model:
    """Add rows to a model: a bounded sample of the new rows, one pass over them, moments added, solved again.

    Kernel, landmarks, frequencies, offset and scale stay; the signs of components follow the old model. `components`
    and `noise` of `spec` may differ from those of the fit, and are recorded in the new model.

    Raises SpecError if other fields differ, for models without moments (exact ones and those of the randomized solver),
    and for pre-images that are trained; RoundingError if the sums are impossible for real rows. Warns
    IndefiniteKernelWarning, RoundingWarning and UnseenClusterWarning as a fit does, and UniformLandmarksWarning.
    """
    if model.sums is None:
        raise SpecError(NO_SUMS)
    check_columns(rows, model)
    check_extensible(spec)
    check_same_problem(spec, FitSpec.of(model), _MAY_CHANGE)
    features = model.features
    more = sums_of(rows, features, model.sums.about, model.block_rows, engine, progress)
    sums = model.sums + more.sums
    moments = sums.moments
    fit = resolve(spec, rows)
    checks = replace(_checks_of_new_rows(model, rows, fit, engine, progress), far=more.far)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        with engine.small_work() as in_order:
            found, certified, choices, _ = solve(moments, features, fit, checks, in_order)
        solution = eigenpairs.aligned(found, model.solution, features.gram())
    outcome = FitOutcome(solution, certified, sums, more.content, choices)
    warn_of(outcome, features)
    warn_if_beyond_tolerance(outcome, spec)
    warn_if_not_uniform(spec)
    added = [*model.provenance.get("added", []), anonymous(rows) | {"sha256": more.content}]
    recorded = model.provenance["spec"] | {key: getattr(spec, key) for key in _MAY_CHANGE}
    changed = {"spec": recorded, "added": added, "choices": kept_choices(model) + choices_info(choices)}
    larger = Model(features, solution, sums, certified, {**model.provenance, **changed})
    return extend_decoder(larger, model, spec)


def _checks_of_new_rows(model: Model, rows: Rows, fit: ResolvedFit, engine: Engine, progress: Progress) -> Checks:
    """Rows that measure the error of the extended model: of the new rows, with landmarks standing for the old ones."""
    features, sums = model.features, model.sums
    assert sums is not None
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
        kept = rounding.MEASURED_ROWS * sums.count // (sums.count + n)
        fresh = found[np.searchsorted(wanted, few[: rounding.MEASURED_ROWS - kept])]
        sample = np.concatenate([some_of(earlier_sample, kept, fit.spec.seed), fresh])
    unseen_rows = found[np.searchsorted(wanted, unseen)]
    triangular = bool(before[0].triangular) if before else None
    return Checks(some, sums.about, unseen_rows, n, sample, before, rounding_of(model), triangular)
