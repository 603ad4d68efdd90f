"""Fit a model: choose features on a sample, add up moments in one pass, solve, and refine by products on request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.devices import CPU
from bigkpca.data.rows import Rows, identity_of
from bigkpca.errors import ConstantKernelError, MemoryLimitError, SpecError
from bigkpca.execution import trim
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.fitting.calibration import calibrated, without_calibration
from bigkpca.fitting.features import ChosenFeatures, choice, choose_features
from bigkpca.fitting.memory_limits import check_fits, make_room
from bigkpca.fitting.precomputed import fit_precomputed
from bigkpca.fitting.preimage import with_decoder
from bigkpca.fitting.refine import refine_by_products
from bigkpca.fitting.sample import PreparedSample, prepare_sample
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
    rows: Rows, spec: FitSpec, engine: Engine, identity: dict[str, Any] | None = None, limit: int | None = None
) -> Model:
    """Fit kernel PCA to rows: one bounded sample, one pass, one small eigenproblem, and the pre-image.

    `standardize` and rff-pca take one more pass each; the randomized solver makes `solvers.PASSES` passes in all. With
    a tolerance, a pass is made for each size: 100, 200, 400, ..., until the certificate states an error of at most
    `spec.tol`, or memory ends the growth. `identity` is the fingerprint of the rows, by which a saved model is
    recognised; `limit`, the bytes that a process may use.

    Raises MemoryLimitError, before anything is read, if the plan needs more than `limit` or than the workers may use,
    and before a pass in float64 that needs more; DataError for NaN and infinity (naming row and column) and for
    constant data. Warns IndefiniteKernelWarning if the kernel has negative eigenvalues, which are dropped;
    DominantVariableWarning if one column makes nearly all of the distances between rows; NarrowKernelWarning if the
    Gram matrix is close to the identity; ToleranceWarning if no size met the tolerance; FewerComponentsWarning if the
    model has fewer components than requested.
    """
    if rows.weights is not None and (clash := without_weights(spec, "sample weights")):
        raise SpecError(clash.message)
    identity = identity or identity_of(rows, stamped=False)
    rows, apart = without_calibration(rows, spec, engine)
    fit = replace(resolve(spec, rows), apart=apart)
    if engine.device is not None and (spec.precomputed or (spec.exact and not fit.matrix_free)):
        engine.progress.note(f"{engine.device} is not used: Gram matrices in memory are solved on the processor")
        engine = engine.on_device(None)
    check_fits(rows, _sized(fit, sizes(fit)[0]), engine, limit)
    make_room(engine.kept, rows, fit, limit)
    provenance: Provenance = {"spec": spec.to_dict(), "identity": identity, **of_columns(rows)}
    note_lowered(fit, engine.progress)
    if spec.precomputed:
        model = fit_precomputed(rows, fit, engine)
        warn_if_indefinite(model.solution)
        warn_if_fewer(model, fit, engine.progress)
        return replace(model, provenance={**provenance, **model.provenance})
    first = fit.start() if fit.matrix_free else fit
    chosen, found = _solved(rows, first, engine, limit)
    provenance |= {"content": found.digest, "choices": [*chosen.choices, *found.choices]}
    provenance |= of_devices(engine.devices or [CPU])
    model, span, sample = found.model(chosen.features, provenance), found.span, chosen.sample
    trim(first.size)
    if fit.matrix_free:
        span = sample = None
        del found  # products do not need it
        model = refine_by_products(rows, model, spec, engine)
    warn_if_fewer(model, fit, engine.progress)
    model = with_decoder(model, sample, spec, span)
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


_FIRST = 100  # the first size of a fit with a tolerance


def sizes(fit: ResolvedFit) -> list[int]:
    """The sizes that a fit tries: that of the spec or, with a tolerance, doubled ones up to the largest."""
    if fit.spec.tol is None:
        return [fit.size]
    doubled = (_FIRST * 2**k for k in range(fit.size.bit_length()))
    return [*(size for size in doubled if size < fit.size), fit.size]


def _sized(fit: ResolvedFit, size: int) -> ResolvedFit:
    return fit if fit.spec.tol is None else fit.at(size)


def _solved(rows: Rows, fit: ResolvedFit, engine: Engine, limit: int | None) -> tuple[ChosenFeatures, Solved]:
    """The features of a fit, and the solution of their pass, of the first size that meets the tolerance."""
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # columns that overflow are named
        prepared = prepare_sample(rows, fit, engine)
    chosen, found = _solved_once(prepared, _sized(fit, sizes(fit)[0]), engine, limit)
    if fit.spec.tol is not None:
        chosen, found = _grown(prepared, fit, engine, limit, (chosen, found))
    warn_if_dominated(rows, chosen.few, chosen.features, fit.spec)
    warn_if_narrow(chosen.features, chosen.few, found.solution.unexplained)
    warn_of(found, chosen.features)
    return chosen, found


def _solved_once(
    prepared: PreparedSample, fit: ResolvedFit, engine: Engine, limit: int | None
) -> tuple[ChosenFeatures, Solved]:
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # the pass reports rows that overflow
        chosen = choose_features(prepared, fit, engine)
        try:
            features, found = solve_rows(prepared.rows, chosen, fit, engine, limit)
        except ConstantKernelError:
            check_length(chosen.features, chosen.few)
            raise
    return replace(chosen, features=features), found


def _grown(
    prepared: PreparedSample,
    fit: ResolvedFit,
    engine: Engine,
    limit: int | None,
    first: tuple[ChosenFeatures, Solved],
) -> tuple[ChosenFeatures, Solved]:
    """The solution of the first size that meets the tolerance, or else of the largest that memory allows. Warns
    ToleranceWarning if that leaves a larger error."""
    (chosen, found), tol, stopped = first, fit.spec.tol, ""
    assert tol is not None
    for size in sizes(fit)[1:]:
        error = found.certificate.error
        if error <= tol:
            break
        engine.progress.note(f"size {chosen.features.size} has an error of {error:.3g}, above tol={tol}: growing")
        try:
            check_fits(prepared.rows, fit.at(size), engine, limit)
            chosen, found = _solved_once(prepared, fit.at(size), engine, limit)
        except MemoryLimitError as cause:
            stopped = f": {cause}"
            break
    size, error = chosen.features.size, found.certificate.error
    if error > tol:
        warn_above_tolerance(size, error, stopped, tol)
    grown = choice("size", size, f"the first of 100, 200, 400, ... for tol={tol}: it has an error of {error:.3g}")
    others = [each for each in chosen.choices if each["option"] != "size"]
    return replace(chosen, choices=(*others, grown)), found
