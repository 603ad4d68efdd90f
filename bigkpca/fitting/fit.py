"""Fit a model: choose features on a sample, add up moments in one pass, solve, and refine by products on request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.devices import CPU
from bigkpca.data.rows import Rows, identity_of
from bigkpca.errors import MemoryLimitError, SpecError, ToleranceWarning, warn
from bigkpca.execution import release_freed_memory
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.fitting.calibration import calibrated, without_calibration
from bigkpca.fitting.features import choice, choices_of, choose_features
from bigkpca.fitting.memory_limits import check_fits, make_room
from bigkpca.fitting.messages import (
    note_lowered,
    warn_if_dominated,
    warn_if_fewer,
    warn_if_indefinite,
    warn_if_narrow,
    warn_of,
)
from bigkpca.fitting.precomputed import fit_precomputed
from bigkpca.fitting.preimage import with_decoder
from bigkpca.fitting.refine import refine_by_products
from bigkpca.fitting.sample import Sample, draw_sample, scaled_columns
from bigkpca.fitting.solve import solve_rows
from bigkpca.numerics.features import Columns
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.preimages.base import spread
from bigkpca.numerics.span import Span
from bigkpca.spec import FitSpec, ResolvedFit, resolve
from bigkpca.spec.checks import without_weights

_FIRST = 100  # the first size of a fit with a tolerance


def fit_rows(
    rows: Rows, spec: FitSpec, engine: Engine, identity: dict[str, Any] | None = None, limit: int | None = None
) -> Model:
    """Fit kernel PCA to rows: one bounded sample, one pass, one small eigenproblem, and the pre-image.

    With a tolerance, a pass is made for each size: 100, 200, 400, ..., until the certificate states an error of at most
    `spec.tol`, or memory ends the growth. `identity` is the fingerprint of the rows, by which a saved model is
    recognised; `limit`, the bytes that a process may use. Raises the errors of `bigkpca.fit`.
    """
    if rows.weights is not None and (clash := without_weights(spec, "sample weights")):
        raise SpecError(clash.message)
    provenance: Provenance = {"spec": spec.to_dict(), "identity": identity or identity_of(rows, stamped=False)}
    provenance |= columns_recorded(rows)
    rows, set_aside = without_calibration(rows, spec, engine)
    fit = resolve(spec, rows)
    if engine.device is not None and (spec.precomputed or (spec.exact and not fit.matrix_free)):
        engine.progress.note(f"{engine.device} is not used: Gram matrices in memory are solved on the processor")
        engine = engine.on_device(None)
    check_fits(rows, _tried(fit)[0], engine, limit)  # larger sizes are checked when their turn comes
    make_room(engine.kept, rows, fit, limit)
    note_lowered(fit, engine.progress)
    if spec.precomputed:
        model = fit_precomputed(rows, fit, engine)
        warn_if_indefinite(model.solution)
        warn_if_fewer(model, fit, engine.progress)
        return replace(model, provenance={**provenance, **model.provenance})
    first = fit.start() if fit.matrix_free else fit
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # errors name columns that overflow
        sample = draw_sample(rows, first, engine, set_aside)
        columns = scaled_columns(sample, first, engine)
        probes, calibration_rows = sample.probes, sample.set_aside
        decoder_rows = spread(sample.X, spec.preimage_rows(len(sample.X))) if spec.keeps_sample else None
        if first.spec.tol is None:
            features = choose_features(sample, columns, first, engine)
            del sample  # up to 64 MB, as much as the rest of a pass
            model, span = solve_rows(probes, features, first, engine, limit)
        else:
            model, span = _grown(sample, columns, first, engine, limit)
            del sample
    choices = [*choices_of(model.features, first), *model.provenance["choices"]]
    provenance |= devices_recorded(engine.devices or [CPU])
    model = replace(model, provenance={**provenance, **model.provenance, "choices": choices})
    warn_if_dominated(probes.rows, probes.X, model.features, spec)
    warn_if_narrow(model.features, probes.X, model.solution.unexplained)
    warn_of(model)
    release_freed_memory(first.size)
    if fit.matrix_free:
        span = decoder_rows = None  # the decoder is made of rows of the refined model
        model = refine_by_products(rows, model, spec, engine)
    warn_if_fewer(model, fit, engine.progress)
    model = with_decoder(model, decoder_rows, spec, span)
    return calibrated(model, calibration_rows, probes.weight, engine) if spec.calibration_rows else model


def columns_recorded(source: Rows | Model) -> Provenance:
    """What a model records about the columns of rows: their names, and which of them encode one column of
    categories."""
    found: Provenance = {}
    if source.names is not None:
        found["column_names"] = list(source.names)
    if source.one_hot:
        found["one_hot"] = [list(each) for each in source.one_hot]
    return found


def devices_recorded(names: Iterable[str]) -> Provenance:
    """What a model records about the devices that computed it: nothing if there was only the processor."""
    found = sorted(set(names))
    return {} if found == [CPU] else {"devices": found}


def _tried(fit: ResolvedFit) -> list[ResolvedFit]:
    """The fits that are tried: with a tolerance, of doubled sizes up to the largest."""
    if fit.spec.tol is None:
        return [fit]
    doubled = (_FIRST * 2**k for k in range(fit.size.bit_length()))
    return [fit.at(size) for size in (*(size for size in doubled if size < fit.size), fit.size)]


def _grown(
    sample: Sample, columns: Columns, fit: ResolvedFit, engine: Engine, limit: int | None
) -> tuple[Model, Span | None]:
    """The model of the first size that meets the tolerance, or else of the largest that memory allows, and the span of
    its landmarks. Warns ToleranceWarning if that leaves a larger error."""

    def solved(sized: ResolvedFit) -> tuple[Model, Span | None]:
        return solve_rows(sample.probes, choose_features(sample, columns, sized, engine), sized, engine, limit)

    (first, *larger), tol, stopped = _tried(fit), fit.spec.tol, ""
    assert tol is not None
    model, span = solved(first)
    for sized in larger:
        size, error = model.features.size, model.certificate.error
        if error <= tol:
            break
        engine.progress.note(f"size {size} has an error of {error:.3g}, above tol={tol}: growing")
        try:
            check_fits(sample.rows, sized, engine, limit)
            model, span = solved(sized)
        except MemoryLimitError as cause:
            stopped = f": {cause}"
            break
    size, error = model.features.size, model.certificate.error
    if error > tol:
        advice = stopped or ": that is the largest one; use a larger tol, a larger sigma, or method='exact'"
        warn(f"tol={tol} was not met: size {size} leaves an error of {error:.3g}{advice}", ToleranceWarning)
    grown = choice("size", size, f"the first of 100, 200, 400, ... for tol={tol}: it has an error of {error:.3g}")
    return replace(model, provenance={**model.provenance, "choices": [grown, *model.provenance["choices"]]}), span
