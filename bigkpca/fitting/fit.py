"""Fit a model: choose features on a sample, add up moments in one pass, solve, and refine by products on request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.devices import CPU
from bigkpca.data.rows import Rows, identity_of
from bigkpca.errors import ConstantKernelError, SpecError
from bigkpca.execution import trim
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.fitting.calibration import calibrated, without_calibration
from bigkpca.fitting.features import ChosenFeatures, SizeLimits, choose_features
from bigkpca.fitting.memory_limits import check_fits, make_room
from bigkpca.fitting.precomputed import fit_precomputed
from bigkpca.fitting.preimage import with_decoder
from bigkpca.fitting.reference import with_reference
from bigkpca.fitting.refine import refine_by_products
from bigkpca.fitting.solve import Solved, solve_rows
from bigkpca.fitting.warnings import (
    check_length,
    note_lowered,
    warn_above_tolerance,
    warn_if_dominated,
    warn_if_fewer,
    warn_if_indefinite,
    warn_if_narrow,
    warn_of,
)
from bigkpca.numerics.model import Model, Provenance
from bigkpca.spec import FitSpec, ResolvedFit, resolve
from bigkpca.spec.checks import without_weights


def fit_rows(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    identity: dict[str, Any] | None = None,
    limit: int | None = None,
    deadline: float | None = None,
) -> Model:
    """Fit kernel PCA to rows: one bounded sample, one pass, one small eigenproblem, and the pre-image.

    `standardize` and rff-pca take one more pass each; the randomized solver makes `sketch.PASSES` passes in all, and
    RPCholesky over all rows makes those that it reports. `identity` is the fingerprint of the rows, by which a saved
    model is recognised. With a tolerance, the size grows as far as `limit` (bytes of a process), the workers and
    `deadline` (of the monotonic clock) allow; if the certificate still exceeds the tolerance, it grows again, with one
    more pass.

    Raises MemoryLimitError, before anything is read, if the plan needs more than `limit` or than the workers may use,
    and before a pass in float64 that needs more; DataError for NaN and infinity (naming row and column) and for
    constant data, SpecError for a tolerance that no size reaches. Warns IndefiniteKernelWarning if the kernel has
    negative eigenvalues, which are dropped; DominantVariableWarning if one column makes nearly all of the distances
    between rows; NarrowKernelWarning if the Gram matrix is close to the identity;
    ToleranceWarning if memory or time ended the growth; FewerComponentsWarning if the model has fewer components than
    requested.
    """
    if rows.weights is not None and (clash := without_weights(spec, "sample weights")):
        raise SpecError(clash.message)
    identity = identity or identity_of(rows, stamped=False)
    rows, apart = without_calibration(rows, spec, engine)
    fit = replace(resolve(spec, rows), apart=apart)
    if engine.device is not None and (spec.precomputed or (spec.exact and not fit.matrix_free)):
        engine.progress.note(f"{engine.device} is not used: Gram matrices in memory are solved on the processor")
        engine = engine.on_device(None)
    limits = replace(check_fits(rows, fit, engine, limit), deadline=deadline)
    make_room(engine.kept, rows, fit, limit)
    provenance: Provenance = {"spec": spec.to_dict(), "identity": identity}
    provenance |= of_columns(rows)
    note_lowered(fit, engine.progress)
    if spec.precomputed:
        model = fit_precomputed(rows, fit, engine)
        warn_if_indefinite(model.solution)
        warn_if_fewer(model, fit, engine.progress)
        return replace(model, provenance={**provenance, **model.provenance})
    first = fit.start() if fit.matrix_free else fit
    chosen, found = _solved(rows, first, limits, engine)
    provenance |= {"content": found.digest, "choices": [*chosen.choices, *found.choices]}
    provenance |= of_devices(engine.devices or [CPU])
    model = found.model(chosen.features, provenance)
    trim(first.size)
    if fit.matrix_free:
        del chosen, found  # products do not need them
        model = refine_by_products(rows, model, spec, engine)
        warn_if_fewer(model, fit, engine.progress)
        model = with_decoder(model, None, spec)
        return with_reference(model, None, rows.shape[0], spec.random_state, engine, spec)
    warn_if_fewer(model, fit, engine.progress)
    model = with_decoder(model, chosen.sample, spec, found.span)
    reference, weights = (None, None) if spec.exact else (chosen.reference, chosen.reference_weights)
    count = rows.shape[0] if model.sums is None else model.sums.count
    model = with_reference(model, reference, count, spec.random_state, engine, spec, found.span, weights, chosen.weight)
    return calibrated(model, chosen.apart, chosen.weight, engine) if spec.calibration_rows else model


def of_columns(rows: Rows) -> Provenance:
    """What a model records about the columns of rows: their names, and which of them encode one column of
    categories."""
    found: Provenance = {}
    if rows.names is not None:
        found["column_names"] = list(rows.names)
    if rows.one_hot:
        found["one_hot"] = [list(each) for each in rows.one_hot]
    return found


def of_devices(names: Iterable[str]) -> Provenance:
    """What a model records about the devices that computed it: nothing if there was only the processor."""
    found = sorted(set(names))
    return {} if found == [CPU] else {"devices": found}


def _solved(rows: Rows, fit: ResolvedFit, limits: SizeLimits, engine: Engine) -> tuple[ChosenFeatures, Solved]:
    """Features, and the solution of their pass; again with a larger size, if a tolerance needs it."""
    spec = fit.spec
    while True:
        chosen = found = None  # frees those of the previous round
        with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # the pass reports rows that overflow
            chosen = choose_features(rows, fit, limits, engine)
            try:
                features, found = solve_rows(rows, chosen, fit, engine, limits.memory)
            except ConstantKernelError:
                check_length(chosen.features, chosen.few)
                raise
        chosen = replace(chosen, features=features)
        grown, reached = chosen.grown, found.certificate.unexplained
        if not grown or grown.stopped or not features.kernel.positive or reached <= (spec.tol or 1):
            break
        engine.progress.note(f"size {grown.size} has error {reached:.4g}, above tol={spec.tol}: growing further")
        limits = replace(limits, bias=limits.bias * reached / grown.error.value)
    warn_if_dominated(rows, chosen.few, features, spec)
    warn_if_narrow(features, chosen.few, found.solution.unexplained)
    warn_of(found, features)
    if grown and grown.stopped:
        warn_above_tolerance(grown.size, reached if reached < 1 else grown.error.value, grown.stopped, spec)
    return chosen, found
